"""Sampling weights of clips: those that fail more often are sampled more often."""

import chex
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl.types import Array


class Resampling(struct.PyTreeNode):
    """Failures of each clip so far, and its sampling probability."""

    failures: Array  # float32 [clips], decayed sums
    evaluations: Array  # int32, shape ()
    weights: Array  # float32 [clips], sum 1


class ResidentSet(struct.PyTreeNode):
    """Some clips of a large library, which are on the device now; the CPU holds the others."""

    sampling: Resampling  # of all clips
    clips: Array  # int32 [resident], numbers of the resident clips
    weights: Array  # float32 [resident], what they are sampled by


def init(num_clips: int, failures: float = 0.0) -> Resampling:
    """Return equal weights; `failures` is what each clip has behind it."""
    return Resampling(
        failures=jnp.full(num_clips, failures, jnp.float32),
        evaluations=jnp.zeros((), jnp.int32),
        weights=jnp.full(num_clips, 1.0 / num_clips, jnp.float32),
    )


def update(
    state: Resampling,
    failed: Array,
    *,
    floor: Array | float,
    decay: Array | float,
    played: Array | None = None,
) -> Resampling:
    """Add one evaluation of all clips; `failed` [clips] is true or 1 where a clip failed.

    With `played`, numbers of clips, `failed` is of those only, and others keep their failures.

        f ← decay · f + failed
        w = floor / clips + (1 − floor) · f / Σf      (uniform while Σf is 0)

    The floor is the fraction of clips sampled uniformly. Without it (floor 0, decay 1: PHC's soft
    rule) a clip that never failed is never trained on again, and can be forgotten unnoticed until
    the next evaluation. With decay 0 only the clips that failed last are sampled more often.
    """
    before = state.failures if played is None else state.failures[played]
    chex.assert_equal_shape([before, failed])
    failures = decay * before + failed.astype(jnp.float32)
    if played is not None:
        failures = state.failures.at[played].set(failures)
    total = jnp.sum(failures)
    uniform = 1.0 / failures.size
    by_failures = jnp.where(total > 0, failures / total, uniform)
    return Resampling(
        failures=failures,
        evaluations=state.evaluations + 1,
        weights=floor * uniform + (1.0 - floor) * by_failures,
    )


def choose_set(
    weights: np.ndarray, number: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Choose `number` distinct clips by their weights; return them, and what to sample them by.

        π = min(1, λ w),  Σπ = number      the probability that a clip is in the set
        w / π                              its weight there

    Over many sets a clip is then sampled in proportion to w: one that is in every set must not
    count as often as one that is seldom there. (Systematic sampling: the clips are laid end to end
    in a random order, each as long as its π, and a comb with teeth one apart selects.)
    """
    weights = np.asarray(weights, np.float64)
    weights = weights + 1e-9 * weights.mean()  # a clip of weight 0 may still have to fill the set
    certain = np.zeros(len(weights), bool)
    while True:
        scale = (number - certain.sum()) / max(weights[~certain].sum(), 1e-300)
        more = ~certain & (scale * weights > 1.0 - 1e-6)
        if not more.any():
            break
        certain |= more
    others = rng.permutation(np.flatnonzero(~certain))
    ends = np.cumsum(scale * weights[others])
    teeth = rng.uniform() + np.arange(number - certain.sum())
    chosen = others[np.minimum(np.searchsorted(ends, teeth), len(others) - 1)]
    clips = np.sort(np.concatenate([np.flatnonzero(certain), chosen]))
    inside = np.where(certain, weights, 1.0 / scale if scale > 0 else 0.0)[clips]
    return clips.astype(np.int32), (inside / inside.sum()).astype(np.float32)
