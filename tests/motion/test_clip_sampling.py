"""Clip sampling weights against hand-computed tables."""

import jax
import numpy as np
import pytest

from jaxrl.motion import clip_sampling

update = jax.jit(clip_sampling.update)

# Four clips, floor 0.2 (0.05 each), decay 0.5. One row per evaluation:
# (failed, failures afterwards, weights afterwards)
TABLE = [
    ([0, 0, 0, 0], [0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]),
    ([1, 0, 0, 0], [1, 0, 0, 0], [0.85, 0.05, 0.05, 0.05]),
    ([1, 1, 0, 0], [1.5, 1, 0, 0], [0.53, 0.37, 0.05, 0.05]),  # 0.05 + 0.8 · (3/5, 2/5)
    ([0, 0, 1, 0], [0.75, 0.5, 1, 0], [0.05 + 0.8 / 3, 0.05 + 1.6 / 9, 0.05 + 3.2 / 9, 0.05]),
    ([0, 0, 0, 0], [0.375, 0.25, 0.5, 0], [0.05 + 0.8 / 3, 0.05 + 1.6 / 9, 0.05 + 3.2 / 9, 0.05]),
]


@pytest.mark.parametrize("dtype", [bool, np.float32, np.int32])
def test_weights_match_a_hand_computed_table(dtype):
    state = clip_sampling.init(4)
    np.testing.assert_array_equal(state.weights, [0.25] * 4)
    for number, (failed, failures, weights) in enumerate(TABLE, start=1):
        state = update(state, np.array(failed, dtype), floor=0.2, decay=0.5)
        assert state.evaluations == number
        np.testing.assert_allclose(state.failures, failures, rtol=1e-6)
        np.testing.assert_allclose(state.weights, weights, rtol=1e-6)


@pytest.mark.parametrize(
    "floor, decay, expected",
    [
        (0.0, 1.0, [2 / 3, 1 / 3, 0, 0]),  # PHC's soft rule: clips that never fail get no weight
        (0.0, 0.0, [1, 0, 0, 0]),  # only the latest failures
        (1.0, 1.0, [0.25] * 4),  # failures ignored
    ],
)
def test_extreme_floor_and_decay(floor, decay, expected):
    state = clip_sampling.init(4)
    for failed in [[1, 1, 0, 0], [1, 0, 0, 0]]:
        state = update(state, np.array(failed, bool), floor=floor, decay=decay)
    np.testing.assert_allclose(state.weights, expected, rtol=1e-6)


def test_weights_stay_above_the_floor_and_sum_to_one():
    rng = np.random.default_rng(0)
    state = clip_sampling.init(50)
    for _ in range(30):
        state = update(state, rng.random(50) < 0.1, floor=0.1, decay=0.9)
        assert state.weights.min() >= 0.1 / 50 * 0.999
        assert state.weights.sum() == pytest.approx(1.0, rel=1e-5)


def test_old_failures_decay_to_uniform_weights():
    """Halved 300 times, failures underflow; weights must become uniform, never NaN."""
    state = update(clip_sampling.init(3), np.array([True, False, False]), floor=0.3, decay=0.5)
    for _ in range(300):
        state = update(state, np.zeros(3, bool), floor=0.3, decay=0.5)
        assert np.isfinite(state.weights).all()
    np.testing.assert_allclose(state.weights, [1 / 3] * 3, rtol=1e-6)
