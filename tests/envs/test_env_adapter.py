"""MuJoCo models and render states of environments match their physics."""

import jax
import mujoco
import numpy as np
import pytest

from jaxrl.envs import env_adapter, registry
from jaxrl.envs.tasks import classic
from jaxrl.rendering import geoms, primitives


def _tip(env, state):
    """Return the position of the pole's tip."""
    model = env_adapter.mujoco_model(env)
    poses = geoms.body_poses(model, np.asarray(env_adapter.render_state(env, state)["qpos"])[None])
    body = primitives.model_shapes(model)
    pole = primitives.place_shapes(body, poses)[-1]
    return max(pole.points, key=lambda point: np.linalg.norm(point - poses.pos[0, -1]))


@pytest.mark.parametrize("theta", [-0.2, 0.0, 0.4])
def test_cartpole_model_pose_matches_the_state(theta):
    env = classic.CartPole()
    state = env.reset(jax.random.PRNGKey(0))
    joints = state.pipeline_state.replace(x=np.float32(0.7), theta=np.float32(theta))
    tip = _tip(env, state.replace(pipeline_state=joints))
    # As in Gymnasium: positive x and theta point right in the image.
    np.testing.assert_allclose(tip[[0, 2]], [0.7 + np.sin(theta), np.cos(theta)], atol=1e-6)
    assert env_adapter.step_seconds(env) == 0.02


def test_pendulum_is_upright_at_zero_and_turns_counterclockwise():
    env = classic.Pendulum()
    state = env.reset(jax.random.PRNGKey(0))
    joints = state.pipeline_state.replace(theta=np.float32(0.5))
    tip = _tip(env, state.replace(pipeline_state=joints))
    np.testing.assert_allclose(tip[[0, 2]], [-np.sin(0.5), np.cos(0.5)], atol=1e-6)


@pytest.mark.parametrize("backend", ["generalized", "positional", "spring", "mjx"])
def test_brax_body_positions_match_the_physics(backend):
    env = registry.make("inverted_double_pendulum", backend)
    with jax.numpy_rank_promotion("allow"):
        state = jax.jit(env.reset)(jax.random.PRNGKey(3))
    model = env_adapter.mujoco_model(env)
    assert isinstance(model, mujoco.MjModel)
    found = geoms.body_poses(model, np.asarray(env_adapter.render_state(env, state)["qpos"])[None])
    np.testing.assert_allclose(found.pos[0, 1:], state.pipeline_state.x.pos, atol=1e-5)


def test_render_state_of_environments_without_a_mujoco_model():
    arena, catch = registry.make("arena"), registry.make("catch")
    for env in (arena, catch):
        state = jax.jit(env.reset)(jax.random.PRNGKey(0))
        assert env_adapter.mujoco_model(env) is None and env_adapter.step_seconds(env) is None
        expected = state.pipeline_state if env is arena else state.obs
        assert env_adapter.render_state(env, state) is expected
