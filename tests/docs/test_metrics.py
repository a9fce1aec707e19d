"""docs/metrics.md lists exactly the metrics that runs log."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jaxrl import programs
from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.config import env_names, presets
from jaxrl.envs import episode_stats as counting
from jaxrl.envs import registry
from jaxrl.envs.factory import _make
from jaxrl.loggers import sinks
from jaxrl.programs import device
from jaxrl.training import fit
from tests.docs import running
from tests.docs.reading import ROOT
from tests.docs.shrinking import shrunk
from tests.helpers import recorded, tiny

# Trained as small runs: their logs include the metrics of the host loop.
TRAINED = ("imitate-walk", "arena-small", "rrd-quick")
# Only traced, for the names of metrics computed on the device.
TRACED = ("reppo-ant", "pqn-cartpole", "td3-ant", "dqn-cartpole", "amp-walk")
# Environments with their own metrics, read from the shapes of their first state.
ENVIRONMENTS = ("imitate-recover", "amp-walk", "pick-place", "memory", "arena-small")
WITHOUT_PRESET = ("delayed_match",)
# Metrics of the stand-in environments.
STAND_IN_METRICS = {"step", "rollout/ep_clip", "rollout/ep_speed"}


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The names of all metrics that runs log."""
    place, found = tmp_path_factory.mktemp("metrics"), set()
    for name in TRAINED:
        with pytest.MonkeyPatch.context() as patch:  # shared with the commands of the documents
            patch.setattr(device, "compile_programs", running.compile_once)
            fit.fit(replace(shrunk(presets.get(name)), run_dir=place / name))
        found |= {key for row in tiny.rows(place / name, timed=True) for key in row}
    for name in TRACED:
        found |= _traced(shrunk(presets.get(name)))
    data = recorded.write_bandit(place / "data.hdf5", episodes=9)
    for name in ("iql", "td3-bc", "cql"):
        found |= _of_data(presets.get(name), data)
    student = shrunk(presets.get("imitate-walk"))
    found |= _traced(
        replace(
            student,
            ppo=replace(
                student.ppo,
                teacher=place / "imitate-walk",
                l2_init_coef=1.0,
                extra_loss="tests.helpers.custom_losses:squared_values",
            ),
        )
    )
    found -= STAND_IN_METRICS
    # None of these runs diverges, has a GPU, records episodes (tests/loggers/test_monitor), or has
    # more clips than the device (tests/motion/test_clip_store).
    found |= {"train/diverged", "time/gpu_percent", "curriculum/new_clips"}
    found |= {f"rollout/ep_{name}_mean_100" for name in ("rew", "len")}
    for preset in ENVIRONMENTS:
        found |= _of_env(presets.get(preset))
    for name in WITHOUT_PRESET:
        found |= _of_env(presets.get("custom", env=name))
    return found


def _traced(config):
    algorithm, key = programs.build(config).algorithm, jax.eval_shape(jax.random.key, 0)
    return set(jax.eval_shape(lambda key: algorithm.train_step(algorithm.init(key))[1], key))


def _of_data(config, data):
    """Return the metrics of learning from recorded episodes, with a learnt reward."""
    settings = replace(config.offpolicy, reward="rrd")
    config = replace(config, data=replace(config.data, path=data), offpolicy=settings)
    program = programs.build(config)
    learning, state = program.algorithm, program.abstract_state()
    ring, index = program.data.chunk(0)
    found = jax.eval_shape(learning.train_step, state, ReplayState(ring, index))[1]
    steps = program.data.held_out_steps(2**20)
    held_out = jax.eval_shape(learning.held_out, state.learner, steps, jax.random.key(0))
    logged = {sinks.iteration_name("train/R_loss"), "time/gradient_steps"}
    return {*found, *held_out, *program.data_counts, *logged}


def _of_env(config):
    """Return the metrics that an environment adds to the log, its curriculum's included."""
    env = _make(config)
    with jax.numpy_rank_promotion("allow"):
        start = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
    zeros = {name: jnp.zeros(1) for name in start.metrics}
    names = set(counting.pop(counting.init(jnp.ones(1, bool), zeros))[1])
    if hasattr(env, "update_curriculum"):
        names |= {f"curriculum/{n}" for n in env.update_curriculum(env.first_curriculum(), {})[1]}
    return names


def test_page_lists_exactly_the_logged_metrics(logged):
    text = (ROOT / "docs" / "metrics.md").read_text()
    listed = re.findall(r"^\| `([a-z_]+/\w+)` \|", text, re.M)
    assert len(listed) == len(set(listed))
    assert sorted(logged - set(listed)) == [], "logged but not on the page"
    assert sorted(set(listed) - logged) == [], "on the page but never logged"


def test_every_built_in_environment_with_metrics_is_covered():
    ours = {*env_names.CLASSIC, *env_names.MOTION, *env_names.ARM}
    without_metrics = {name for name in env_names.CLASSIC if not _metrics_of(name)}
    covered = {presets.get(preset).env for preset in ENVIRONMENTS} | {*WITHOUT_PRESET}
    assert ours - without_metrics == covered


def _metrics_of(name):
    return jax.eval_shape(registry.make(name, None).reset, jax.random.PRNGKey(0)).metrics
