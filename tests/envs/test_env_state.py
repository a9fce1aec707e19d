"""Only the leaves of an environment's state that later steps read are carried."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs import base

from jaxrl import errors
from jaxrl.envs import registry
from jaxrl.envs.env_state import LazyEnv
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.physics.precision import physics


class Hidden(base.Env):
    """A step reads `clock`, `far` and `near`, and writes two leaves that nothing else reads.

    `near` enters the next observation. `far` enters it one step later, so finding it takes a
    second pass over the dependencies. `own` is read only to compute itself.
    """

    observation_size, action_size, backend = 1, 1, "jax"

    def reset(self, rng):
        inside = {name: jnp.zeros(()) for name in ("clock", "far", "near", "own")}
        inside |= {"far": jax.random.uniform(rng), "shown": jnp.zeros(7)}
        return base.State(inside, jnp.zeros(1), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        old = state.pipeline_state
        new = {
            "clock": old["clock"] + 1,
            "far": old["far"] * 0.5 + action[0],
            "near": old["far"] + 1,
            "own": old["own"] * 2 + 1,
            "shown": jnp.full(7, old["near"]),
        }
        return state.replace(pipeline_state=new, obs=old["near"][None], reward=old["clock"])


def test_only_leaves_read_by_later_steps_are_carried():
    env = VectorEnv(Hidden(), num_envs=3, episode_length=10)
    state = env.reset(jax.random.key(0))
    inside = env.brax_state(state.packed).pipeline_state
    # In the order of Brax's state: clock, far, near, reward and done, without own and shown.
    assert env.template.carried_leaves == (0, 1, 2, 5, 6) and len(state.packed.rest) == 5
    assert inside["far"].all() and inside["shown"].shape == (3, 7)


def test_packed_state_steps_like_the_full_state():
    # MuJoCo's state has 108 leaves here, 13 of which a step reads.
    inner = LazyEnv(lambda: registry.make("inverted_pendulum", "mjx"))
    env = VectorEnv(inner, num_envs=4, episode_length=1000)
    actions = jnp.sin(jnp.arange(20.0))[:, None, None] * jnp.ones((1, 4, 1))

    @jax.jit
    def rollouts(key):
        start = env.reset(key, stagger=False)
        keys = jax.random.key_data(jax.random.split(jax.random.split(key)[0], 4))
        with physics():
            whole = jax.vmap(inner.reset)(keys)

        def step(states, action):
            carried, whole = states
            carried, outcome = env.advance(carried, action)
            with physics():
                whole = jax.vmap(inner.step)(whole, action)
            return (carried, whole), (outcome.next_obs, whole.obs, outcome.reward, whole.reward)

        return jax.lax.scan(step, (start, whole), actions)[1]

    obs, true_obs, reward, true_reward = jax.device_get(rollouts(jax.random.key(3)))
    assert len(env.template.carried_leaves) < 20
    np.testing.assert_allclose(obs, true_obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reward, true_reward)
    assert np.abs(obs[-1] - obs[0]).max() > 0.01


class FaultyEnv(base.Env):
    """Return wrong values from reset or step, or declare wrong attributes."""

    observation_size, action_size, backend = 1, 1, "jax"

    def __init__(self, at_reset=(), at_step=(), **attributes):
        self.at_reset, self.at_step = dict(at_reset), dict(at_step)
        vars(self).update(attributes)

    def reset(self, rng):
        zero = jnp.zeros(())
        return base.State(None, jnp.zeros(1), zero, zero, {"a": zero}).replace(**self.at_reset)

    def step(self, state, action):
        return state.replace(**self.at_step)


@pytest.mark.parametrize(
    "env, complaint",
    [
        (FaultyEnv(at_step={"metrics": {"a": 0.0, "b": 1.0}}), r"`step` returns `metrics\['b'\]`"),
        (
            FaultyEnv(at_step={"metrics": {}}),
            r"`reset` returns `metrics\['a'\]` but `step` does not",
        ),
        (FaultyEnv(at_step={"info": {"x": 1.0}}), r"`step` returns `info\['x'\]`"),
        (FaultyEnv(at_step={"obs": jnp.zeros(3)}), r"`obs` of the shape \(1,\), its step \(3,\)"),
        (
            FaultyEnv(at_step={"reward": jnp.zeros(1)}),
            r"`reward` of the shape \(\), its step \(1,\)",
        ),
        (FaultyEnv({"reward": jnp.zeros(1)}), r"`reward` must have the shape \(\), not \(1,\)"),
        (FaultyEnv({"done": jnp.zeros(2)}), r"`done` must have the shape \(\), not \(2,\)"),
        (FaultyEnv({"metrics": {"a": jnp.zeros(3)}}), r"`metrics\['a'\]` must have the shape \(\)"),
        (FaultyEnv({"obs": jnp.zeros(())}), r"`obs` must be a vector, or an image.*float32\[\]"),
        (FaultyEnv({"obs": jnp.zeros((3, 3))}), r"`obs` must be a vector.*not float32\[3, 3\]"),
        (FaultyEnv({"obs": jnp.zeros((9, 9, 3))}), "`obs` must be a vector, or an image, uint8"),
        (FaultyEnv({"obs": {"privileged_state": jnp.zeros(3)}}), "no part for the actor"),
        (FaultyEnv(token_sizes=(4, 4)), r"`obs` must be tokens with 2 features each.*float32\[1\]"),
        (
            FaultyEnv({"obs": jnp.zeros((5, 3), jnp.uint8)}, token_sizes=(4, 4)),
            r"`obs` must be tokens with 2 features each.*not uint8\[5, 3\]",
        ),
        (FaultyEnv(num_actions=0), "`num_actions` must be an integer of at least 1, not 0"),
        (FaultyEnv(num_agents=2), r"`reward` must have the shape \(2,\)"),
        (
            FaultyEnv({"reward": jnp.zeros(2), "obs": {"x": jnp.zeros(3)}}, num_agents=2),
            r"`obs\['x'\]` must be an axis for its 2 agents, then a vector",
        ),
        (FaultyEnv(episode_length=0), "`episode_length` must be an integer of at least 1"),
        (FaultyEnv(episode_length=None), "`episode_length` must be an integer of at least 1"),
    ],
)
def test_invalid_env_outputs_are_reported_by_name(env, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        _ = VectorEnv(env, num_envs=2, episode_length=5).template


def test_gymnasium_style_step_is_rejected():
    env = FaultyEnv()
    env.step = lambda state, action: (state.obs, 0.0, False, {})
    with pytest.raises(errors.UserError, match="step returns a tuple, not a State"):
        _ = VectorEnv(env, num_envs=2, episode_length=5).template


class Misdeclared(Hidden):
    observation_size = 7


class Branching(Hidden):
    def step(self, state, action):
        if action[0] > 0:  # needs a value
            return state
        return super().step(state, action)


class Counting(Hidden):
    def reset(self, rng):
        return super().reset(np.asarray(rng))  # needs a value


def test_wrong_observation_size_is_named():
    env = VectorEnv(LazyEnv(Misdeclared), num_envs=3, episode_length=10)
    with pytest.raises(errors.UserError, match=r"`observation_size` is 7.* of size 1: make"):
        _ = env.template


@pytest.mark.parametrize("kind", [Branching, Counting])
def test_python_control_flow_on_traced_values_is_located(kind):
    env = VectorEnv(LazyEnv(kind), num_envs=3, episode_length=10)
    lines = Path(__file__).read_text().splitlines()
    name = {Branching: "if action[0] > 0:", Counting: "return super().reset(np"}[kind]
    number = next(i for i, line in enumerate(lines, 1) if line.strip().startswith(name))
    with pytest.raises(errors.UserError, match=rf"test_env_state.py:{number}: `.*needs the value"):
        _ = env.template
