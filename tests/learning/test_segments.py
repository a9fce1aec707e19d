"""Rollouts are cut into segments and joined again."""

import jax.numpy as jnp
import numpy as np

from jaxrl.learning import segments

T, N, H = 6, 4, 2
# Each number encodes its origin: hundreds are time, ones are rows.
ORIGIN = jnp.asarray(np.arange(T)[:, None] * 100 + np.arange(N))


def test_every_segment_is_one_row_in_time_order():
    rows = np.asarray(segments.cut({"x": ORIGIN}, H)["x"])
    assert rows.shape == (H, N * T // H)
    expected = [[100 * (p * H + h) + n for n in range(N) for p in range(T // H)] for h in range(H)]
    np.testing.assert_array_equal(rows, expected)


def test_shards_of_rows_stay_contiguous():
    rows = np.asarray(segments.cut(ORIGIN, H))
    first, second = np.split(rows % 100, 2, axis=1)
    assert first.max() < N // 2 <= second.min()


def test_cut_starts_matches_first_steps_of_segments():
    starts = np.asarray(segments.cut_starts(ORIGIN[::H]))
    np.testing.assert_array_equal(starts[0], segments.cut(ORIGIN, H)[0])


def test_trailing_axes_are_preserved():
    deep = jnp.stack([ORIGIN, -ORIGIN], axis=-1)
    rows = segments.cut(deep, H)
    assert rows.shape == (H, N * T // H, 2)
    np.testing.assert_array_equal(rows[..., 1], -segments.cut(ORIGIN, H))
    starts = segments.cut_starts(deep[::H])
    assert starts.shape == (1, N * T // H, 2)
    np.testing.assert_array_equal(starts[0], rows[0])


def test_merge_time_inverts_split_time():
    parts = segments.split_time(ORIGIN, H)
    assert parts.shape == (T // H, H, N)
    np.testing.assert_array_equal(parts[1, 0], ORIGIN[H])
    np.testing.assert_array_equal(segments.merge_time(parts), ORIGIN)


def test_join_inverts_cut():
    deep = jnp.stack([ORIGIN, -ORIGIN], axis=-1)
    np.testing.assert_array_equal(segments.join(segments.cut(ORIGIN, H), T), ORIGIN)
    np.testing.assert_array_equal(segments.join(segments.cut(deep, H), T), deep)
