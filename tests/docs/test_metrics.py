"""The page of metrics names what runs log: nothing more, nothing less."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jaxrl import programs
from jaxrl.config import env_names, presets
from jaxrl.envs import episode_stats as counting
from jaxrl.envs import registry
from jaxrl.envs.factory import _make
from jaxrl.programs import device
from jaxrl.training import fit
from tests.docs import running
from tests.docs.reading import ROOT
from tests.docs.shrinking import shrunk
from tests.helpers import tiny

# Small runs, as those of other documents: what the host adds is in their logs.
TRAINED = ("imitate-walk", "arena-small", "rrd-quick")
# Runs that are only traced: what is computed on the device shows by name.
TRACED = ("td3-ant", "dqn-cartpole", "amp-walk")
# What only some environments report, found in the shapes of their start.
ENVIRONMENTS = ("imitate-walk", "amp-walk", "pick-place", "memory", "arena-small")
# Metrics of the environments that replace physics.
OTHERS = {"step", "rollout/ep_clip", "rollout/ep_speed"}


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """All names that runs log."""
    place, found = tmp_path_factory.mktemp("metrics"), set()
    for name in TRAINED:
        with pytest.MonkeyPatch.context() as patch:  # commands of documents run the same
            patch.setattr(device, "compile_programs", running.compile_once)
            fit.fit(replace(shrunk(presets.get(name)), run_dir=place / name))
        found |= {key for row in tiny.rows(place / name, timed=True) for key in row}
    for name in TRACED:
        found |= _traced(shrunk(presets.get(name)))
    pupil = shrunk(presets.get("imitate-walk"))
    found |= _traced(replace(pupil, ppo=replace(pupil.ppo, teacher=place / "imitate-walk")))
    found -= OTHERS
    found.add("train/diverged")  # of runs that diverge, which none of these does
    for preset in ENVIRONMENTS:
        found |= _of_env(presets.get(preset))
    return found


def _traced(config):
    algorithm, key = programs.build(config).algorithm, jax.eval_shape(jax.random.key, 0)
    return set(jax.eval_shape(lambda key: algorithm.train_step(algorithm.init(key))[1], key))


def _of_env(config):
    """Return what an environment adds to the log: its metrics, and where a curriculum stands."""
    env = _make(config)
    with jax.numpy_rank_promotion("allow"):
        start = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
    zeros = {name: jnp.zeros(1) for name in start.metrics}
    noted = set(counting.pop(counting.init(jnp.ones(1, bool), zeros))[1])
    if hasattr(env, "update_curriculum"):
        noted |= {f"curriculum/{n}" for n in env.update_curriculum(env.first_curriculum(), {})[1]}
    return noted


def test_the_page_has_the_names_that_are_logged(logged):
    text = (ROOT / "docs" / "metrics.md").read_text()
    listed = re.findall(r"^\| `([a-z_]+/\w+)` \|", text, re.M)
    assert len(listed) == len(set(listed))
    assert sorted(logged - set(listed)) == [], "logged, but not on the page"
    assert sorted(set(listed) - logged) == [], "on the page, but never logged"


def test_no_environment_of_ours_is_left_out():
    own = {*env_names.CLASSIC, *env_names.MOTION, *env_names.ARM}
    silent = {name for name in env_names.CLASSIC if not _metrics_of(name)}
    assert own - silent == {presets.get(preset).env for preset in ENVIRONMENTS}


def _metrics_of(name):
    return jax.eval_shape(registry.make(name, None).reset, jax.random.PRNGKey(0)).metrics
