"""Action distributions as records of pure functions over a flat parameter vector.

`sample` and `mode` return *raw* actions: for the squashed normal, before tanh. So log-probabilities
are exact even where tanh saturates. `to_env` maps raw actions to those of the environment.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key

LOG_2PI = 1.8378770664093453
INVALID = -1e9  # logit or Q value of an action that a mask forbids; finite, so that gradients are


class Distribution(NamedTuple):
    """A distribution over actions, parametrised by the outputs of a network."""

    param_size: int
    sample: Callable[[Array, Key], Array]
    mode: Callable[[Array], Array]
    log_prob: Callable[[Array, Array], Array]
    entropy: Callable[[Array, Any], Array]  # (params, noise [..., noise_size]), noise () if size 0
    mean_of_raw: Callable[[Array], Array]  # for the action-bound loss and plots of std
    std: Callable[[Array], Array]
    to_env: Callable[[Array], Array]
    kl: Callable[[Array, Array], Array]  # KL(p ‖ q) of two parameter vectors, exactly
    noise_size: int = 0  # standard normal samples that `entropy` needs
    kind: str = "normal"


def _split(params: Array) -> tuple[Array, Array]:
    mean, log_std = jnp.split(params, 2, axis=-1)
    return mean, log_std


def _normal_log_prob(params: Array, raw: Array) -> Array:
    """Σ_i −½ ((x_i − μ_i) / σ_i)² − log σ_i − ½ log 2π."""
    mean, log_std = _split(params)
    z = (raw - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * jnp.square(z) - log_std - 0.5 * LOG_2PI, axis=-1)


def _normal_entropy(params: Array, noise: Any) -> Array:
    del noise
    _, log_std = _split(params)
    return jnp.sum(log_std + 0.5 * (LOG_2PI + 1.0), axis=-1)


def _normal_kl(p: Array, q: Array) -> Array:
    """Σ_i log(σ_q / σ_p) + (σ_p² + (μ_p − μ_q)²) / 2σ_q² − ½; squashing both changes nothing."""
    (mean_p, log_p), (mean_q, log_q) = _split(p), _split(q)
    ratio = jnp.exp(2.0 * (log_p - log_q))
    gap = jnp.square((mean_p - mean_q) * jnp.exp(-log_q))
    return jnp.sum(log_q - log_p + 0.5 * (ratio + gap - 1.0), axis=-1)


def _normal_sample(params: Array, key: Key) -> Array:
    mean, log_std = _split(params)
    return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)


def log_det_tanh(raw: Array) -> Array:
    """Return log |d tanh(x) / dx| = 2 (log 2 − x − softplus(−2x)), stable for any x."""
    return 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))


def normal(size: int) -> Distribution:
    """Build a diagonal normal; the environment gets actions clipped to [-1, 1]."""
    return Distribution(
        param_size=2 * size,
        sample=_normal_sample,
        mode=lambda params: _split(params)[0],
        log_prob=_normal_log_prob,
        entropy=_normal_entropy,
        mean_of_raw=lambda params: _split(params)[0],
        std=lambda params: jnp.exp(_split(params)[1]),
        to_env=lambda raw: jnp.clip(raw, -1.0, 1.0),
        kl=_normal_kl,
    )


def tanh_normal(size: int) -> Distribution:
    """Build a diagonal normal squashed by tanh; its entropy is estimated from one sample."""

    def log_prob(params: Array, raw: Array) -> Array:
        return _normal_log_prob(params, raw) - jnp.sum(log_det_tanh(raw), axis=-1)

    def entropy(params: Array, noise: Array) -> Array:
        mean, log_std = _split(params)
        stretch = jnp.sum(log_det_tanh(mean + jnp.exp(log_std) * noise), axis=-1)
        return _normal_entropy(params, noise) + stretch

    return normal(size)._replace(
        log_prob=log_prob, entropy=entropy, to_env=jnp.tanh, noise_size=size, kind="tanh_normal"
    )


def categorical(size: int) -> Distribution:
    """Build a categorical distribution over `size` actions from logits."""

    def log_prob(logits: Array, action: Array) -> Array:
        chosen = jnp.expand_dims(action, -1)
        return jnp.squeeze(jnp.take_along_axis(jax.nn.log_softmax(logits), chosen, -1), -1)

    def entropy(logits: Array, noise: Any) -> Array:
        del noise
        log_p = jax.nn.log_softmax(logits)
        # A masked action has log_p = −inf and contributes nothing.
        return -jnp.sum(jnp.where(jnp.isfinite(log_p), jnp.exp(log_p) * log_p, 0.0), axis=-1)

    def kl(p: Array, q: Array) -> Array:
        log_p, log_q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
        return jnp.sum(jnp.where(jnp.isfinite(log_p), jnp.exp(log_p) * (log_p - log_q), 0.0), -1)

    return Distribution(
        param_size=size,
        sample=lambda logits, key: jax.random.categorical(key, logits),
        mode=lambda logits: jnp.argmax(logits, axis=-1),
        log_prob=log_prob,
        entropy=entropy,
        mean_of_raw=jnp.zeros_like,
        std=jnp.zeros_like,
        to_env=lambda action: action,
        kl=kl,
        kind="categorical",
    )


def noisy(size: int) -> Distribution:
    """Build a normal around tanh(x); the environment gets actions clipped to [-1, 1]."""

    def bounded(params: Array) -> Array:
        mean, log_std = _split(params)
        return jnp.concatenate([jnp.tanh(mean), log_std], axis=-1)

    plain = normal(size)
    return plain._replace(
        sample=lambda params, key: plain.sample(bounded(params), key),
        mode=lambda params: plain.mode(bounded(params)),
        log_prob=lambda params, raw: plain.log_prob(bounded(params), raw),
        mean_of_raw=lambda params: plain.mean_of_raw(bounded(params)),
        kl=lambda p, q: plain.kl(bounded(p), bounded(q)),
        kind="noisy",
    )


def greedy(size: int, *, masked: bool = False) -> Distribution:
    """Build the ε-greedy choice among `size` Q values; ε is the last parameter.

    If some may be `masked`, random actions are sampled from the valid ones.
    """

    def random(key: Key, values: Array) -> Array:
        if masked:
            return jax.random.categorical(key, jnp.where(values > 0.5 * INVALID, 0.0, -jnp.inf))
        return jax.random.randint(key, values.shape[:-1], 0, size)

    def sample(params: Array, key: Key) -> Array:
        key_which, key_random = jax.random.split(key)
        choice = jnp.argmax(params[..., :-1], axis=-1)
        other = random(key_random, params[..., :-1])
        return jnp.where(
            jax.random.uniform(key_which, choice.shape) < params[..., -1], other, choice
        )

    return categorical(size)._replace(
        param_size=size + 1,
        sample=sample,
        mode=lambda params: jnp.argmax(params[..., :-1], axis=-1),
        log_prob=lambda params, action: jnp.zeros(action.shape, jnp.float32),
        kind="greedy",
    )


DISTRIBUTIONS = {
    "tanh_normal": tanh_normal,
    "normal": normal,
    "noisy": noisy,
    "categorical": categorical,
    "greedy": greedy,
}


def kind_for(kind: str, discrete: bool) -> str:
    """Return the kind of distribution: discrete actions are categorical unless greedy."""
    return "categorical" if discrete and kind != "greedy" else kind
