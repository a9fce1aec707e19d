"""The heading task: rewards, observations and success."""

import dataclasses
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


@pytest.fixture(scope="module")
def steered(env):
    """Commands change every second on average, between 1 and 3 m/s."""
    config = dataclasses.replace(env.config, command_every=1.0, speeds=(1.0, 3.0))
    heading = Heading(config, env.humanoid, env.library)
    heading.absolute_target = env.absolute_target

    def episode(key, obey):
        def step(state, _):
            speed, way = state.info["speed"], state.info["direction"]
            velocity = obey * speed * jnp.stack([jnp.cos(way), jnp.sin(way), 0.0])
            after = heading.step(state, jnp.zeros(heading.action_size).at[:3].set(velocity))
            return typed_like(after, state), after

        return jax.lax.scan(step, strong(heading.reset(key)), length=300)[1]

    return in_physics(jax.jit(episode))


def test_commands_change_and_are_observed_before_they_count(steered):
    states = steered(jax.random.PRNGKey(0), 1.0)
    command, seen = np.asarray(states.metrics["command"]), np.asarray(states.obs[:, -1])
    np.testing.assert_allclose(seen[:-1], command[1:], atol=1e-6)
    np.testing.assert_allclose(states.metrics["speed"], command, atol=1e-4)
    np.testing.assert_allclose(states.reward, 1.0, atol=1e-4)
    changes = np.flatnonzero(np.diff(command))
    assert 4 <= len(changes) <= 17  # of ten on average
    assert command.min() >= 1.0 and command.max() <= 3.0 and np.ptp(command) > 0.5
    age = np.asarray(states.info["age"])
    np.testing.assert_allclose(age[changes], 0.0)
    np.testing.assert_allclose(age[changes[:-1] + 1], 1 / 30, rtol=1e-4)


def test_success_counts_each_command_after_its_first_seconds(steered):
    """Who is 15 % slow succeeds, who is 25 % slow does not, over all commands together."""
    for obey, success in ((0.85, True), (0.75, False)):
        states = steered(jax.random.PRNGKey(1), obey)
        expected = np.asarray(states.info["expected"])
        command, age = (np.asarray(x) for x in (states.metrics["command"], states.info["age"]))
        before = np.concatenate([[0.0], age[:-1]])  # at the beginning of each step
        counts = before >= 2.0
        assert 0 < counts.sum() < 200
        np.testing.assert_allclose(expected, np.cumsum(counts * command / 30), rtol=1e-3)
        assert states.metrics["success"][-1] == success


def test_amp_needs_a_clip_longer_than_its_history(env):
    config = MotionConfig(amp_frames=999)
    with pytest.raises(UserError, match="--motion.amp-frames 999: the longest clip has 61"):
        Heading(config, env.humanoid, env.library, use_amp=True)
