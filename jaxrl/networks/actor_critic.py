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
    # (params {"actor", "critic"}, obs) -> (actor's output, value); for networks without memory
    both: Callable[[PyTree, PyTree], tuple[Array, Array]]


def _torso(c: NetworkConfig, hidden: tuple[int, ...]) -> MLP:
    return MLP(hidden, c.activation, c.layer_norm, c.init, c.precision)


class _Actor(nn.Module):
    config: NetworkConfig
    param_size: int
    has_std: bool

    @nn.compact
    def __call__(self, x: Array, *, from_features: bool = False) -> Array:
        c = self.config
        x = x if from_features else _torso(c, c.hidden)(x)
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
    def __call__(self, x: Array, *, from_features: bool = False) -> Array:
        c = self.config
        x = x if from_features else _torso(c, c.critic_hidden)(x)
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
    critic = _Critic(config)
    alone = (
        _memoryless(actor, spec.obs, actor_keys),
        _memoryless(critic, spec.obs, critic_keys),
    )
    alike = config.hidden == config.critic_hidden and actor_keys == critic_keys
    both = _side_by_side(actor, critic, actor_keys) if alike else _one_by_one(*alone)
    return ActorCritic(*alone, distribution, both)


def _one_by_one(actor: Network, critic: Network):
    def both(params: PyTree, obs: PyTree) -> tuple[Array, Array]:
        output, _ = actor.apply(params["actor"], obs, ())
        value, _ = critic.apply(params["critic"], obs, ())
        return output, value

    return both


def _side_by_side(actor: _Actor, critic: _Critic, keys: tuple[str, ...]):
    """Return `both` for equal torsos: each pair of layers is one product, not two."""
    torso = _torso(actor.config, actor.config.hidden)

    def both(params: PyTree, obs: PyTree) -> tuple[Array, Array]:
        x = select_obs(obs, keys)
        torsos = [params[name]["params"]["MLP_0"] for name in ("actor", "critic")]
        pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), *torsos)
        seen_by_actor, seen_by_critic = jax.vmap(lambda p: torso.apply({"params": p}, x))(pair)
        output = actor.apply(params["actor"], seen_by_actor, from_features=True)
        value = critic.apply(params["critic"], seen_by_critic, from_features=True)
        return output, value  # type: ignore[return-value]

    return both
