"""The actor and the critic of an environment, as records of pure functions."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.learning import distributions
from jaxrl.learning.distributions import Distribution
from jaxrl.networks.mlp import MLP, kernel_init
from jaxrl.types import Array, EnvSpec, Key, PyTree

PRIVILEGED = "privileged_state"


class Network(NamedTuple):
    """init(key) -> params;  apply(params, obs, carry) -> (output, carry)."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, PyTree], tuple[Array, PyTree]]
    initial_carry: Callable[[int], PyTree]


class ActorCritic(NamedTuple):
    """Who acts, who judges, and how the actor's output is read."""

    actor: Network
    critic: Network
    distribution: Distribution


class _Actor(nn.Module):
    config: NetworkConfig
    param_size: int
    has_std: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        c = self.config
        x = MLP(c.hidden, c.activation, c.layer_norm, c.init, c.precision)(x)
        size = self.param_size // 2 if self.has_std else self.param_size
        # A small last layer starts the policy near uniform, whatever the observation.
        head = kernel_init(c.init, gain=0.01)
        out = nn.Dense(size, kernel_init=head, name="head")(x)
        if not self.has_std:
            return out
        if c.state_dependent_std:
            raw = nn.Dense(size, kernel_init=head, name="std_head")(x)
            # softplus(raw + offset) is init_std at raw = 0.
            offset = jnp.log(jnp.expm1(c.init_std))
            log_std = jnp.log(nn.softplus(raw + offset) + c.min_std)
        else:
            free = self.param("log_std", nn.initializers.constant(jnp.log(c.init_std)), (size,))
            log_std = jnp.broadcast_to(free.reshape((1,) * (out.ndim - 1) + (size,)), out.shape)
            log_std = jnp.maximum(log_std, jnp.log(c.min_std))
        return jnp.concatenate([out, log_std], axis=-1)


class _Critic(nn.Module):
    config: NetworkConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        c = self.config
        x = MLP(c.critic_hidden, c.activation, c.layer_norm, c.init, c.precision)(x)
        return jnp.squeeze(nn.Dense(1, kernel_init=kernel_init(c.init, 1.0), name="head")(x), -1)


def select_obs(obs: PyTree, keys: tuple[str, ...]) -> Array:
    """Return the observation as one vector; of a dict, the parts named by `keys`, joined."""
    if not isinstance(obs, dict):
        return obs
    return jnp.concatenate([obs[key] for key in keys], axis=-1)


def observed_keys(spec_obs: PyTree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what actor and critic see: the critic's eye is privileged where there is such a part.

    By the convention of MuJoCo Playground, `privileged_state` already contains what the critic
    needs; every other part belongs to both.
    """
    if not isinstance(spec_obs, dict):
        return (), ()
    shared = tuple(key for key in sorted(spec_obs) if key != PRIVILEGED)
    return shared, ((PRIVILEGED,) if PRIVILEGED in spec_obs else shared)


def _memoryless(module: nn.Module, spec_obs: PyTree, keys: tuple[str, ...]) -> Network:
    def init(key: Key) -> PyTree:
        example = jax.tree.map(lambda s: jnp.zeros((1, *s.shape), jnp.float32), spec_obs)
        return module.init(key, select_obs(example, keys))

    def apply(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        return module.apply(params, select_obs(obs, keys)), carry  # type: ignore[return-value]

    return Network(init, apply, initial_carry=lambda number: ())


def build(spec: EnvSpec, config: NetworkConfig) -> ActorCritic:
    """Build networks that fit an environment's observations and actions."""
    kind = "categorical" if spec.action.discrete else config.distribution
    distribution = distributions.DISTRIBUTIONS[kind](spec.action.size)
    actor_keys, critic_keys = observed_keys(spec.obs)
    actor = _Actor(config, distribution.param_size, has_std=kind != "categorical")
    return ActorCritic(
        actor=_memoryless(actor, spec.obs, actor_keys),
        critic=_memoryless(_Critic(config), spec.obs, critic_keys),
        distribution=distribution,
    )
