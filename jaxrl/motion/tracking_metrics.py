"""Errors and successes of motion tracking.

Arrays are [clips, frames, bodies, 3] in metres, padded to the longest clip; `frames` [clips] is the
number of valid frames of each. Values after a clip's end may be anything, even NaN.

Every error is a `Mean` with one total and count per clip. Counts are of frames, so that adding up
totals and counts pools the frames of all clips, as PHC and puffer-phc report their errors.
"""

from collections.abc import Sequence

import chex
import jax.numpy as jnp

from jaxrl.types import Array, Mean

MILLIMETRES = 1000.0
TRAINING_LIMIT = 0.25  # metres that no body may be off in training
EVALUATION_LIMIT = 0.5  # metres that bodies may be off on average in evaluations


def success_bodies(names: Sequence[str]) -> list[bool]:
    """Return which bodies decide on success, by name: all but hands and toes, as in PHC.

    Names are compared without case: L_Hand, left_hand and LeftHand are the same. If a skeleton
    has no hands beyond its wrists, the wrists count as hands.
    """
    lower = [name.lower() for name in names]
    hands = "hand" if any("hand" in name for name in lower) else "wrist"
    return [hands not in name and "toe" not in name for name in lower]


def tracking_errors(
    position: Array, reference: Array, frames: Array, *, root: int = 0
) -> dict[str, Mean]:
    """Return all errors of each clip, in mm, mm/frame and mm/frame².

    Errors of a frame are means over bodies: ‖p − p*‖ for `mpjpe`, the same of positions relative to
    the root for `mpjpe_local`, after the best similarity transform for `mpjpe_aligned`, and of
    first and second differences in time for `velocity` and `acceleration`.
    """
    _check(position, reference, frames)
    valid = _valid(position, frames)
    # Zeroed here rather than masked later: values after the end must not reach the SVD.
    position = jnp.where(valid[..., None, None], position, 0.0)
    reference = jnp.where(valid[..., None, None], reference, 0.0)
    at_root = slice(root, root + 1)
    gap = position - reference
    local = gap - gap[:, :, at_root]
    return {
        "mpjpe": _mean(gap, valid),
        "mpjpe_local": _mean(local, valid),
        "mpjpe_aligned": _mean(aligned(position, reference) - reference, valid),
        "velocity": _mean(jnp.diff(gap, axis=1), valid[:, 1:]),
        "acceleration": _mean(jnp.diff(gap, n=2, axis=1), valid[:, 2:]),
    }


def aligned(position: Array, reference: Array) -> Array:
    """Return each frame's points [..., bodies, 3] after the similarity that fits them best.

        min over s, R, t of Σ ‖s R p + t − p*‖²,   R a rotation, never a reflection

    With centred points and the decomposition Σ p* pᵀ = U S Vᵀ, R = U D Vᵀ and s = tr(S D) / Σ ‖p‖²,
    D = diag(1, 1, det(U Vᵀ)). Reference: Umeyama, 1991.
    """
    centre, target = (jnp.mean(x, axis=-2, keepdims=True) for x in (position, reference))
    p, q = position - centre, reference - target
    # Full precision: products in TF32 would be off by as much as good trackers are.
    product = jnp.einsum("...bi,...bj->...ij", q, p, precision="highest")
    u, s, vt = jnp.linalg.svd(product)
    product_sign = jnp.einsum("...ij,...jk->...ik", u, vt, precision="highest")
    handedness = jnp.where(jnp.linalg.det(product_sign) < 0, -1.0, 1.0)
    d = jnp.ones_like(s).at[..., 2].set(handedness)
    rotation = jnp.einsum("...ij,...jk->...ik", u * d[..., None, :], vt, precision="highest")
    size = jnp.sum(jnp.square(p), axis=(-2, -1))
    # Points that all coincide have no size to scale.
    scale = jnp.where(size > 0, jnp.sum(s * d, axis=-1) / jnp.where(size > 0, size, 1.0), 0.0)
    turned = jnp.einsum("...ij,...bj->...bi", rotation, p, precision="highest")
    return scale[..., None, None] * turned + target


def pooled(error: Mean) -> Mean:
    """Pool clips: the mean over all of their frames."""
    return Mean(jnp.sum(error.total), jnp.sum(error.count))


def per_clip(error: Mean) -> Array:
    """Return each clip's own mean; NaN where a clip is too short to have one."""
    return jnp.where(error.count > 0, error.total / jnp.maximum(error.count, 1.0), jnp.nan)


def within_training_limit(
    position: Array, reference: Array, frames: Array, *, limit: float = TRAINING_LIMIT
) -> Array:
    """Return [clips] whether no body was ever farther than the limit from its reference."""
    _check(position, reference, frames)
    distance = jnp.linalg.norm(position - reference, axis=-1)
    # Compared this way, a NaN is a failure.
    return jnp.all(jnp.all(distance <= limit, axis=-1) | ~_valid(position, frames), axis=-1)


def within_evaluation_limit(
    position: Array,
    reference: Array,
    frames: Array,
    bodies: tuple[int, ...],
    *,
    limit: float = EVALUATION_LIMIT,
) -> Array:
    """Return [clips] whether the mean distance of the chosen bodies never exceeded the limit.

    PHC leaves out hands and toes.
    """
    _check(position, reference, frames)
    chosen = jnp.asarray(bodies, jnp.int32)
    distance = jnp.linalg.norm(position[:, :, chosen] - reference[:, :, chosen], axis=-1)
    near = jnp.mean(distance, axis=-1) <= limit
    return jnp.all(near | ~_valid(position, frames), axis=-1)


def _check(position: Array, reference: Array, frames: Array) -> None:
    chex.assert_rank([position, reference], 4)
    chex.assert_equal_shape([position, reference])
    chex.assert_shape(frames, position.shape[:1])
    chex.assert_axis_dimension(position, 3, 3)


def _valid(position: Array, frames: Array) -> Array:
    """Return [clips, frames] which frames are part of their clip."""
    return jnp.arange(position.shape[1])[None, :] < frames[:, None]


def _mean(gap: Array, valid: Array) -> Mean:
    """Sum a gap's length in mm over each clip's valid frames."""
    error = MILLIMETRES * jnp.mean(jnp.linalg.norm(gap, axis=-1), axis=-1)
    total = jnp.sum(jnp.where(valid, error, 0.0), axis=1)
    return Mean(total, jnp.sum(valid, axis=1).astype(total.dtype))
