"""Training on several devices gives the same results up to rounding."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from benchmarks import distributed
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import presets
from jaxrl.envs import factory as environments
from jaxrl.evaluation import episodes
from jaxrl.networks import actor_critic
from jaxrl.programs import DeviceProgram
from jaxrl.programs.device import compile_programs
from jaxrl.utils import sharding

PENDULUM = presets.get("pendulum")
CONFIG = replace(
    PENDULUM,
    num_envs=32,
    iterations=2,
    network=replace(PENDULUM.network, hidden=(16,), critic_hidden=(16,)),
    ppo=replace(
        PENDULUM.ppo, rollout_length=8, num_minibatches=2, update_epochs=2, normalize_reward=True
    ),
    task=replace(PENDULUM.task, episode_length=10),
    eval=replace(PENDULUM.eval, num_envs=16),
)


def two_cycles(devices):
    """Train on N devices, always with 8 shards of rows, so that minibatches are the same."""
    env = environments.build(CONFIG)
    networks = actor_critic.build(env.spec, CONFIG.network)
    algorithm = ppo.make(CONFIG.ppo, env, networks, 4, num_shards=8)
    program = DeviceProgram(CONFIG, sharding.make_mesh(devices), env=env, algorithm=algorithm)
    executor = compile_programs(program)
    state, first = executor.run_cycle(executor.init_state(), 0)
    state, second = executor.run_cycle(state, 1)
    return program, state, [first, second], executor


@pytest.fixture(scope="module")
def runs():
    return {devices: two_cycles(devices) for devices in (1, 4)}


def test_devices_agree_on_gradients_statistics_and_metrics(runs):
    _, one, metrics_one, _ = runs[1]
    _, many, metrics_many, _ = runs[4]
    for a, b in zip(jax.tree.leaves(one.learner), jax.tree.leaves(many.learner), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    for key in metrics_one[0]:
        np.testing.assert_allclose(
            metrics_one[0][key].total, metrics_many[0][key].total, rtol=1e-3, atol=1e-5, err_msg=key
        )


def test_env_rows_are_sharded_and_the_learner_is_replicated(runs):
    program, state, _, _ = runs[4]
    for leaf in jax.tree.leaves(state.collector):
        assert len(leaf.sharding.device_set) == 4
        assert leaf.addressable_shards[0].data.shape[0] == 32 // 4
    for leaf in jax.tree.leaves(state.learner):
        assert leaf.is_fully_replicated and len(leaf.sharding.device_set) == 4
    assert sharding.shardings(program.mesh, state) == jax.tree.map(lambda x: x.sharding, state)


def test_rollouts_are_not_gathered_across_devices(runs):
    """Only learning averages over devices: minibatches never move rows between them."""
    text = runs[4][3]._cycle.result().program.as_text()
    assert "all-reduce" in text  # gradients
    # Only small arrays cross devices, never a rollout's observations: 8 steps of 32 rows of 3. XLA
    # may also gather rows by an all-reduce.
    for line in re.findall(r".* all-(?:reduce|gather|to-all)\(", text):
        for shape in re.findall(r"\[([\d,]*)\]", line):
            assert np.prod([int(n) for n in shape.split(",") if n]) < 8 * 32, line


def test_devices_meet_once_per_gradient_step(runs):
    program, _, _, executor = runs[4]
    ppo = program.config.ppo
    text = executor._cycle.result().program.as_text()
    found = distributed.collectives(text, ppo.num_minibatches * ppo.update_epochs)
    assert [each.kind for each in found if each.innermost] == ["all-reduce"]


def test_evaluation_is_the_same_on_several_devices(runs):
    results = []
    for devices in (1, 4):
        program, state, _, executor = runs[devices]
        params = program.algorithm.policy_params(state.learner)
        results.append(episodes.summarize(executor.evaluate(params, 5)))
    for key, value in results[0].items():
        assert value == pytest.approx(results[1][key], rel=1e-2), key
