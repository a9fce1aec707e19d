"""The classic control tasks against Gymnasium, step by step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.tasks import classic
from tests.helpers.donation import assert_donatable


def _signature(tree):
    """List structure, shapes, dtypes and weak types, all of which a scan carry must keep."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


def _joints(state) -> np.ndarray:
    return np.array(jax.tree.leaves(state.pipeline_state), np.float64)


def _with_joints(state, values):
    """Put a joint state given as a flat array into an environment state."""
    structure = jax.tree.structure(state.pipeline_state)
    joints = structure.unflatten([jnp.float32(value) for value in values])
    return state.replace(pipeline_state=joints)


def _oracle(name: str):
    env = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("env_class", [classic.CartPole, classic.Pendulum])
def test_step_preserves_structure_shapes_and_dtypes(env_class):
    env = env_class()
    is_discrete = hasattr(env, "num_actions")
    action = jnp.zeros((), jnp.int32) if is_discrete else jnp.zeros(env.action_size)
    for rng in (jax.random.PRNGKey(0), jax.random.key(0)):
        state = jax.eval_shape(env.reset, rng)
        assert _signature(jax.eval_shape(env.step, state, action)) == _signature(state)
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
        assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
        assert state.obs.shape == (env.observation_size,)


@pytest.mark.parametrize("env_class", [classic.CartPole, classic.Pendulum])
def test_step_preserves_info_and_metrics_of_wrappers(env_class):
    env = env_class()
    state = env.reset(jax.random.key(0))
    state = state.replace(info={"mark": jnp.float32(3)}, metrics={"mark": jnp.float32(4)})
    state = env.step(state, jnp.zeros((1,)) if env_class is classic.Pendulum else jnp.int32(0))
    assert state.info == {"mark": 3} and state.metrics == {"mark": 4}


@pytest.mark.parametrize("env_class", [classic.CartPole, classic.Pendulum])
def test_states_can_be_donated(env_class):
    env = env_class()
    action = jnp.int32(0) if hasattr(env, "num_actions") else jnp.zeros(1)
    assert_donatable(env.reset(jax.random.key(0)))
    assert_donatable(env.step(env.reset(jax.random.key(0)), action))


@pytest.mark.parametrize(
    ("env_class", "name"),
    [(classic.CartPole, "CartPole-v1"), (classic.Pendulum, "Pendulum-v1")],
)
def test_time_limit_and_sizes_match_gymnasium(env_class, name):
    oracle, env = gymnasium.make(name), env_class()
    assert env.episode_length == oracle.spec.max_episode_steps
    assert (env.observation_size,) == oracle.observation_space.shape


@pytest.mark.parametrize(
    ("env_class", "name"),
    [(classic.CartPole, "CartPole-v1"), (classic.Pendulum, "Pendulum-v1")],
)
def test_start_state_distribution_matches_gymnasium(env_class, name):
    oracle, env = _oracle(name), env_class()
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(1), 2000))
    ours = np.stack(jax.tree.leaves(states.pipeline_state), axis=1)
    theirs = np.empty_like(ours)
    for row in theirs:
        oracle.reset()
        row[:] = oracle.state
    high = {"CartPole-v1": np.full(4, 0.05), "Pendulum-v1": np.array([np.pi, 1.0])}[name]
    for starts in (ours, theirs):
        assert np.all(np.abs(starts) <= high * (1 + 1e-6))
        np.testing.assert_allclose(starts.max(0) / high, 1, atol=0.01)
        np.testing.assert_allclose(starts.min(0) / high, -1, atol=0.01)
    deciles = np.arange(0.1, 1, 0.1)
    gap = np.quantile(ours, deciles, axis=0) - np.quantile(theirs, deciles, axis=0)
    assert np.all(np.abs(gap) < 0.15 * high)
    assert np.all(np.abs(np.corrcoef(ours.T) - np.eye(len(high))) < 0.1)


