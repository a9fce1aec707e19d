"""Environments by name: Brax tasks on every backend, built-in tasks and custom classes."""

import jax
import jax.numpy as jnp
import pytest

from jaxrl import errors
from jaxrl.config import env_names
from jaxrl.envs import brax_patches, registry, vector_env
from jaxrl.envs.env_state import LazyEnv
from jaxrl.envs.tasks import arena, catch, classic, probes, recall
from tests.helpers import custom_envs

# Brax's swimmer needs a fluid, which only the generalized pipeline has.
MISSING = {("swimmer", backend) for backend in ("mjx", "positional", "spring")}

CUSTOM = "tests.helpers.custom_envs"


# The rest differ from these in code of Brax alone: `pytest -m sweep tests/envs/test_registry.py`.
# Each backend is tested by `test_brax_environment_is_vectorised`.
FIRST = {(name, None) for name in env_names.BRAX}
COMBINATIONS = [
    pytest.param(
        name,
        backend,
        id=f"{name}-{backend}",
        marks=[] if (name, backend) in FIRST else [pytest.mark.sweep],
    )
    for name in env_names.BRAX
    for backend in (None, *env_names.BACKENDS)
    if (name, backend) not in MISSING
]
# VectorEnv treats all tasks alike and is slow to trace: one task per backend is enough.
VECTORISED = [("inverted_pendulum", backend) for backend in env_names.BACKENDS]


def _types(tree):
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name, backend", COMBINATIONS)
def test_brax_environment_resets_and_steps(name, backend):
    env = registry.make(name, backend)
    with jax.numpy_rank_promotion("allow"):  # Brax relies on it
        before = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        after = jax.eval_shape(env.step, before, jnp.zeros(env.action_size))
    assert _types(before) == _types(after)
    assert len(after.obs.shape) == 1 and after.reward.shape == ()


@pytest.mark.parametrize("name, backend", VECTORISED)
def test_brax_environment_is_vectorised(name, backend):
    single = LazyEnv(lambda: registry.make(name, backend))  # as in training: traced once
    env = vector_env.VectorEnv(single, num_envs=2, episode_length=10, pool_size=2)
    key = jax.random.key(0)

    def play(key):
        pool = env.sample_pool(key)
        state = env.reset(key, pool)
        return state, env.step(state, jnp.zeros((2, single.action_size)), pool, key)

    before, (after, outcome) = jax.eval_shape(play, key)
    assert _types(before) == _types(after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((before, after)))
    assert outcome.next_obs.shape == (2, *env.spec.obs.shape)
    assert outcome.reward.shape == (2,)


@pytest.mark.parametrize("name, backend", sorted(MISSING))
def test_backend_unsupported_by_brax_is_a_user_error(name, backend):
    with pytest.raises(errors.UserError, match=f"--backend: .*'{name}' on '{backend}'"):
        registry.make(name, backend)


@pytest.mark.parametrize("backend", env_names.BACKENDS)
def test_backend_reaches_brax(backend):
    assert registry.make("inverted_pendulum", backend).backend == backend


def test_brax_names_match_brax():
    envs = brax_patches.import_brax()
    assert sorted(envs._envs) == sorted(env_names.BRAX)
    assert len(set(env_names.BRAX)) == len(env_names.BRAX)


def test_builtin_environments_by_name():
    assert isinstance(registry.make("cartpole"), classic.CartPole)
    assert isinstance(registry.make("pendulum"), classic.Pendulum)
    assert isinstance(registry.make("arena"), arena.Arena)
    assert isinstance(registry.make("recall"), recall.Recall)
    assert isinstance(registry.make("catch"), catch.Catch)
    assert isinstance(registry.make("delayed_match"), recall.DelayedMatch)
    assert len(env_names.CLASSIC) == 6


@pytest.mark.parametrize("name", sorted(probes.PROBES))
def test_probes_by_name(name):
    assert type(registry.make(f"probe/{name}")) is probes.PROBES[name]


# --- custom environments


def test_custom_environment_without_backend():
    assert type(registry.make(f"{CUSTOM}:Plain")) is custom_envs.Plain
    assert registry.make(f"{CUSTOM}:Backed").backend == "its own choice"
    assert registry.make(f"{CUSTOM}:OpenEnded").kwargs == {}


def test_custom_environment_with_backend():
    assert registry.make(f"{CUSTOM}:Backed", "mjx").backend == "mjx"
    assert registry.make(f"{CUSTOM}:OpenEnded", "mjx").kwargs == {"backend": "mjx"}


def test_custom_environment_in_a_package():
    assert type(registry.make("jaxrl.envs.tasks.probes:Memory")) is probes.Memory


def test_error_inside_a_custom_module_propagates(tmp_path, monkeypatch):
    (tmp_path / "breaking_env.py").write_text("raise RuntimeError('from the module')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="from the module"):
        registry.make("breaking_env:Env")


# --- errors


@pytest.mark.parametrize(
    "name, backend, message",
    [
        ("half_cheetah", None, "--env: unknown environment 'half_cheetah'.* 'halfcheetah'"),
        ("cartpol", None, "'cartpole'"),
        ("xyzzy", None, r"unknown environment 'xyzzy'\. Known: ant, .* module:Class"),
        ("probe/countr", None, "unknown environment 'probe/countr'.* 'probe/counter'"),
        ("", None, "--env: unknown environment ''"),
        (":Plain", None, "--env: unknown environment"),
        (f"{CUSTOM}:", None, "--env: unknown environment"),
        ("ant", "sprin", "--backend: unknown backend 'sprin'.* 'spring'"),
        (f"{CUSTOM}:Backed", "sprin", "--backend: unknown backend"),
        ("no_such_module:Env", None, "--env: cannot import 'no_such_module'.* PYTHONPATH"),
        (
            f"{CUSTOM}.inner:Env",
            None,
            f"--env: cannot import '{CUSTOM}.inner'",
        ),
        (
            f"{CUSTOM}:Plane",
            None,
            f"'{CUSTOM}' has no 'Plane'.* 'Plain'",
        ),
        (
            f"{CUSTOM}:NotAnEnvironment",
            None,
            r"not a Brax environment.*\['reset', 'step'\]",
        ),
        (
            f"{CUSTOM}:Plain",
            "spring",
            f"--backend: '{CUSTOM}:Plain' takes no backend",
        ),
    ],
)
def test_errors_name_the_flag_and_the_fix(name, backend, message):
    with pytest.raises(errors.UserError, match=message):
        registry.make(name, backend)


def test_custom_name_of_a_non_callable_is_rejected():
    with pytest.raises(errors.UserError, match=f"{CUSTOM}:NOT_CALLABLE"):
        registry.make(f"{CUSTOM}:NOT_CALLABLE")


@pytest.mark.parametrize("name", ["cartpole", "probe/counter"])
def test_backend_for_a_builtin_environment_is_rejected(name):
    with pytest.raises(errors.UserError, match="--backend"):
        registry.make(name, "spring")
