"""Twin critics Q(s, a), computed together; and networks that guess a reward from (s, a, s')."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic
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
    def __call__(self, x: Array) -> Array:
        c = self.config
        x = MLP(c.critic_hidden, c.activation, self.layer_norm, c.init, c.precision)(x)
        x = nn.Dense(self.width, kernel_init=kernel_init(c.init, 1.0), name="head")(x)
        return x[..., 0] if self.width == 1 else x


def _as_vector(spec: EnvSpec, action: Array) -> Array:
    """Return an action as a network reads it: choices become zeros and a one."""
    return jax.nn.one_hot(action, spec.action.size) if spec.action.discrete else action


def _example(spec: EnvSpec) -> tuple[PyTree, Array]:
    obs = jax.tree.map(lambda s: jnp.zeros((1, *s.shape), s.dtype), spec.obs)
    if spec.action.discrete:
        return obs, jnp.zeros(1, jnp.int32)
    return obs, jnp.zeros((1, spec.action.size), jnp.float32)


def build(spec: EnvSpec, config: NetworkConfig, *, layer_norm: bool, atoms: int = 1) -> Critic:
    """Build two critics that fit an environment; they see what a critic may see."""
    tower = _Tower(config, layer_norm, atoms)
    view = actor_critic.viewer(spec, actor_critic.observed_keys(spec.obs)[1])

    def join(obs: PyTree, action: Array) -> Array:
        return jnp.concatenate([view(obs), _as_vector(spec, action)], axis=-1)

    def init(key: Key) -> PyTree:
        example = join(*_example(spec))
        return jax.vmap(lambda k: tower.init(k, example))(jax.random.split(key, TWINS))

    def apply(params: PyTree, obs: PyTree, action: Array) -> Array:
        x = join(obs, action)
        return jax.vmap(lambda p: tower.apply(p, x))(params)  # type: ignore[return-value]

    return Critic(init, apply)


def build_reward(spec: EnvSpec, config: NetworkConfig) -> RewardNetwork:
    """Build a network that guesses a step's reward from (s, a, s − s')."""
    tower = _Tower(config, layer_norm=False, width=1)
    view = actor_critic.viewer(spec, actor_critic.observed_keys(spec.obs)[1])

    def join(obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        before, after = view(obs), view(next_obs)
        return jnp.concatenate([before, _as_vector(spec, action), before - after], axis=-1)

    def init(key: Key) -> PyTree:
        obs, action = _example(spec)
        return tower.init(key, join(obs, action, obs))

    def apply(params: PyTree, obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        return tower.apply(params, join(obs, action, next_obs))  # type: ignore[return-value]

    return RewardNetwork(init, apply)
