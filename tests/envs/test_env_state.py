"""What is carried of an environment's state, and that nothing else is missed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs import base

from jaxrl import errors
from jaxrl.envs import registry
from jaxrl.envs.env_state import LazyEnv, physics
from jaxrl.envs.vector_env import VectorEnv


class Hidden(base.Env):
    """A state of which a step reads `clock`, `far` and `near`, and writes two leaves for show.

    near is seen in the next observation, far reaches it a step later: that is found only by
    asking twice what a step reads. `own` is read, but by itself alone.
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


def test_only_what_later_steps_read_is_carried():
    env = VectorEnv(Hidden(), num_envs=3, episode_length=10)
    state = env.reset(jax.random.key(0))
    inside = env.brax_state(state.packed).pipeline_state
    # In the order of Brax's state: clock, far, near, not own, not shown, reward, done.
    assert env.template.kept_leaves == (0, 1, 2, 5, 6) and len(state.packed.rest) == 5
    assert inside["far"].all() and inside["shown"].shape == (3, 7)


def test_physics_goes_on_as_if_everything_were_carried():
    # MuJoCo's state has 108 leaves here, 13 of which a step reads.
    inner = LazyEnv(lambda: registry.make("inverted_pendulum", "mjx"))
    env = VectorEnv(inner, num_envs=4, episode_length=1000)
    actions = jnp.sin(jnp.arange(20.0))[:, None, None] * jnp.ones((1, 4, 1))

    @jax.jit
    def both(key):
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

    obs, true_obs, reward, true_reward = jax.device_get(both(jax.random.key(3)))
    assert len(env.template.kept_leaves) < 20
    np.testing.assert_allclose(obs, true_obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reward, true_reward)
    assert np.abs(obs[-1] - obs[0]).max() > 0.01


class Careless(base.Env):
    """Give something else than it should, at the start, later, or as a time limit."""

    observation_size, action_size, backend = 1, 1, "jax"

    def __init__(self, first=(), later=(), **said):
        self.first, self.later = dict(first), dict(later)
        vars(self).update(said)

    def reset(self, rng):
        zero = jnp.zeros(())
        return base.State(None, jnp.zeros(1), zero, zero, {"a": zero}).replace(**self.first)

    def step(self, state, action):
        return state.replace(**self.later)


@pytest.mark.parametrize(
    "env, complaint",
    [
        (Careless(later={"metrics": {"a": 0.0, "b": 1.0}}), r"`step` returns `metrics\['b'\]`"),
        (Careless(later={"metrics": {}}), r"`reset` returns `metrics\['a'\]` but `step` does not"),
        (Careless(later={"info": {"x": 1.0}}), r"`step` returns `info\['x'\]`"),
        (Careless(later={"obs": jnp.zeros(3)}), r"`obs` of the shape \(1,\), its step \(3,\)"),
        (Careless(later={"reward": jnp.zeros(1)}), r"`reward` of the shape \(\), its step \(1,\)"),
        (Careless({"reward": jnp.zeros(1)}), r"`reward` must have the shape \(\), not \(1,\)"),
        (Careless({"done": jnp.zeros(2)}), r"`done` must have the shape \(\), not \(2,\)"),
        (Careless({"metrics": {"a": jnp.zeros(3)}}), r"`metrics\['a'\]` must have the shape \(\)"),
        (Careless({"obs": jnp.zeros(())}), r"`obs` must be a vector, or an image.*float32\[\]"),
        (Careless({"obs": jnp.zeros((3, 3))}), r"`obs` must be a vector.*not float32\[3, 3\]"),
        (Careless({"obs": jnp.zeros((9, 9, 3))}), "`obs` must be a vector, or an image, uint8"),
        (Careless({"obs": {"privileged_state": jnp.zeros(3)}}), "no part for the actor"),
        (Careless(token_sizes=(4, 4)), r"`obs` must be tokens with 2 features each.*float32\[1\]"),
        (
            Careless({"obs": jnp.zeros((5, 3), jnp.uint8)}, token_sizes=(4, 4)),
            r"`obs` must be tokens with 2 features each.*not uint8\[5, 3\]",
        ),
        (Careless(num_actions=0), "`num_actions` must be an integer of at least 1, not 0"),
        (Careless(num_agents=2), r"`reward` must have the shape \(2,\)"),
        (
            Careless({"reward": jnp.zeros(2), "obs": {"x": jnp.zeros(3)}}, num_agents=2),
            r"`obs\['x'\]` must be an axis for its 2 agents, then a vector",
        ),
        (Careless(episode_length=0), "`episode_length` must be an integer of at least 1"),
        (Careless(episode_length=None), "`episode_length` must be an integer of at least 1"),
    ],
)
def test_what_does_not_fit_is_named(env, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        _ = VectorEnv(env, num_envs=2, episode_length=5).template


def test_a_step_as_gymnasium_has_it_is_refused():
    env = Careless()
    env.step = lambda state, action: (state.obs, 0.0, False, {})
    with pytest.raises(errors.UserError, match="step returns a tuple, not a State"):
        _ = VectorEnv(env, num_envs=2, episode_length=5).template
