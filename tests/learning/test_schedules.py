"""Check schedules against their closed forms, and the KL rule at its thresholds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import schedules

FALLING = ["linear", "cosine", "exponential"]
PROGRESS = np.linspace(0, 1, 41)


def _closed_form(kind, p, floor):
    """Return the factor as usually written: between the ends 1 and floor."""
    if kind == "linear":
        return np.interp(p, [0, 1], [1, floor])
    if kind == "cosine":
        return floor + (1 - floor) * np.cos(np.pi * p / 2) ** 2
    return np.exp(p * np.log(floor))


def _factor(kind, progress, floor):
    return np.asarray(schedules.multiplier(kind, jnp.float32(progress), floor))


@pytest.mark.parametrize("floor", [0.01, 0.25, 1.0])
@pytest.mark.parametrize("kind", FALLING)
def test_closed_form(kind, floor):
    factor = _factor(kind, PROGRESS, floor)
    np.testing.assert_allclose(factor, _closed_form(kind, PROGRESS, floor), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("kind", FALLING)
def test_ends_and_monotonicity(kind, floor):
    factor = _factor(kind, PROGRESS, floor)
    end = 1e-3 if kind == "exponential" and floor == 0 else floor
    assert factor[0] == 1
    np.testing.assert_allclose(factor[-1], end, atol=1e-6)
    assert np.all(np.diff(factor) < 0)
    # Progress is clipped to [0, 1].
    np.testing.assert_array_equal(_factor(kind, [-1.0, 2.0], floor), factor[[0, -1]])


def test_halfway_by_hand():
    np.testing.assert_allclose(_factor("linear", 0.5, 0.2), 0.6, rtol=1e-6)
    np.testing.assert_allclose(_factor("cosine", 0.5, 0.2), 0.6, rtol=1e-6)
    np.testing.assert_allclose(_factor("exponential", 0.5, 0.25), 0.5, rtol=1e-6)
    # The cosine is flat at both ends.
    np.testing.assert_allclose(_factor("cosine", 1 / 3, 0.0), 0.75, rtol=1e-6)
    np.testing.assert_allclose(_factor("cosine", 2 / 3, 0.0), 0.25, rtol=1e-6)


@pytest.mark.parametrize("kind", ["constant", "adaptive_kl"])
def test_constant(kind):
    np.testing.assert_array_equal(_factor(kind, PROGRESS, 0.1), np.ones(41))


@pytest.mark.parametrize("kind", schedules.SCHEDULES)
def test_traced_and_vmapped(kind):
    mapped = jax.jit(jax.vmap(lambda p: schedules.multiplier(kind, p, 0.1)))
    np.testing.assert_allclose(
        mapped(jnp.float32(PROGRESS)), _factor(kind, PROGRESS, 0.1), rtol=1e-6
    )


def test_exponential_reaches_a_small_floor():
    np.testing.assert_allclose(_factor("exponential", 1.0, 1e-4), 1e-4, rtol=1e-4)


# kl, rate before, rate after; desired 0.01, bounds 1e-4 and 1e-2.
ADAPT = [
    (0.0201, 3e-3, 2e-3),
    (0.0199, 3e-3, 3e-3),
    (0.01, 3e-3, 3e-3),
    (0.0051, 3e-3, 3e-3),
    (0.0049, 3e-3, 4.5e-3),
    (5.0, 3e-3, 2e-3),
    (1.0, 1.2e-4, 1e-4),
    (1.0, 1e-4, 1e-4),
    (0.001, 9e-3, 1e-2),
    (0.001, 1e-2, 1e-2),
    (0.01, 1.0, 1e-2),
    (0.01, 1e-9, 1e-4),
]


@pytest.mark.parametrize(("kl", "before", "after"), ADAPT)
def test_adapt_to_kl(kl, before, after):
    rate = schedules.adapt_to_kl(*(jnp.float32(x) for x in (before, kl, 0.01, 1e-4, 1e-2)))
    np.testing.assert_allclose(rate, after, rtol=1e-6)


def test_adapt_to_kl_factor_and_shape():
    kl = jnp.array([1.0, 0.01, 1e-4, 0.0])
    rate = jax.jit(lambda r, k: schedules.adapt_to_kl(r, k, 0.01, 0.0, 1.0, factor=2.0))(
        jnp.full(4, 0.1), kl
    )
    # A KL of exactly zero means that nothing was updated: the rate stays.
    np.testing.assert_allclose(rate, [0.05, 0.1, 0.2, 0.1], rtol=1e-6)
    assert rate.dtype == jnp.float32


def test_rate_is_unchanged_at_the_exact_thresholds():
    desired = 0.5  # both thresholds are exact floats
    for kl in (0.25, 1.0):
        rate = schedules.adapt_to_kl(*(jnp.float32(x) for x in (0.1, kl, desired, 0.0, 1.0)))
        assert rate == jnp.float32(0.1)
