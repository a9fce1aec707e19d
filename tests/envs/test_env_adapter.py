"""What of environments is shown: models pose as the physics says."""

import jax
import mujoco
import numpy as np
import pytest

from jaxrl.envs import env_adapter, registry
from jaxrl.envs.tasks import classic
from jaxrl.rendering import geoms, primitives


def _tip(env, state):
    """Return where the end of the pole is."""
    model = env_adapter.mujoco_model(env)
    where = geoms.body_poses(model, np.asarray(env_adapter.render_state(env, state)["qpos"])[None])
    body = primitives.model_shapes(model)
    pole = primitives.place_shapes(body, where)[-1]
    return max(pole.points, key=lambda point: np.linalg.norm(point - where.pos[0, -1]))


@pytest.mark.parametrize("theta", [-0.2, 0.0, 0.4])
def test_a_cart_and_its_pole_lean_as_the_task_means_it(theta):
    env = classic.CartPole()
    state = env.reset(jax.random.PRNGKey(0))
    joints = state.pipeline_state.replace(x=np.float32(0.7), theta=np.float32(theta))
    tip = _tip(env, state.replace(pipeline_state=joints))
    # As in Gymnasium: to the right of the picture is more, of both.
    np.testing.assert_allclose(tip[[0, 2]], [0.7 + np.sin(theta), np.cos(theta)], atol=1e-6)
    assert env_adapter.step_seconds(env) == 0.02


def test_a_pendulum_stands_at_zero_and_turns_against_the_clock():
    env = classic.Pendulum()
    state = env.reset(jax.random.PRNGKey(0))
    joints = state.pipeline_state.replace(theta=np.float32(0.5))
    tip = _tip(env, state.replace(pipeline_state=joints))
    np.testing.assert_allclose(tip[[0, 2]], [-np.sin(0.5), np.cos(0.5)], atol=1e-6)


@pytest.mark.parametrize("backend", ["generalized", "positional", "spring", "mjx"])
def test_bodies_of_brax_are_drawn_where_its_physics_has_them(backend):
    env = registry.make("inverted_double_pendulum", backend)
    with jax.numpy_rank_promotion("allow"):
        state = jax.jit(env.reset)(jax.random.PRNGKey(3))
    model = env_adapter.mujoco_model(env)
    assert isinstance(model, mujoco.MjModel)
    found = geoms.body_poses(model, np.asarray(env_adapter.render_state(env, state)["qpos"])[None])
    np.testing.assert_allclose(found.pos[0, 1:], state.pipeline_state.x.pos, atol=1e-5)


def test_worlds_without_a_model_show_what_they_draw_or_what_is_seen():
    arena, catch = registry.make("arena"), registry.make("catch")
    for env in (arena, catch):
        state = env.reset(jax.random.PRNGKey(0))
        assert env_adapter.mujoco_model(env) is None and env_adapter.step_seconds(env) is None
        expected = state.pipeline_state if env is arena else state.obs
        assert env_adapter.render_state(env, state) is expected
