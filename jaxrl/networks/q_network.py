"""Twin critics Q(s, a), computed together."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic, cnn
from jaxrl.networks.mlp import BATCH_STATS, MLP, kernel_init
from jaxrl.types import Array, EnvSpec, Key, PyTree

NUM_CRITICS = 2


class Critic(NamedTuple):
    """init(key) -> params;  apply(params, obs, action) -> [2, ...], or [2, ..., atoms].

    BatchNorm normalises by the statistics of these inputs, or by those of the inputs with which
    `with_stats(params, obs, action) -> params` has been called.
    """

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array], Array]
    with_stats: Callable[[PyTree, PyTree, Array], PyTree] = lambda params, obs, action: params


class StateActionMLP(nn.Module):
    """An MLP of an observation and an action; the last axis is dropped if it has size 1."""

    config: NetworkConfig
    norm: str
    outputs: int
    head_gain: float = 1.0

    @nn.compact
    def __call__(self, obs: Array | cnn.ImageObs, action: Array) -> Array:
        """Map an observation and an action vector to [..., outputs]."""
        c = self.config
        x = cnn.encode(obs)
        x = jnp.concatenate([x, action], axis=-1)
        layers = c.critic_hidden, c.activation, self.norm, c.init, c.precision, c.residual_blocks
        x = MLP(*layers)(x)
        x = nn.Dense(self.outputs, kernel_init=kernel_init(c.init, self.head_gain), name="head")(x)
        return x[..., 0] if self.outputs == 1 else x


def action_vector(spec: EnvSpec, action: Array) -> Array:
    """Return an action as a network reads it: discrete ones are one-hot."""
    return jax.nn.one_hot(action, spec.action.size) if spec.action.discrete else action


def example_action(spec: EnvSpec) -> Array:
    """Return a batch of one action of zeros."""
    if spec.action.discrete:
        return jnp.zeros(1, jnp.int32)
    return jnp.zeros((1, spec.action.size), jnp.float32)


def critic_obs(spec: EnvSpec) -> Callable[[PyTree], Array | cnn.ImageObs]:
    """Return the function from an observation to what a critic reads of it."""
    return actor_critic.obs_reader(spec, actor_critic.observed_keys(spec.obs)[1])


def build(spec: EnvSpec, config: NetworkConfig, *, norm: str = "layer", atoms: int = 1) -> Critic:
    """Build twin critics for an environment, with privileged observations if there are any."""
    module, read = StateActionMLP(config, norm, atoms), critic_obs(spec)

    def init(key: Key) -> PyTree:
        obs, action = (
            read(actor_critic.example_obs(spec)),
            action_vector(spec, example_action(spec)),
        )
        first = jax.vmap(lambda k: module.init(k, obs, action))(jax.random.split(key, NUM_CRITICS))
        return {"params": first["params"]}  # statistics are never stored

    def run(params: PyTree, obs: PyTree, action: Array) -> tuple[Array, PyTree]:
        inputs = read(obs), action_vector(spec, action)
        return jax.vmap(lambda p: module.apply(p, *inputs, mutable=[BATCH_STATS]))(params)  # type: ignore[return-value]

    def apply(params: PyTree, obs: PyTree, action: Array) -> Array:
        return run(params, obs, action)[0]

    def with_stats(params: PyTree, obs: PyTree, action: Array) -> PyTree:
        return params | run(params, obs, action)[1]

    return Critic(init, apply, with_stats)
