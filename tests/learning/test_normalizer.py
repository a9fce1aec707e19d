"""Check running statistics against NumPy over all data at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.learning import normalizer

update = jax.jit(normalizer.update)


def _random(seed, shape, offset=0.0, scale=1.0):
    draws = np.random.default_rng(seed).normal(size=shape)
    return (offset + scale * draws).astype(np.float32)


def _merge(parts):
    stats = normalizer.init(jnp.zeros(parts[0].shape[-1:]))
    for part in parts:
        stats = update(stats, part)
    return stats


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**31),
    # Few sizes, each compiled once, in any order and number.
    sizes=st.lists(st.sampled_from([1, 2, 7, 40]), min_size=1, max_size=8),
    offset=st.floats(-50, 50),
    scale=st.floats(0.01, 100),
)
def test_any_split_equals_numpy(seed, sizes, offset, scale):
    data = _random(seed, (sum(sizes), 3), offset, scale)
    stats = _merge(np.split(data, np.cumsum(sizes)[:-1]))
    exact = data.astype(np.float64)
    assert stats.count == len(data)
    size = abs(offset) + scale
    np.testing.assert_allclose(stats.mean, exact.mean(0), atol=1e-5 * size)
    np.testing.assert_allclose(stats.variance, exact.var(0), rtol=1e-3, atol=1e-6 * size**2)


def test_order_does_not_matter():
    data = _random(1, (47, 3), 5.0, 2.0)
    forwards = _merge([data[:7], data[7:]])
    backwards = _merge([data[7:], data[:7]])
    for a, b in zip(jax.tree.leaves(forwards), jax.tree.leaves(backwards), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_initial_statistics_leave_data_unchanged():
    x = jnp.array([[-50.0, 0.0, 0.1], [1.0, 2.5, 50.0]])  # nothing is clipped either
    stats = normalizer.init(jax.ShapeDtypeStruct((3,), jnp.float32))
    np.testing.assert_array_equal(normalizer.normalize(stats, x), x)


def test_normalized_data_has_mean_0_and_std_1():
    data = _random(2, (500, 3), 30.0, [0.1, 1.0, 20.0])
    z = np.asarray(normalizer.normalize(_merge([data]), data))
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(0), 1, rtol=1e-3)
    expected = (data - data.mean(0)) / data.std(0)
    np.testing.assert_allclose(z, expected, atol=5e-3)


def test_large_means_stay_accurate():
    data = _random(3, (2000, 2), 1e4, 1.0)
    exact = data.astype(np.float64)
    for stats in (_merge([data]), _merge(np.split(data, 50))):
        np.testing.assert_allclose(stats.mean, exact.mean(0), rtol=1e-6)
        np.testing.assert_allclose(stats.variance, exact.var(0), rtol=0.02)


def test_constant_dimensions_stay_finite():
    data = np.tile(np.float32([3.7, 0.0]), (100, 1))
    stats = _merge([data, data])
    assert np.all(normalizer.std(stats) > 0)
    z = normalizer.normalize(stats, jnp.array([[3.7, 0.0], [4.0, -1.0]]))
    np.testing.assert_allclose(z[0], 0, atol=0.1)
    np.testing.assert_array_equal(z[1], [10.0, -10.0])


@pytest.mark.parametrize("lead", [(12,), (3, 4), (2, 3, 2)])
def test_leading_axes(lead):
    data = _random(4, (*lead, 5), 2.0)
    stats = update(normalizer.init(jnp.zeros(5)), data)
    flat = data.reshape(-1, 5)
    assert stats.count == 12
    np.testing.assert_allclose(stats.mean, flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(stats.variance, flat.var(0), rtol=1e-5)
    z = normalizer.normalize(stats, data)
    assert z.shape == data.shape
    np.testing.assert_allclose(z, (data - flat.mean(0)) / flat.std(0), atol=1e-4)


def test_dict_observations():
    # Parts of different shape; all of them count the same number of rows.
    data = {"a": _random(5, (6, 4, 3), 1.0), "b": _random(6, (6, 4), -2.0, 3.0)}
    data["c"] = _random(7, (6, 4, 2, 2), 4.0)
    example = {"a": jnp.zeros(3), "b": jnp.zeros(()), "c": jnp.zeros((2, 2))}
    stats = normalizer.init(example)
    for half in (slice(0, 2), slice(2, 6)):
        stats = update(stats, {name: x[half] for name, x in data.items()})
    assert stats.count == 24
    z = normalizer.normalize(stats, data)
    for name, x in data.items():
        flat = x.reshape(24, *example[name].shape)
        np.testing.assert_allclose(stats.mean[name], flat.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(stats.variance[name], flat.var(0), rtol=1e-4)
        expected = (x - flat.mean(0)) / flat.std(0)
        np.testing.assert_allclose(z[name], expected, rtol=1e-3, atol=1e-4)


def test_scalar_statistics():
    data = _random(8, (5, 7), 3.0, 2.0)
    stats = update(update(normalizer.init(jnp.zeros(())), data[:2]), data[2:])
    assert stats.count == 35
    assert stats.mean.shape == stats.variance.shape == ()
    np.testing.assert_allclose(stats.mean, data.mean(), rtol=1e-5)
    np.testing.assert_allclose(stats.variance, data.var(), rtol=1e-5)
    np.testing.assert_allclose(normalizer.std(stats), data.std(), rtol=1e-5)


def test_integers_become_floats():
    data = np.arange(12).reshape(6, 2)
    stats = update(normalizer.init(jax.ShapeDtypeStruct((2,), jnp.int32)), data)
    np.testing.assert_allclose(stats.mean, data.mean(0))
    assert normalizer.normalize(stats, jnp.asarray(data)).dtype == jnp.float32


def test_clip():
    stats = normalizer.RunningStats(jnp.float32(9), jnp.array([1.0, 2.0]), jnp.array([4.0, 9.0]))
    x = jnp.array([[5.0, 8.0], [-99.0, 99.0], [23.0, -31.0]])
    z = normalizer.normalize(stats, x)
    np.testing.assert_allclose(z, [[2, 2], [-10, 10], [10, -10]], rtol=1e-6)
    z = normalizer.normalize(stats.replace(clip=1.5), x)
    np.testing.assert_allclose(z, [[1.5, 1.5], [-1.5, 1.5], [1.5, -1.5]], rtol=1e-6)


def test_statistics_stay_accurate_at_large_counts():
    before = normalizer.RunningStats(
        jnp.float32(1e9), jnp.array([1.0, -1.0]), jnp.array([2.0, 0.5])
    )
    after = update(before, _random(9, (4096, 2), 100.0, 10.0))
    assert float(after.count) == pytest.approx(1e9 + 4096, abs=64)
    # The batch weighs 4.1e-6: the mean moves by 4e-4, the variance by 4e-2.
    weight = 4096 / (1e9 + 4096)
    gap = np.array([99.0, 101.0])
    np.testing.assert_allclose(after.mean, before.mean + gap * weight, atol=1e-5)
    expected = np.array([2.0, 0.5]) * (1 - weight) + weight * (100 + gap**2 * (1 - weight))
    np.testing.assert_allclose(after.variance, expected, rtol=1e-3)
    # One row leaves the statistics in place, even if float32 can no longer count it.
    last = update(before, _random(10, (1, 2)))
    np.testing.assert_allclose(last.mean, before.mean, rtol=1e-6)
    np.testing.assert_allclose(last.variance, before.variance, rtol=1e-6)


def test_update_works_in_a_scan():
    example = {"a": jnp.zeros(3), "b": jnp.zeros(())}
    batches = {"a": _random(11, (4, 6, 3)), "b": _random(12, (4, 6))}
    stats, _ = jax.lax.scan(
        lambda m, x: (normalizer.update(m, x), None), normalizer.init(example), batches
    )
    np.testing.assert_allclose(stats.mean["a"], batches["a"].mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(stats.variance["b"], batches["b"].var(), rtol=1e-5)


def test_values_that_overflow_when_squared_are_ignored():
    stats = normalizer.update(normalizer.init(jnp.zeros(2)), jnp.ones((5, 2)))
    after = normalizer.update(stats, jnp.array([[1e30, 1.0], [1.0, 1.0]]))
    np.testing.assert_array_equal(after.mean, stats.mean)
    np.testing.assert_array_equal(after.variance, stats.variance)
    assert after.count == 5


def test_uint8_observations_are_not_normalized():
    tokens = jnp.array([[3, 250], [7, 0]], jnp.uint8)
    example = {"token": jax.ShapeDtypeStruct((2,), jnp.uint8), "x": jnp.zeros(1)}
    batch = {"token": tokens, "x": jnp.array([[1.0], [3.0]])}
    stats = normalizer.update(normalizer.init(example), batch)
    np.testing.assert_array_equal(stats.mean["token"], [0.0, 0.0])
    np.testing.assert_array_equal(stats.variance["token"], [1.0, 1.0])
    seen = normalizer.normalize(stats, batch)
    assert seen["token"].dtype == jnp.uint8
    np.testing.assert_array_equal(seen["token"], tokens)
    np.testing.assert_allclose(seen["x"], [[-1.0], [1.0]], rtol=1e-5)


def test_std_is_never_zero():
    stats = normalizer.RunningStats(jnp.float32(1), jnp.zeros(2), jnp.array([0.0, 3e-8]))
    np.testing.assert_allclose(normalizer.std(stats), [1e-4, 2e-4], rtol=1e-5)
    # Normalization starts after one row.
    np.testing.assert_allclose(normalizer.normalize(stats, jnp.array([5e-4, 0.0])), [5.0, 0.0])


def test_huge_and_denormal_observations_stay_finite():
    data = _random(13, (100, 3)) * np.float32([1e8, 1e-42, 1.0])
    stats = _merge([data[:50], data[50:]])
    z = np.asarray(normalizer.normalize(stats, data))
    assert np.isfinite(z).all() and np.all(normalizer.std(stats) > 0)
    np.testing.assert_allclose(z[:, 0].std(), 1, rtol=1e-3)
    assert np.abs(z[:, 1]).max() < 1e-3  # treated as a constant


def test_float16_is_accumulated_in_float32():
    """300² is too large for a float16."""
    x = jnp.array([[-300.0], [300.0]], jnp.float16)
    stats = normalizer.update(normalizer.init(jnp.zeros(1)), x)
    assert stats.count == 2 and stats.mean.dtype == jnp.float32
    np.testing.assert_allclose(stats.variance, [90_000.0])
    z = normalizer.normalize(stats, x)
    assert z.dtype == jnp.float32
    np.testing.assert_allclose(z, [[-1.0], [1.0]], rtol=1e-5)
