import jax.numpy as jnp
import numpy as np

from jaxrl.learning import segments

T, N, H = 6, 4, 2
# Every number tells where it comes from: hundreds are time, ones are rows.
WHERE = jnp.asarray(np.arange(T)[:, None] * 100 + np.arange(N))


def test_every_segment_is_one_row_in_time_order():
    rows = np.asarray(segments.cut({"x": WHERE}, H)["x"])
    assert rows.shape == (H, N * T // H)
    expected = [[100 * (p * H + h) + n for n in range(N) for p in range(T // H)] for h in range(H)]
    np.testing.assert_array_equal(rows, expected)


def test_blocks_of_rows_stay_blocks():
    rows = np.asarray(segments.cut(WHERE, H))
    first, second = np.split(rows % 100, 2, axis=1)
    assert first.max() < N // 2 <= second.min()


def test_starts_belong_to_their_segments():
    starts = np.asarray(segments.cut_starts(WHERE[::H]))
    np.testing.assert_array_equal(starts[0], segments.cut(WHERE, H)[0])


def test_trailing_axes_travel_along():
    deep = jnp.stack([WHERE, -WHERE], axis=-1)
    rows = segments.cut(deep, H)
    assert rows.shape == (H, N * T // H, 2)
    np.testing.assert_array_equal(rows[..., 1], -segments.cut(WHERE, H))
    starts = segments.cut_starts(deep[::H])
    assert starts.shape == (1, N * T // H, 2)
    np.testing.assert_array_equal(starts[0], rows[0])


def test_splitting_and_merging_time_are_opposites():
    parts = segments.split_time(WHERE, H)
    assert parts.shape == (T // H, H, N)
    np.testing.assert_array_equal(parts[1, 0], WHERE[H])
    np.testing.assert_array_equal(segments.merge_time(parts), WHERE)


def test_joining_undoes_cutting():
    deep = jnp.stack([WHERE, -WHERE], axis=-1)
    np.testing.assert_array_equal(segments.join(segments.cut(WHERE, H), T), WHERE)
    np.testing.assert_array_equal(segments.join(segments.cut(deep, H), T), deep)
