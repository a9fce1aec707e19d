"""Twin critics Q(s, a), computed together; and networks that guess a reward from (s, a, s')."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.learning import reward_regression as linear_fit
from jaxrl.networks import actor_critic, cnn
from jaxrl.networks.mlp import MLP, kernel_init
from jaxrl.types import Array, EnvSpec, Key, PyTree

TWINS = 2


class Critic(NamedTuple):
    """init(key) -> params;  apply(params, obs, action) -> [2, ...], or [2, ..., atoms]."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array], Array]


class RewardNetwork(NamedTuple):
    """init(key) -> params;  apply(params, obs, action, next_obs) -> [...].

    absorb(params, obs, action, next_obs, length, returned) -> params takes in whole episodes,
    [episodes, T, ...], without a gradient; None where there is nothing to solve for.
    """

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array, PyTree], Array]
    absorb: Callable[..., PyTree] | None = None


class _Tower(nn.Module):
    """Layers and a linear end of `width` numbers; the last axis is dropped if there is but one."""

    config: NetworkConfig
    layer_norm: bool
    width: int
    end_scale: float = 1.0  # of its first guesses

    @nn.compact
    def __call__(self, seen: Any, beside: Array) -> Array:
        """Map what is seen, with numbers beside it, to [..., width]."""
        c = self.config
        x = cnn.Pixels()(seen) if isinstance(seen, cnn.Seen) else seen
        x = jnp.concatenate([x, beside], axis=-1)
        x = MLP(c.critic_hidden, c.activation, self.layer_norm, c.init, c.precision)(x)
        x = nn.Dense(self.width, kernel_init=kernel_init(c.init, self.end_scale), name="head")(x)
        return x[..., 0] if self.width == 1 else x


def _as_vector(spec: EnvSpec, action: Array) -> Array:
    """Return an action as a network reads it: choices become zeros and a one."""
    return jax.nn.one_hot(action, spec.action.size) if spec.action.discrete else action


def _example_action(spec: EnvSpec) -> Array:
    if spec.action.discrete:
        return jnp.zeros(1, jnp.int32)
    return jnp.zeros((1, spec.action.size), jnp.float32)


def _viewer(spec: EnvSpec) -> Callable[[PyTree], Any]:
    return actor_critic.viewer(spec, actor_critic.observed_keys(spec.obs)[1])


def build(spec: EnvSpec, config: NetworkConfig, *, layer_norm: bool, atoms: int = 1) -> Critic:
    """Build two critics that fit an environment; they see what a critic may see."""
    tower, view = _Tower(config, layer_norm, atoms), _viewer(spec)

    def init(key: Key) -> PyTree:
        seen, action = view(actor_critic.example_obs(spec)), _as_vector(spec, _example_action(spec))
        return jax.vmap(lambda k: tower.init(k, seen, action))(jax.random.split(key, TWINS))

    def apply(params: PyTree, obs: PyTree, action: Array) -> Array:
        seen, beside = view(obs), _as_vector(spec, action)
        return jax.vmap(lambda p: tower.apply(p, seen, beside))(params)  # type: ignore[return-value]

    return Critic(init, apply)


def build_reward(spec: EnvSpec, config: NetworkConfig, *, linear: bool = False) -> RewardNetwork:
    """Build a network that guesses a step's reward from (s, a, s − s')."""
    # What a network says before it has learnt would stay in the sum with a solved guess for long.
    scale = 0.01 if linear else 1.0
    tower, view = _Tower(config, layer_norm=False, width=1, end_scale=scale), _viewer(spec)

    def look(obs: PyTree, next_obs: PyTree) -> Any:
        before, after = view(obs), view(next_obs)
        if isinstance(before, cnn.Seen):
            return cnn.change(before, after)
        return cnn.with_change(before, after)

    def init(key: Key) -> PyTree:
        obs = actor_critic.example_obs(spec)
        return tower.init(key, look(obs, obs), _as_vector(spec, _example_action(spec)))

    def apply(params: PyTree, obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        return tower.apply(params, look(obs, next_obs), _as_vector(spec, action))  # type: ignore[return-value]

    def features(obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        seen = jnp.concatenate([look(obs, next_obs), _as_vector(spec, action)], axis=-1)
        return jnp.concatenate([seen, jnp.square(seen)], axis=-1)

    network = RewardNetwork(init, apply)
    return _with_linear(spec, network, features) if linear else network


def _with_linear(
    spec: EnvSpec, rest: RewardNetwork, features: Callable[..., Array]
) -> RewardNetwork:
    """Add a linear guess, solved for and not learnt by gradients; the network adds the rest."""

    def init(key: Key) -> PyTree:
        obs = actor_critic.example_obs(spec)
        size = features(obs, _example_action(spec), obs).shape[-1]
        return {"rest": rest.init(key), "fit": linear_fit.init(size)}

    def apply(params: PyTree, obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        fit = jax.lax.stop_gradient(params["fit"])
        solved = linear_fit.guess(fit, features(obs, action, next_obs))
        return solved + rest.apply(params["rest"], obs, action, next_obs)

    def absorb(
        params: PyTree, obs: PyTree, action: Array, next_obs: PyTree, length: Array, returned: Array
    ) -> PyTree:
        seen = features(obs, action, next_obs)
        return params | {"fit": linear_fit.absorb(params["fit"], seen, length, returned)}

    return RewardNetwork(init, apply, absorb)
