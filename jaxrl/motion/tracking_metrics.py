"""How closely played motions follow their references.

Arrays are [clips, frames, bodies, 3] in metres, padded to the longest clip; `frames` [clips] says
how many frames of each count. What lies after a clip's end may be anything, even NaN.

Every error is a `Mean` with one total and count per clip. Counts are of frames, so that adding up
totals and counts pools the frames of all clips, as PHC and puffer-phc report their errors.
"""

from collections.abc import Sequence

import chex
import jax.numpy as jnp

from jaxrl.types import Array, Mean

MILLIMETRES = 1000.0
TRAINING_LIMIT = 0.25  # metres that no body may be off while training
EVALUATION_LIMIT = 0.5  # metres that bodies may be off on average when evaluated


def judged_bodies(names: Sequence[str]) -> list[bool]:
    """Tell which bodies decide on success, by their names: all but hands and toes, as in PHC.

    Names are compared without case: L_Hand, left_hand and LeftHand are one. Where a skeleton has
    no hands beyond its wrists, the wrists are the hands.
    """
    lower = [name.lower() for name in names]
    hands = "hand" if any("hand" in name for name in lower) else "wrist"
    return [hands not in name and "toe" not in name for name in lower]


def tracking_errors(
    played: Array, reference: Array, frames: Array, *, root: int = 0
) -> dict[str, Mean]:
    """Return all errors of each clip, in mm, mm/frame and mm/frame².

    Of a frame the mean over bodies counts: ‖p − p*‖ for `mpjpe`, the same of positions relative to
    the root for `mpjpe_local`, after the best similarity transform for `mpjpe_aligned`, and of
    first and second differences in time for `velocity` and `acceleration`.
    """
    _check(played, reference, frames)
    valid = _valid(played, frames)
    # Zeroed rather than masked afterwards: what lies after the end must not reach the SVD.
    played = jnp.where(valid[..., None, None], played, 0.0)
    reference = jnp.where(valid[..., None, None], reference, 0.0)
    at_root = slice(root, root + 1)
    gap = played - reference
    local = gap - gap[:, :, at_root]
    return {
        "mpjpe": _mean(gap, valid),
        "mpjpe_local": _mean(local, valid),
        "mpjpe_aligned": _mean(aligned(played, reference) - reference, valid),
        "velocity": _mean(jnp.diff(gap, axis=1), valid[:, 1:]),
        "acceleration": _mean(jnp.diff(gap, n=2, axis=1), valid[:, 2:]),
    }


def aligned(played: Array, reference: Array) -> Array:
    """Return each frame's points [..., bodies, 3] after the similarity that fits them best.

        min over s, R, t of Σ ‖s R p + t − p*‖²,   R a rotation, never a reflection

    With centred points and the decomposition Σ p* pᵀ = U S Vᵀ, R = U D Vᵀ and s = tr(S D) / Σ ‖p‖²,
    D = diag(1, 1, det(U Vᵀ)). Reference: Umeyama, 1991.
    """
    centre, target = (jnp.mean(x, axis=-2, keepdims=True) for x in (played, reference))
    p, q = played - centre, reference - target
    # Full precision: products in TF32 would be off by as much as good trackers are.
    product = jnp.einsum("...bi,...bj->...ij", q, p, precision="highest")
    u, s, vt = jnp.linalg.svd(product)
    turn = jnp.einsum("...ij,...jk->...ik", u, vt, precision="highest")
    handedness = jnp.where(jnp.linalg.det(turn) < 0, -1.0, 1.0)
    d = jnp.ones_like(s).at[..., 2].set(handedness)
    rotation = jnp.einsum("...ij,...jk->...ik", u * d[..., None, :], vt, precision="highest")
    size = jnp.sum(jnp.square(p), axis=(-2, -1))
    # Points that all coincide have no size to scale.
    scale = jnp.where(size > 0, jnp.sum(s * d, axis=-1) / jnp.where(size > 0, size, 1.0), 0.0)
    turned = jnp.einsum("...ij,...bj->...bi", rotation, p, precision="highest")
    return scale[..., None, None] * turned + target


def pooled(error: Mean) -> Mean:
    """Add up clips: the mean over all of their frames, long clips counting for more."""
    return Mean(jnp.sum(error.total), jnp.sum(error.count))


def per_clip(error: Mean) -> Array:
    """Return each clip's own mean; NaN where a clip is too short to have one."""
    return jnp.where(error.count > 0, error.total / jnp.maximum(error.count, 1.0), jnp.nan)


def within_training_limit(
    played: Array, reference: Array, frames: Array, *, limit: float = TRAINING_LIMIT
) -> Array:
    """Return [clips] whether no body was ever farther than the limit from its reference."""
    _check(played, reference, frames)
    distance = jnp.linalg.norm(played - reference, axis=-1)
    # Asked this way round, a NaN is a failure.
    return jnp.all(jnp.all(distance <= limit, axis=-1) | ~_valid(played, frames), axis=-1)


def within_evaluation_limit(
    played: Array,
    reference: Array,
    frames: Array,
    bodies: tuple[int, ...],
    *,
    limit: float = EVALUATION_LIMIT,
) -> Array:
    """Return [clips] whether the mean distance of the chosen bodies never exceeded the limit.

    PHC leaves out hands and toes.
    """
    _check(played, reference, frames)
    chosen = jnp.asarray(bodies, jnp.int32)
    distance = jnp.linalg.norm(played[:, :, chosen] - reference[:, :, chosen], axis=-1)
    near = jnp.mean(distance, axis=-1) <= limit
    return jnp.all(near | ~_valid(played, frames), axis=-1)


def _check(played: Array, reference: Array, frames: Array) -> None:
    chex.assert_rank([played, reference], 4)
    chex.assert_equal_shape([played, reference])
    chex.assert_shape(frames, played.shape[:1])
    chex.assert_axis_dimension(played, 3, 3)


def _valid(played: Array, frames: Array) -> Array:
    """Return [clips, frames] which frames are part of their clip."""
    return jnp.arange(played.shape[1])[None, :] < frames[:, None]


def _mean(gap: Array, valid: Array) -> Mean:
    """Sum a gap's length in mm over each clip's valid frames."""
    error = MILLIMETRES * jnp.mean(jnp.linalg.norm(gap, axis=-1), axis=-1)
    total = jnp.sum(jnp.where(valid, error, 0.0), axis=1)
    return Mean(total, jnp.sum(valid, axis=1).astype(total.dtype))
