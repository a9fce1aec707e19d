"""Twin critics Q(s, a), computed together; and networks that guess a reward from (s, a, s')."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic, pixels
from jaxrl.networks.mlp import MLP, kernel_init
from jaxrl.types import Array, EnvSpec, Key, PyTree

TWINS = 2


class Critic(NamedTuple):
    """init(key) -> params;  apply(params, obs, action) -> [2, ...], or [2, ..., atoms]."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array], Array]


class RewardNetwork(NamedTuple):
    """init(key) -> params;  apply(params, obs, action, next_obs) -> [...]."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array, PyTree], Array]


class _Tower(nn.Module):
    """Layers and a linear end of `width` numbers; the last axis is dropped if there is but one."""

    config: NetworkConfig
    layer_norm: bool
    width: int

    @nn.compact
    def __call__(self, seen: Any, beside: Array) -> Array:
        """Map what is seen, with numbers beside it, to [..., width]."""
        c = self.config
        x = pixels.Pixels()(seen) if isinstance(seen, pixels.Seen) else seen
        x = jnp.concatenate([x, beside], axis=-1)
        x = MLP(c.critic_hidden, c.activation, self.layer_norm, c.init, c.precision)(x)
        x = nn.Dense(self.width, kernel_init=kernel_init(c.init, 1.0), name="head")(x)
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


def build_reward(spec: EnvSpec, config: NetworkConfig) -> RewardNetwork:
    """Build a network that guesses a step's reward from (s, a, s − s')."""
    tower, view = _Tower(config, layer_norm=False, width=1), _viewer(spec)

    def look(obs: PyTree, next_obs: PyTree) -> Any:
        before, after = view(obs), view(next_obs)
        if isinstance(before, pixels.Seen):
            return pixels.change(before, after)
        return pixels.with_change(before, after)

    def init(key: Key) -> PyTree:
        obs = actor_critic.example_obs(spec)
        return tower.init(key, look(obs, obs), _as_vector(spec, _example_action(spec)))

    def apply(params: PyTree, obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        return tower.apply(params, look(obs, next_obs), _as_vector(spec, action))  # type: ignore[return-value]

    return RewardNetwork(init, apply)
