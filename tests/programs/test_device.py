"""Compiled device programs: start states, shapes, tracing and unrolling."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxrl import programs, train
from jaxrl.checkpoint.manager import Restored
from jaxrl.envs.tasks import classic
from jaxrl.learning import minibatch
from jaxrl.programs import device
from jaxrl.programs.compiler import PendingProgram
from jaxrl.training import resume
from jaxrl.utils import streams
from jaxrl.utils.xla_options import CompilerBusyError
from tests.helpers import sharing, tiny


@pytest.fixture(scope="module")
def tiny_program():
    return programs.build(train._parse(tiny.FLAGS).config)


def assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def executor(tiny_program):
    return sharing.compile_once(tiny_program)


def test_one_long_cycle_equals_two_short_cycles(executor):
    """The number of iterations is an argument of the program."""
    pool = executor._pool(streams.TRAIN, 0, ())

    def run(state, iterations):
        leaves, _ = executor._cycle.result()(state, pool, np.uint32(iterations), ())
        return jax.tree.unflatten(jax.tree.structure(state), leaves)

    start, long = executor.init_state(), run(executor.init_state(), 4)
    assert int(long.iteration) == 4
    assert_same(long.learner, run(run(start, 2), 2).learner)


def test_start_states_depend_on_stream_and_number(executor):
    def pool(*which):
        return np.asarray(executor._pool(*which, ())[0])

    np.testing.assert_array_equal(pool(1, 5), pool(1, 5))
    assert not np.isin(pool(1, 5), pool(1, 6)).any()
    assert not np.isin(pool(1, 5), pool(2, 5)).any()


def test_every_environment_has_a_distinct_start_state(executor):
    obs = np.asarray(executor.init_state().collector.env.packed.obs)
    assert len(np.unique(obs, axis=0)) == len(obs) == 8


def test_abstract_state_matches_the_initial_state(executor):
    made = executor.init_state()
    abstract = executor.program.abstract_state()
    assert jax.tree.structure(made) == jax.tree.structure(abstract)
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(abstract), strict=True):
        assert (a.shape, a.dtype, a.sharding) == (b.shape, b.dtype, b.sharding)


def test_evaluation_may_have_more_environments_than_the_pool():
    config = train._parse([*tiny.FLAGS, "--eval.num-envs", "20"]).config
    executor = device.compile_programs(programs.build(config))
    state = executor.init_state()
    params = executor.program.algorithm.policy_params(state.learner)
    result = executor.evaluate(params, 3)
    assert result.returns.shape == (20,)
    assert_same(result, executor.evaluate(params, 3))


def test_physics_is_traced_once_for_all_programs(monkeypatch):
    """Describing the environment, training and evaluation share one trace of each function."""
    traced = []

    def counted(name, function):
        def call(*given):
            traced.append(name)
            return function(*given)

        return call

    for name in ("reset", "step"):
        function = getattr(classic.CartPole, name)
        monkeypatch.setattr(classic.CartPole, name, counted(name, function))
    flags = [*tiny.FLAGS, "--num-envs", "4"]  # not a program that another test has compiled
    made = device.compile_programs(programs.build(train._parse(flags).config))
    made.wait()
    assert sorted(traced) == ["reset", "step"]


@pytest.mark.parametrize(
    "members, text", [((), "minibatches are shuffled differently"), ((1, 2), "last bits")]
)
def test_resume_with_another_device_count_warns(members, text, tiny_program, monkeypatch):
    """Rows are shuffled per device: another device count gives other minibatches."""
    key = jax.random.key(0)
    one, two = (minibatch.shuffled_rows(key, 8, 2, num_shards) for num_shards in (1, 2))
    assert not np.array_equal(np.ravel(one), np.ravel(two))
    saved = SimpleNamespace(
        restore=lambda target, *_, **__: Restored(0, target, {"devices": 2}, [])
    )
    monkeypatch.setattr(device.DeviceProgram, "abstract_state", lambda made: SimpleNamespace())
    monkeypatch.setattr(resume, "checkpointed_part", lambda config, state: state)
    *_, (remark,) = resume.restore_state(replace(tiny_program, members=members), saved)
    assert "The number of devices changed" in remark and text in remark


@pytest.mark.parametrize(
    "changes, gigabytes, fits",
    [
        ([], 100, True),
        (["--ppo.rollout-length", "256"], 100, False),
        (["--ppo.rollout-length", "16"], 100, True),
        (["--ppo.rollout-length", "16"], 6, False),
        (["--ppo.rollout-length", "16", "--task.action-repeat", "20"], 100, False),
    ],
)
def test_only_short_rollouts_are_unrolled(monkeypatch, tiny_program, changes, gigabytes, fits):
    monkeypatch.setattr(device.device_memory, "of_device", lambda: gigabytes * 2**30)
    changed = replace(tiny_program, config=train._parse(tiny.FLAGS + changes).config)
    assert device._fits_into_a_graph(changed) is fits


@pytest.mark.parametrize("error", [CompilerBusyError, jax.errors.JaxRuntimeError])
def test_program_is_compiled_again_when_the_compiler_was_busy(error):
    attempts, busy = [], error is CompilerBusyError

    def work():
        attempts.append(error)
        if len(attempts) == 1:
            raise error("INTERNAL")
        return "program"

    with ThreadPoolExecutor() as threads:
        pending = PendingProgram(threads, work)
    if busy:
        assert [pending.result(), pending.result()] == ["program"] * 2
    else:
        with pytest.raises(error):
            pending.result()
    assert len(attempts) == 1 + busy
