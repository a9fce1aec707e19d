"""The heading task: rewards, observations and success."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import MotionConfig
from jaxrl.envs.env_state import strong, typed_like
from jaxrl.envs.tasks.heading import Heading
from jaxrl.envs.tasks.motion_env import FPS
from jaxrl.errors import UserError
from jaxrl.motion import library as libraries
from jaxrl.motion import skeleton, synthetic
from jaxrl.motion.humanoid import Humanoid
from tests.helpers.playing import in_physics


class _KinematicHumanoid(Humanoid):
    """No physics: the first three targets are the root's velocity in m/s."""

    def move(self, pose, target):
        return pose.replace(qpos=pose.qpos.at[:3].add(target[:3] / FPS)), jnp.zeros(())


@pytest.fixture(scope="module")
def env():
    model = skeleton.load_model()
    clip = synthetic.stepping(skeleton.describe(model))
    heading = Heading(
        MotionConfig(power_coef=0.0, random_heading=False),
        _KinematicHumanoid(model, FPS, 1),
        libraries.build([clip], model, FPS),
    )
    heading.absolute_target = lambda action: action
    return heading


@pytest.fixture(scope="module")
def play(env):
    """Return a function from velocities [steps, 3] to the states after each step."""

    def episode(direction, speed, velocities):
        state = strong(env.reset(jax.random.key(0)))
        state.info.update(direction=direction, speed=speed)

        def step(state, velocity):
            action = jnp.zeros(env.action_size).at[:3].set(velocity)
            state = typed_like(env.step(state, action), state)
            return state, state

        return jax.lax.scan(step, state, velocities)[1]

    return in_physics(jax.jit(episode))


def _along(direction, speeds):
    speeds = np.asarray(speeds, np.float32)
    return np.stack([speeds * math.cos(direction), speeds * math.sin(direction), 0 * speeds], -1)


STEPS = 120  # four seconds, of which the last two count


@pytest.mark.parametrize(
    "speeds, success",
    [
        ([1.0] * STEPS, True),
        ([0.85] * STEPS, True),
        ([1.15] * STEPS, True),
        ([0.75] * STEPS, False),
        ([1.25] * STEPS, False),
        ([-1.0] * STEPS, False),
        ([-1.0] * 60 + [1.0] * 60, True),  # it had to turn first
        ([1.0] * 60 + [0.0] * 60, False),
        ([0.0] * 60 + [0.5, 1.5] * 30, True),  # right on average
    ],
)
def test_success_requires_the_commanded_speed(play, speeds, success):
    states = play(2.0, 1.0, _along(2.0, speeds))
    assert not states.metrics["success"][:59].any()  # less than two seconds
    assert states.metrics["success"][-1] == success
    np.testing.assert_allclose(states.metrics["speed"], speeds, atol=1e-4)
    np.testing.assert_allclose(states.metrics["command"], 1.0)


def test_falling_is_not_a_success(play):
    velocity = _along(0.0, [1.0] * STEPS)
    velocity[-1, 2] = -0.5 * FPS  # half a metre down at once
    states = play(0.0, 1.0, velocity)
    np.testing.assert_array_equal(states.done, [0.0] * (STEPS - 1) + [1.0])
    assert states.metrics["success"][-2] == 1.0 and states.metrics["success"][-1] == 0.0


def test_reward_penalizes_sideways_speed_less_than_wrong_speed(play):
    straight = play(0.5, 1.0, _along(0.5, [1.0, 0.5, 1.5] + [1.0] * (STEPS - 3)))
    np.testing.assert_allclose(
        straight.reward[:3], np.exp(-2.0 * np.array([0.0, 0.25, 0.25])), atol=1e-4
    )
    aside = _along(0.5, [1.0] * STEPS) + _along(0.5 + math.pi / 2, [0.5] * STEPS)
    np.testing.assert_allclose(play(0.5, 1.0, aside).reward, math.exp(-2.0 * 0.1 * 0.25), atol=1e-4)


def test_target_direction_is_observed_in_the_heading_frame(play):
    """The last three entries are the direction (forward, leftward) and the speed."""
    states = play(0.0, 0.8, _along(0.0, [0.8] * STEPS))
    heading = math.atan2(states.obs[0, -2], states.obs[0, -3])  # the observed direction
    seen = play(math.pi / 2, 0.8, _along(0.0, [0.8] * STEPS)).obs
    np.testing.assert_allclose(seen[:, -1], 0.8, atol=1e-6)
    turned = heading + math.pi / 2
    expected = np.broadcast_to([math.cos(turned), math.sin(turned)], (STEPS, 2))
    np.testing.assert_allclose(seen[:, -3:-1], expected, atol=1e-4)


def test_amp_needs_a_clip_longer_than_its_history(env):
    config = MotionConfig(amp_frames=999)
    with pytest.raises(UserError, match="--motion.amp-frames 999: the longest clip has 61"):
        Heading(config, env.humanoid, env.library, use_amp=True)
