"""Several members in one program train as they would alone, on one device or on several."""

import shlex
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import programs, train
from jaxrl.envs.hooks import Hooks
from jaxrl.errors import UserError
from jaxrl.learning import episode_index
from jaxrl.programs import device
from jaxrl.training import curriculum, population
from jaxrl.types import TrainState
from jaxrl.utils import sharding
from tests.helpers import custom_envs, tiny

SEEDS = (3, 5)
REPLAY = shlex.split(
    "pendulum --devices 1 --num-envs 4 --iterations 4 --network.hidden 8 --network.critic-hidden 8 "
    "--offpolicy.train-batches 2 --offpolicy.batch-size 8 --task.episode-length 10 "
    "--offpolicy.buffer-size 160 "
    "--offpolicy.rollout-length 4 --offpolicy.warmup 40 --eval.num-envs 0"
)
FLAGS = {
    "ppo": [*tiny.FLAGS, "--eval.num-envs", "0"],
    "ppo-lstm": [
        *tiny.FLAGS,
        *shlex.split("--network.rnn lstm --network.rnn-size 8 --eval.num-envs 0"),
    ],
    "reppo": [*tiny.REPPO, "--eval.num-envs", "2"],
    "pqn": [*tiny.PQN, "--eval.num-envs", "0"],
    "sac": [*REPLAY, "--algo", "sac", "--eval.num-envs", "2"],
}


def members(name, devices=1):
    config = train._parse([*FLAGS[name], "--devices", str(devices)]).config
    return [replace(config, seed=seed) for seed in SEEDS]


def together(name, devices=1):
    return device.compile_programs(population.build(members(name, devices)))


@pytest.fixture(scope="module")
def ppo():
    return together("ppo")


@pytest.fixture(scope="module")
def alone():
    return device.compile_programs(programs.build(members("ppo")[0]))


def for_seed(executor, seed):
    """Return a run's executor for another seed, which is an argument of its programs."""
    config = replace(executor.program.config, seed=seed)
    return replace(executor, program=replace(executor.program, config=config))


def two_cycles(executor):
    state, _ = executor.run_cycle(executor.init_state(), 0)
    return executor.run_cycle(state, 1)


def returns(executor, state):
    params = executor.program.algorithm.policy_params(state.learner)
    return np.asarray(executor.evaluate(params, 2).returns)


@pytest.mark.parametrize("name", FLAGS)
def test_each_member_trains_as_it_would_alone(ppo, alone, name):
    many, one = ppo, alone
    if name != "ppo":
        many, one = together(name), device.compile_programs(programs.build(members(name)[0]))
    both, metrics = two_cycles(many)
    played = returns(many, both) if name in ("reppo", "sac") else None
    for index, seed in enumerate(SEEDS):
        single = for_seed(one, seed)
        state, single_metrics = two_cycles(single)
        assert_close(many.program.split(jax.device_get(both.learner))[index], state.learner)
        for key, mean in single_metrics.items():
            total = metrics[key].total[index]
            np.testing.assert_allclose(total, mean.total, rtol=1e-2, atol=1e-2, err_msg=key)
        if name == "sac":
            assert state.learner.updates > 0  # past warmup
        if played is not None:
            np.testing.assert_allclose(played[index], returns(single, state), rtol=1e-3)
    assert played is None or np.abs(played[0] - played[1]).min() > 0.1


def assert_close(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_members_are_sharded_without_communication(ppo):
    both = [replace(one, eval=replace(one.eval, num_envs=4)) for one in members("ppo", devices=2)]
    split = device.compile_programs(population.build(both))
    one, _ = two_cycles(ppo)
    two, _ = two_cycles(split)
    for leaf in jax.tree.leaves(two):
        assert len(leaf.sharding.device_set) == 2
        assert leaf.addressable_shards[0].data.shape[0] == 1
    assert_close(one.learner, two.learner)
    for text in (
        split._cycle.result().program.as_text(),
        split._evaluate.result().program.as_text(),
    ):
        assert not any(
            f" {collective}(" in text for collective in ("all-reduce", "all-gather", "all-to-all")
        )


def test_cycle_memory_scales_with_members(ppo, alone):
    assert ppo.cycle_bytes() == pytest.approx(2 * alone.cycle_bytes(), rel=0.25)


@pytest.mark.parametrize(
    "number, asked, used", [(8, None, 8), (6, None, 6), (9, None, 3), (6, 2, 2)]
)
def test_device_count_divides_members_evenly(number, asked, used):
    config = replace(members("ppo")[0], devices=asked)
    assert population.devices_for([config] * number) == used  # of 8


def test_uneven_device_counts_are_refused():
    config = members("ppo")[0]
    with pytest.raises(UserError, match="use 6 members, or another number of devices"):
        population.devices_for([replace(config, devices=3)] * 5)
    with pytest.raises(UserError, match="this machine has 8"):
        population.devices_for([replace(config, devices=16)] * 16)


def test_empty_and_mixed_algorithm_populations_are_refused():
    config = members("ppo")[0]
    with pytest.raises(UserError, match="not in --algo"):
        population.build([config, replace(config, algo="sac")])
    with pytest.raises(UserError, match="give the settings of one or more"):
        population.build([])


def test_gymnasium_envs_do_not_support_populations():
    config = train._parse(["gym-cartpole"]).config
    with pytest.raises(UserError, match="does not run on the device"):
        population.build([replace(config, seed=seed) for seed in SEEDS])


def test_each_member_has_its_own_curriculum():
    mesh = sharding.make_mesh(2)
    level = jax.device_put({"level": np.float32([0.25, 0.5])}, sharding.rows(mesh))
    state = TrainState(*4 * [None], level)
    env = SimpleNamespace(hooks=Hooks(custom_envs.Widening(), has_curriculum=True))
    both = programs.DeviceProgram(None, mesh, (None, None), env=env, algorithm=None)
    rows = [{"rollout/success_rate": rate} for rate in (0.5, 1.0)]
    after, values = curriculum.after_cycle(both, state, rows)
    np.testing.assert_array_equal(after.curriculum["level"], [0.25, 0.625])
    assert after.curriculum["level"].sharding == level["level"].sharding
    assert values == [{"curriculum/level": 0.25}, {"curriculum/level": 0.625}]


def test_exclude_current_handles_stacked_members():
    stored = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), episode_index.init(3, 5))
    per_member = jax.vmap(episode_index.exclude_current)(stored)
    for a, b in zip(
        *map(jax.tree.leaves, (episode_index.exclude_current(stored), per_member)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
