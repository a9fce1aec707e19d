"""The actor and the critic of an environment, as records of pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.learning import distributions
from jaxrl.learning.distributions import Distribution
from jaxrl.networks.memory import Memory, initial_carry
from jaxrl.networks.mlp import MLP, kernel_init
from jaxrl.types import Array, EnvSpec, Key, PyTree

PRIVILEGED = "privileged_state"


class Network(NamedTuple):
    """init(key) -> params;  apply(params, obs, carry) -> (output, carry)."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, PyTree], tuple[Array, PyTree]]
    initial_carry: Callable[[int], PyTree]


class ActorCritic(NamedTuple):
    """Who acts, who judges, and how the actor's output is read.

    Segments are time-major [T, N, ...]; `carry` is the memory before their first step, and
    `ended` [T, N] tells after which steps it is to be emptied. Without memory both are ().
    """

    actor: Network
    critic: Network
    distribution: Distribution
    # (params {"actor", "critic"}, obs, carry {"actor", "critic"}, ended) -> (output, value)
    both: Callable[[PyTree, PyTree, PyTree, PyTree], tuple[Array, Array]]
    # (critic's params, obs, next_obs, carry, ended) -> (value, value of next_obs, carry)
    judge: Callable[[PyTree, PyTree, PyTree, PyTree, PyTree], tuple[Array, Array, PyTree]]
    has_memory: bool


def _torso(c: NetworkConfig, hidden: tuple[int, ...]) -> MLP:
    return MLP(hidden, c.activation, c.layer_norm, c.init, c.precision)


def memory_of(c: NetworkConfig, part: str) -> str:
    """Return the kind of memory that "actor" or "critic" has."""
    return c.memory if c.memory_of in (part, "both") else "none"


class _Actor(nn.Module):
    config: NetworkConfig
    param_size: int
    has_std: bool

    @nn.compact
    def __call__(
        self, x: Array, carry: PyTree = (), ended: PyTree = None, *, from_features: bool = False
    ) -> tuple[Array, PyTree]:
        c = self.config
        x = x if from_features else _torso(c, c.hidden)(x)
        if memory_of(c, "actor") != "none":
            x, _, carry = Memory(c.memory, c.memory_size, name="memory")(x, carry, ended)
        size = self.param_size // 2 if self.has_std else self.param_size
        # A small last layer starts the policy near uniform, whatever the observation.
        head = kernel_init(c.init, gain=0.01)
        out = nn.Dense(size, kernel_init=head, name="head")(x)
        if not self.has_std:
            return out, carry
        if c.state_dependent_std:
            raw = nn.Dense(size, kernel_init=head, name="std_head")(x)
            # softplus(raw + offset) is init_std at raw = 0.
            offset = jnp.log(jnp.expm1(c.init_std))
            log_std = jnp.log(nn.softplus(raw + offset) + c.min_std)
        else:
            free = self.param("log_std", nn.initializers.constant(jnp.log(c.init_std)), (size,))
            log_std = jnp.broadcast_to(free.reshape((1,) * (out.ndim - 1) + (size,)), out.shape)
            log_std = jnp.maximum(log_std, jnp.log(c.min_std))
        return jnp.concatenate([out, log_std], axis=-1), carry


class _Critic(nn.Module):
    config: NetworkConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        carry: PyTree = (),
        ended: PyTree = None,
        next_x: Array | None = None,
        *,
        from_features: bool = False,
    ) -> tuple[Array, Array | None, PyTree]:
        """Return the values of x and (after x) of next_x, and the memory."""
        c = self.config
        torso = (lambda seen: seen) if from_features else _torso(c, c.critic_hidden)
        x, next_x = torso(x), None if next_x is None else torso(next_x)
        if memory_of(c, "critic") != "none":
            memory = Memory(c.memory, c.memory_size, name="memory")
            x, next_x, carry = memory(x, carry, ended, next_x)
        head = nn.Dense(1, kernel_init=kernel_init(c.init, 1.0), name="head")
        value, next_value = (None if seen is None else head(seen)[..., 0] for seen in (x, next_x))
        return value, next_value, carry  # type: ignore[return-value]


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


def _network(
    module: nn.Module, spec_obs: PyTree, keys: tuple[str, ...], kind: str, size: int
) -> Network:
    def init(key: Key) -> PyTree:
        example = jax.tree.map(lambda s: jnp.zeros((1, *s.shape), jnp.float32), spec_obs)
        return module.init(key, select_obs(example, keys), initial_carry(kind, size, 1))

    def apply(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        out, *_, carry = module.apply(params, select_obs(obs, keys), carry)
        return out, carry  # type: ignore[return-value]

    return Network(init, apply, initial_carry=lambda number: initial_carry(kind, size, number))


def build(spec: EnvSpec, config: NetworkConfig) -> ActorCritic:
    """Build networks that fit an environment's observations and actions."""
    kind = "categorical" if spec.action.discrete else config.distribution
    distribution = distributions.DISTRIBUTIONS[kind](spec.action.size)
    actor_keys, critic_keys = observed_keys(spec.obs)
    actor = _Actor(config, distribution.param_size, has_std=kind != "categorical")
    critic = _Critic(config)
    size, has_memory = config.memory_size, config.memory != "none"
    alone = (
        _network(actor, spec.obs, actor_keys, memory_of(config, "actor"), size),
        _network(critic, spec.obs, critic_keys, memory_of(config, "critic"), size),
    )
    alike = config.hidden == config.critic_hidden and actor_keys == critic_keys and not has_memory
    both = (
        _side_by_side(actor, critic, actor_keys)
        if alike
        else _one_by_one(actor, critic, actor_keys, critic_keys)
    )

    def judge(params: PyTree, obs: PyTree, next_obs: PyTree, carry: PyTree, ended: PyTree) -> Any:
        seen = select_obs(obs, critic_keys), select_obs(next_obs, critic_keys)
        return critic.apply(params, seen[0], carry, ended, seen[1])

    return ActorCritic(*alone, distribution, both, judge, has_memory)


def _one_by_one(actor: _Actor, critic: _Critic, actor_keys: tuple, critic_keys: tuple):
    def both(params: PyTree, obs: PyTree, carry: PyTree, ended: PyTree) -> tuple[Array, Array]:
        seen = select_obs(obs, actor_keys), select_obs(obs, critic_keys)
        output, _ = actor.apply(params["actor"], seen[0], carry["actor"], ended)
        value, *_ = critic.apply(params["critic"], seen[1], carry["critic"], ended)
        return output, value  # type: ignore[return-value]

    return both


def _side_by_side(actor: _Actor, critic: _Critic, keys: tuple[str, ...]):
    """Return `both` for equal torsos: each pair of layers is one product, not two."""
    torso = _torso(actor.config, actor.config.hidden)

    def both(params: PyTree, obs: PyTree, carry: PyTree, ended: PyTree) -> tuple[Array, Array]:
        x = select_obs(obs, keys)
        torsos = [params[name]["params"]["MLP_0"] for name in ("actor", "critic")]
        pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), *torsos)
        seen_by_actor, seen_by_critic = jax.vmap(lambda p: torso.apply({"params": p}, x))(pair)
        output, _ = actor.apply(params["actor"], seen_by_actor, from_features=True)
        value, *_ = critic.apply(params["critic"], seen_by_critic, from_features=True)
        return output, value  # type: ignore[return-value]

    return both
