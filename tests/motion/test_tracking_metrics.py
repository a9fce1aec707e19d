"""Tracking errors against per-frame Python loops and SciPy's rotation fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from jaxrl.motion import smpl, tracking_metrics

CLIPS, FRAMES, BODIES = 3, 7, 5
LENGTHS = [7, 4, 2]

errors = jax.jit(tracking_metrics.tracking_errors, static_argnames="root")


def _motions(seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=(CLIPS, FRAMES, BODIES, 3)).astype(np.float32)
    played = reference + noise * rng.normal(size=reference.shape).astype(np.float32)
    return played, reference, np.int32(LENGTHS)


def _similarity(p, q):
    """Fit q ≈ s R p + t: SciPy finds the rotation, least squares on one number the scale."""
    p, q = p - p.mean(0), q - q.mean(0)
    rotation, _ = Rotation.align_vectors(q, p)
    turned = rotation.apply(p)
    scale = max(np.sum(turned * q) / np.sum(turned * turned), 0.0)
    return np.linalg.norm(scale * turned - q, axis=1)


def _reference_errors(played, reference, frames, root=0):
    """Return {name: one list of frame values per clip}."""
    found = {n: [] for n in ("mpjpe", "mpjpe_local", "mpjpe_aligned", "velocity", "acceleration")}
    for p, q, n in zip(played.astype(float), reference.astype(float), frames, strict=True):
        p, q = p[:n] * 1000, q[:n] * 1000
        rows = {name: [] for name in found}
        for t in range(n):
            distances = [np.sqrt(((p[t, b] - q[t, b]) ** 2).sum()) for b in range(BODIES)]
            rows["mpjpe"].append(np.mean(distances))
            local = [
                np.sqrt((((p[t, b] - p[t, root]) - (q[t, b] - q[t, root])) ** 2).sum())
                for b in range(BODIES)
            ]
            rows["mpjpe_local"].append(np.mean(local))
            rows["mpjpe_aligned"].append(_similarity(p[t], q[t]).mean())
        for t in range(n - 1):
            change = (p[t + 1] - p[t]) - (q[t + 1] - q[t])
            rows["velocity"].append(np.mean([np.linalg.norm(c) for c in change]))
        for t in range(1, n - 1):
            bend = (p[t + 1] - 2 * p[t] + p[t - 1]) - (q[t + 1] - 2 * q[t] + q[t - 1])
            rows["acceleration"].append(np.mean([np.linalg.norm(c) for c in bend]))
        for name, values in rows.items():
            found[name].append(values)
    return found


@pytest.mark.parametrize("seed, noise, root", [(0, 0.1, 0), (1, 0.01, 2), (2, 2.0, 4)])
def test_errors_match_python_loops(seed, noise, root):
    """With noise of 2 m the best fit is sometimes a reflection, which must not be used."""
    played, reference, frames = _motions(seed, noise)
    expected = _reference_errors(played, reference, frames, root)
    found = errors(played, reference, frames, root=root)
    assert set(found) == set(expected)
    for name, clips in expected.items():
        everything = np.concatenate(clips)
        mean = tracking_metrics.pooled(found[name])
        assert mean.count == len(everything)
        np.testing.assert_allclose(mean.total / mean.count, everything.mean(), rtol=2e-4)
        own = [np.mean(c) if c else np.nan for c in clips]
        np.testing.assert_allclose(tracking_metrics.per_clip(found[name]), own, rtol=2e-4)


def test_errors_match_hand_computed_values():
    """One of two bodies is off by (3, 4, 0) mm from frame 1 on."""
    reference = np.zeros((1, 4, 2, 3), np.float32)
    reference[:, :, 1, 2] = 1.0
    played = reference.copy()
    played[0, 1:, 1, :2] += [0.003, 0.004]
    frames = np.int32([4])
    result = {
        k: tracking_metrics.per_clip(v)[0] for k, v in errors(played, reference, frames).items()
    }
    assert result["mpjpe"] == pytest.approx(5 / 2 * 3 / 4, rel=1e-3)
    assert result["mpjpe_local"] == pytest.approx(5 / 2 * 3 / 4, rel=1e-3)
    assert result["velocity"] == pytest.approx(5 / 2 / 3, rel=1e-3)  # one jump in three steps
    assert result["acceleration"] == pytest.approx(5 / 2 / 2, rel=1e-3)  # one bend of two
    # With the displaced body as the root, the other body is the one that is off.
    away = {
        k: tracking_metrics.per_clip(v)[0]
        for k, v in errors(played, reference, frames, root=1).items()
    }
    assert away["mpjpe_local"] == pytest.approx(5 / 2 * 3 / 4, rel=1e-3)


def test_alignment_undoes_any_similarity():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(1, 6, BODIES, 3))
    rotation = Rotation.random(6, rng=rng).as_matrix()
    moved = np.einsum("tij,ctbj->ctbi", rotation, reference) * 1.7 + rng.normal(size=(1, 6, 1, 3))
    arrays = np.float32(moved), np.float32(reference)
    result = errors(*arrays, np.int32([6]))
    assert tracking_metrics.per_clip(result["mpjpe_aligned"])[0] < 0.01
    assert tracking_metrics.per_clip(result["mpjpe"])[0] > 500


def test_alignment_never_mirrors():
    """For a mirrored body, the error equals that of a search over rotations."""
    rng = np.random.default_rng(3)
    reference = rng.normal(size=(BODIES, 3))
    mirrored = reference * [1, 1, -1]
    p, q = mirrored - mirrored.mean(0), reference - reference.mean(0)

    def residual(x):
        return np.sum((np.exp(x[3]) * Rotation.from_rotvec(x[:3]).apply(p) - q) ** 2)

    starts = np.concatenate([rng.normal(size=(20, 3)), np.zeros((20, 1))], axis=1)
    best = min(minimize(residual, start).fun for start in starts)
    fit = tracking_metrics.aligned(jnp.float32(mirrored)[None], jnp.float32(reference)[None])[0]
    assert best > 0.1
    assert np.sum((np.asarray(fit) - reference) ** 2) == pytest.approx(best, rel=1e-4)


def test_points_without_extent_are_moved_to_the_centre():
    reference = np.float32(np.random.default_rng(0).normal(size=(1, 2, BODIES, 3)))
    fit = tracking_metrics.aligned(jnp.ones_like(reference), jnp.asarray(reference))
    centre = np.broadcast_to(reference.mean(2, keepdims=True), reference.shape)
    np.testing.assert_allclose(fit, centre, atol=1e-6)


def test_frames_after_the_end_are_ignored():
    played, reference, frames = _motions()
    clean = errors(played, reference, frames)
    near = tracking_metrics.within_training_limit(played, reference, frames, limit=10.0)
    for clip, length in enumerate(LENGTHS):
        played[clip, length:], reference[clip, length:] = np.nan, np.inf
    for name, error in errors(played, reference, frames).items():
        np.testing.assert_array_equal(error.total, clean[name].total)
        np.testing.assert_array_equal(error.count, clean[name].count)
    after = tracking_metrics.within_training_limit(played, reference, frames, limit=10.0)
    np.testing.assert_array_equal(after, near)
    assert np.all(after)


def test_pooling_weights_clips_by_their_frames():
    """Two clips of 1 and 3 frames, off by 4 mm and 0: pooled 1, mean of means 2."""
    reference = np.zeros((2, 3, 2, 3), np.float32)
    played = reference.copy()
    played[0, :, :, 0] = 0.004
    error = errors(played, reference, np.int32([1, 3]))["mpjpe"]
    mean = tracking_metrics.pooled(error)
    assert mean.total / mean.count == pytest.approx(1.0)
    assert np.mean(tracking_metrics.per_clip(error)) == pytest.approx(2.0)


# name: (distances of three bodies in the worst frame, within the training limit, within the
# evaluation limit for bodies 0 and 1, within the evaluation limit for all bodies)
SUCCESS = {
    "on it": ([0.0, 0.0, 0.0], True, True, True),
    "one body 0.26 off": ([0.26, 0.0, 0.0], False, True, True),
    "all bodies 0.24 off": ([0.24, 0.24, 0.24], True, True, True),
    "chosen ones 0.51 off": ([0.51, 0.51, 0.0], False, False, True),
    "one far, the mean near": ([0.9, 0.0, 0.0], False, True, True),
    "only the left-out body far": ([0.0, 0.0, 3.0], False, True, False),
    "lost": ([np.nan, 0.0, 0.0], False, False, False),
}


@pytest.mark.parametrize("name", SUCCESS)
@pytest.mark.parametrize("frame", [0, 2])
def test_success_limits(name, frame):
    """A single frame decides; the same frame after the clip's end is ignored."""
    distances, *expected = SUCCESS[name]
    reference = np.zeros((2, 4, 3, 3), np.float32)
    played = reference.copy()
    played[:, frame, :, 1] = distances
    frames = np.int32([4, frame])
    found = [
        tracking_metrics.within_training_limit(played, reference, frames),
        tracking_metrics.within_evaluation_limit(played, reference, frames, (0, 1)),
        tracking_metrics.within_evaluation_limit(played, reference, frames, (0, 1, 2)),
    ]
    for near, answer in zip(found, expected, strict=True):
        assert near.tolist() == [answer, True]


def test_shapes_are_checked():
    played, reference, frames = _motions()
    for wrong in [
        (played[0], reference[0], frames),
        (played[:, :3], reference, frames),
        (played, reference, frames[:2]),
    ]:
        with pytest.raises(AssertionError):
            tracking_metrics.tracking_errors(*wrong)


def test_success_bodies_exclude_hands_and_toes():
    """20 of SMPL's 24 bodies remain, as in PHC; wrists are included."""
    kept = [
        n for n in smpl.JOINTS if tracking_metrics.success_bodies(smpl.JOINTS)[smpl.JOINTS.index(n)]
    ]
    assert sorted(set(smpl.JOINTS) - set(kept)) == ["L_Hand", "L_Toe", "R_Hand", "R_Toe"]
    assert tracking_metrics.success_bodies(
        ["root", "LeftHand", "left_toe_base", "RIGHT_WRIST"]
    ) == [
        True,
        False,
        False,
        True,
    ]
    assert tracking_metrics.success_bodies(["root", "left_wrist"]) == [
        True,
        False,
    ]  # without hands, wrists are excluded
