"""State-dependent exploration (gSDE): noise on actions that is a function of the features f(s).

    ε_j(s) = Σ_i f_i(s) σ_ij Z_ij + σ_min Z_0j,    Z_ij ~ N(0, 1)
    Var ε_j(s) = Σ_i f_i(s)² σ_ij² + σ_min²

Z is held for some steps, during which the noise changes only with the state: exploration is smooth.
Over samples of Z the action is normal, so any normal distribution's log-probability, entropy and KL
hold for it. Z is stored instead of σ ⊙ Z: also after an update of σ, the noise has the standard
deviation of the policy that is trained. Reference: Raffin et al., 2021; there σ_min is part of the
variance alone.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key


class Noise(NamedTuple):
    """The noise of every row; zeros, as after an episode's end, make the next step sample it."""

    matrix: Array  # Z, [N, 1 + features, actions]
    steps: Array  # int32[N], taken with this Z


def initial_noise(number: int, features: int, actions: int) -> Noise:
    """Return noise that the next step samples, for `number` rows."""
    matrix = jnp.zeros((number, 1 + features, actions), jnp.float32)
    return Noise(matrix, jnp.zeros(number, jnp.int32))


def resample(noise: Noise, key: Key, sample_freq: int | None) -> Noise:
    """Return the noise of this step, with Z sampled again in rows where it is due.

    Each row has its own Z for `sample_freq` steps, or until its episode ends; None: until then.
    """
    due = (noise.steps == 0)[:, None, None]
    # Sampled for all rows: some row is due at almost every step.
    matrix = jnp.where(due, jax.random.normal(key, noise.matrix.shape), noise.matrix)
    steps = noise.steps + 1
    return Noise(matrix, steps if sample_freq is None else steps % sample_freq)


def perturbation(features: Array, log_std: Array, min_std: float, matrix: Array) -> Array:
    """Return ε(s) = f(s) (σ ⊙ Z) + σ_min Z_0, [N, actions], of features [N, features]."""
    chex.assert_shape(matrix, (len(features), 1 + log_std.shape[0], log_std.shape[1]))
    scaled = jnp.exp(log_std)[None] * matrix[:, 1:]
    return jnp.einsum("nf,nfa->na", features, scaled) + min_std * matrix[:, 0]


def action_log_std(features: Array, log_std: Array, min_std: float) -> Array:
    """Return ½ log(Σ_i f_i² σ_ij² + σ_min²), [..., actions], of log σ [features, actions].

    Features get no gradient from it: they would learn to be small where noise does harm.
    """
    squares = jnp.square(jax.lax.stop_gradient(features))
    return 0.5 * jnp.log(squares @ jnp.exp(2.0 * log_std) + min_std**2)
