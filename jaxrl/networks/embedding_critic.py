"""A critic Q(s, a) with an embedding from which it also predicts what the step leads to.

    (s, a) -> layers -> embedding -> layers -> logits of the value's distribution
                                  -> layers -> reward, and the embedding of the next (s, a)

Predicting the next embedding keeps in it what matters for values further ahead.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.learning import td
from jaxrl.networks import actor_critic, cnn
from jaxrl.networks.mlp import ACTIVATIONS, MLP, kernel_init
from jaxrl.networks.q_network import critic_obs, example_action
from jaxrl.types import Array, EnvSpec, Key, PyTree

_LEAST = 1e-6  # of the first probabilities: the logarithm of 0 has no gradient


class CriticOutput(NamedTuple):
    """What the critic says of an observation and an action."""

    logits: Array  # of the value's distribution, [..., atoms]
    embedding: Array
    next_embedding: Array  # predicted
    reward: Array  # predicted


class EmbeddingCritic(NamedTuple):
    """init(key) -> params;  apply(params, obs, action) -> CriticOutput."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array], CriticOutput]


class _EmbeddingCritic(nn.Module):
    config: NetworkConfig
    support: tuple[float, float, int]  # lowest and highest value, number of atoms

    @nn.compact
    def __call__(self, obs: Array | cnn.ImageObs, action: Array) -> CriticOutput:
        c = self.config
        *before, last = c.critic_hidden
        x = cnn.encode(obs)
        x = jnp.concatenate([x, action], axis=-1)
        embedding = self._layers(tuple(before), "encoder")(x)
        embedding = nn.Dense(last, kernel_init=kernel_init(c.init), name="embedding")(embedding)
        x = ACTIVATIONS[c.activation](embedding)
        value, prediction = (self._layers((last,), name)(x) for name in ("value", "prediction"))
        head = kernel_init(c.init, 1.0)
        logits = nn.Dense(
            self.support[2], kernel_init=head, bias_init=self._first_logits, name="head"
        )(value)
        predicted = nn.Dense(last + 1, kernel_init=head, name="prediction_head")(prediction)
        return CriticOutput(logits, embedding, predicted[..., 1:], predicted[..., 0])

    def _layers(self, widths: tuple[int, ...], name: str) -> MLP:
        c = self.config
        return MLP(widths, c.activation, c.norm, c.init, c.precision, name=name)

    def _first_logits(self, key: Key, shape: tuple[int, ...], dtype: str) -> Array:
        """Return logits with mean 0: else the first values are the middle of the support."""
        del key, shape
        zero = td.hl_gauss(jnp.zeros(()), td.support(*self.support))
        return jnp.log(zero + _LEAST).astype(dtype)


def build(
    spec: EnvSpec, config: NetworkConfig, support: tuple[float, float, int]
) -> EmbeddingCritic:
    """Build a critic for an environment, with privileged observations if there are any."""
    module, read = _EmbeddingCritic(config, support), critic_obs(spec)

    def init(key: Key) -> PyTree:
        return module.init(key, read(actor_critic.example_obs(spec)), example_action(spec))

    def apply(params: PyTree, obs: PyTree, action: Array) -> CriticOutput:
        return module.apply(params, read(obs), action)  # type: ignore[return-value]

    return EmbeddingCritic(init, apply)
