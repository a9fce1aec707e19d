"""Several seeds in one program train as they would alone."""

import jax
import numpy as np
import pytest

from jaxrl import train
from jaxrl.runtime import compiled, program
from tests.runtime import tiny

SEEDS = (3, 5)


@pytest.fixture(scope="module")
def together():
    config = train._parse([*tiny.FLAGS, "--devices", "1"]).config
    return compiled.compile_programs(program.build(config), SEEDS)


def alone(seed):
    config = train._parse([*tiny.FLAGS, "--devices", "1", "--seed", str(seed)]).config
    return compiled.compile_programs(program.build(config))


@pytest.mark.parametrize("place", range(len(SEEDS)))
def test_each_seed_learns_what_it_learns_alone(together, place):
    one = alone(SEEDS[place])
    many_state, many_metrics = together.train(together.first_state(), 0)
    state, metrics = one.train(one.first_state(), 0)
    for a, b in zip(
        jax.tree.leaves(many_state.learner.params),
        jax.tree.leaves(state.learner.params),
        strict=True,
    ):
        np.testing.assert_allclose(a[place], b, rtol=1e-4, atol=1e-5)
    for name, mean in metrics.items():
        total = many_metrics[name].total[place]
        np.testing.assert_allclose(total, mean.total, rtol=1e-2, atol=1e-2)
    params = program_params(together, many_state), program_params(one, state)
    played = together.evaluate(params[0], 1), one.evaluate(params[1], 1)
    assert played[0].returns.shape == (len(SEEDS), *played[1].returns.shape)
    np.testing.assert_allclose(played[0].returns[place], played[1].returns, rtol=0.05)


def program_params(programs, state):
    return programs.program.algorithm.policy_params(state.learner)


def test_seeds_differ(together):
    state = together.first_state()
    first, second = state.collector.env.world.obs
    assert not np.allclose(first, second)