def test_cartpole_episodes_match_gymnasium():
    oracle, env = _oracle("CartPole-v1"), classic.CartPole()
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    rng = np.random.default_rng(0)
    total = 0
    for seed in range(30):
        state = reset(jax.random.key(seed))
        oracle.reset()
        oracle.state = _joints(state)
        terminated = False
        while not terminated:
            action = int(rng.integers(2))
            obs, reward, terminated, _, _ = oracle.step(action)
            state = step(state, jnp.int32(action))
            np.testing.assert_allclose(_joints(state), oracle.state, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(state.obs, obs, rtol=1e-4, atol=1e-5)
            assert (float(state.reward), bool(state.done)) == (reward, terminated)
            total += 1
    assert total > 400


def test_cartpole_single_steps_match_gymnasium_from_random_states():
    """Terminations by cart position are too rare in random episodes, so start near every limit."""
    oracle, env = _oracle("CartPole-v1"), classic.CartPole()
    step = jax.jit(env.step)
    blank = env.reset(jax.random.key(0))
    rng = np.random.default_rng(1)
    starts = rng.uniform(-1, 1, (600, 4)) * [2.5, 3.0, 0.22, 3.0]
    ends = []
    for start in starts.astype(np.float32):
        oracle.reset()
        oracle.state = start.astype(np.float64)
        action = int(rng.integers(2))
        obs, reward, terminated, _, _ = oracle.step(action)
        state = step(_with_joints(blank, start), jnp.int32(action))
        np.testing.assert_allclose(state.obs, obs, rtol=1e-5, atol=1e-6)
        assert (float(state.reward), bool(state.done)) == (reward, terminated)
        ends.append((terminated, abs(obs[0]) > 2.4, abs(obs[2]) > 0.21))
    by_cart = sum(done and cart and not pole for done, cart, pole in ends)
    by_pole = sum(done and pole and not cart for done, cart, pole in ends)
    assert by_cart > 10 and by_pole > 10 and not all(done for done, _, _ in ends)


@pytest.mark.parametrize("joint", [0, 2])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("scale", [0.9999, 1.0001])
def test_cartpole_limits_match_gymnasium(joint, side, scale):
    oracle, env = _oracle("CartPole-v1"), classic.CartPole()
    limit = {0: oracle.x_threshold, 2: oracle.theta_threshold_radians}[joint]
    start = np.zeros(4, np.float32)
    start[joint] = side * scale * limit
    oracle.state = start.astype(np.float64)
    state = env.step(_with_joints(env.reset(jax.random.key(0)), start), jnp.int32(0))
    assert bool(state.done) == oracle.step(0)[2] == (scale > 1)


def test_pendulum_episodes_match_gymnasium():
    oracle, env = _oracle("Pendulum-v1"), classic.Pendulum()
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    rng = np.random.default_rng(0)
    for seed in range(5):
        state = reset(jax.random.key(seed))
        oracle.state = _joints(state)
        for _ in range(100):
            action = rng.uniform(-1, 1, 1).astype(np.float32)
            obs, reward, terminated, _, _ = oracle.step(2 * action)
            state = step(state, jnp.asarray(action))
            # Free-running, so float32 error accumulates along the swing.
            np.testing.assert_allclose(_joints(state), oracle.state, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(state.obs, obs, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(state.reward, reward, rtol=1e-3, atol=1e-2)
            assert bool(state.done) == terminated


def test_pendulum_single_steps_match_gymnasium_from_random_states():
    """Cover wrapped angles, the speed limit and actions beyond the torque limit."""
    oracle, env = _oracle("Pendulum-v1"), classic.Pendulum()
    step = jax.jit(env.step)
    blank = env.reset(jax.random.key(0))
    rng = np.random.default_rng(2)
    at_limit = 0
    for _ in range(600):
        start = (rng.uniform(-1, 1, 2) * [20.0, 8.0]).astype(np.float32)
        action = rng.uniform(-1.5, 1.5, 1).astype(np.float32)
        oracle.state = start.astype(np.float64)
        obs, reward, _, _, _ = oracle.step(2 * action)
        state = step(_with_joints(blank, start), jnp.asarray(action))
        np.testing.assert_allclose(_joints(state), oracle.state, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.obs, obs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.reward, reward, rtol=1e-4, atol=1e-4)
        at_limit += abs(obs[2]) == 8
    assert at_limit > 5
