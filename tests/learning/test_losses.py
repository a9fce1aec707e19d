"""Check every loss against plain NumPy and numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrl.learning import losses

CLIP = 0.25
PROPERTY = settings(max_examples=40, deadline=None, derandomize=True, database=None)
LOG_PROBS = hnp.arrays(np.float32, (5,), elements=st.floats(-3, 3, width=32))

# ratio, advantage, min(ρ A, clamp(ρ, ¾, 1¼) A), and the derivative of that by log π (= ρ A, or 0).
SURROGATE = [
    (1.0, 2.0, 2.0, 2.0),
    (1.125, 2.0, 2.25, 2.25),
    (1.5, 2.0, 2.5, 0.0),  # good and already likely enough: clipped
    (0.5, 2.0, 1.0, 1.0),  # good but made unlikely: pulled back
    (1.0, -2.0, -2.0, -2.0),
    (0.875, -2.0, -1.75, -1.75),
    (0.5, -2.0, -1.5, 0.0),  # bad and already unlikely enough: clipped
    (1.5, -2.0, -3.0, -3.0),  # bad but made likely: pulled back
    (3.0, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("ratio", "advantage", "objective", "slope"), SURROGATE)
def test_clipped_surrogate_by_hand(ratio, advantage, objective, slope):
    old = jnp.array([-1.5])
    loss, grad = jax.value_and_grad(losses.clipped_surrogate)(
        old + jnp.log(ratio), old, jnp.array([advantage]), CLIP
    )
    np.testing.assert_allclose(loss, -objective, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(grad, [-slope], rtol=1e-6, atol=1e-7)


def test_clipped_surrogate_is_a_mean():
    ratio, advantage, objective, slope = np.array(SURROGATE, np.float32).T
    loss, grad = jax.value_and_grad(losses.clipped_surrogate)(
        jnp.log(ratio), jnp.zeros(len(ratio)), jnp.array(advantage), CLIP
    )
    np.testing.assert_allclose(loss, -objective.mean(), rtol=1e-5)
    np.testing.assert_allclose(grad, -slope / len(ratio), rtol=1e-5, atol=1e-7)


@PROPERTY
@given(LOG_PROBS, LOG_PROBS, LOG_PROBS)
def test_clipped_surrogate_equals_numpy(new, old, advantage):
    total = 0.0
    for log_p, log_q, a in zip(new, old, advantage, strict=True):
        ratio = np.exp(np.float64(log_p) - log_q)
        bound = 1 + CLIP if a > 0 else 1 - CLIP
        total += min(ratio, bound) * a if a > 0 else max(ratio, bound) * a
    loss = losses.clipped_surrogate(new, old, advantage, CLIP)
    np.testing.assert_allclose(loss, -total / 5, rtol=1e-4, atol=1e-5)


def test_gradient_at_ratio_one_is_the_policy_gradient():
    advantage = jnp.array([1.0, -2.0, 3.0, -4.0])
    grad = jax.grad(losses.clipped_surrogate)(jnp.zeros(4), jnp.zeros(4), advantage, CLIP)
    np.testing.assert_allclose(grad, -advantage / 4, rtol=1e-6)


def test_value_loss():
    loss, grad = jax.value_and_grad(losses.value_loss)(
        jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([1.0, 0.0, 6.0, 5.0])
    )
    np.testing.assert_allclose(loss, (0 + 4 + 9 + 1) / 4)
    np.testing.assert_allclose(grad, np.array([0, 4, -6, -2]) / 4)


# value, old value, target, max of the two squares, derivative by the value (clip = ½)
VALUES = [
    (1.25, 1.0, 2.0, 0.5625, -1.5),  # inside the range: the plain loss
    (3.0, 1.0, 2.0, 1.0, 2.0),  # overshot: (3 − 2)² beats (1½ − 2)²
    (2.0, 1.0, 2.0, 0.25, 0.0),  # on target, but only half a unit of the change counts
    (1.75, 1.0, 2.0, 0.25, 0.0),  # moved past the range: gains nothing more
    (0.0, 1.0, 2.0, 4.0, -4.0),  # moved the wrong way: pulled back in full
    (-2.0, 0.0, -2.0, 2.25, 0.0),  # the same on the lower side
]


@pytest.mark.parametrize(("value", "old", "target", "expected", "slope"), VALUES)
def test_clipped_value_loss_picks_the_larger(value, old, target, expected, slope):
    loss, grad = jax.value_and_grad(losses.clipped_value_loss)(
        jnp.array([value]), jnp.array([old]), jnp.array([target]), 0.5
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(grad, [slope], rtol=1e-6)


@PROPERTY
@given(LOG_PROBS, LOG_PROBS, LOG_PROBS)
def test_clipped_value_loss_equals_numpy(value, old, target):
    squares = []
    for v, o, t in zip(*(x.astype(np.float64) for x in (value, old, target)), strict=True):
        near = min(max(v, o - 0.5), o + 0.5)
        squares.append(max((v - t) ** 2, (near - t) ** 2))
    loss = losses.clipped_value_loss(value, old, target, 0.5)
    np.testing.assert_allclose(loss, np.mean(squares), rtol=1e-5, atol=1e-6)
    assert loss >= losses.value_loss(value, target) - 1e-6


@pytest.mark.parametrize("shape", [(4,), (3, 1), (1, 3), ()])
def test_shapes_must_agree(shape):
    right, wrong = jnp.zeros(3), jnp.zeros(shape)
    calls = [
        lambda: losses.clipped_surrogate(right, wrong, right, CLIP),
        lambda: losses.clipped_surrogate(right, right, wrong, CLIP),
        lambda: losses.value_loss(right, wrong),
        lambda: losses.clipped_value_loss(right, wrong, right, CLIP),
        lambda: losses.clipped_value_loss(right, right, wrong, CLIP),
    ]
    for call in calls:
        with pytest.raises(AssertionError):
            call()


@PROPERTY
@given(LOG_PROBS, LOG_PROBS, st.sampled_from([1.0, 1e-2, 1e-4, 1e-6]))
def test_approx_kl_is_never_negative(new, old, scale):
    new, old = new * np.float32(scale), old * np.float32(scale)
    kl = losses.approx_kl(new, old)
    log_ratio = (new - old).astype(np.float64)
    assert kl >= 0
    expected = np.mean(np.expm1(log_ratio) - log_ratio)
    # The difference of two numbers of the size of log ρ, in float32.
    rounding = 2e-7 * max(np.abs(log_ratio)) + 1e-15
    np.testing.assert_allclose(kl, expected, rtol=1e-5, atol=rounding)


def test_approx_kl_estimates_kl_from_old_to_new():
    # KL(N(μ, s²) ‖ N(m, σ²)) = log σ/s + (s² + (μ − m)²) / 2σ² − ½; its mirror image is 43 % more.
    old, new = scipy.stats.norm(0.0, 1.0), scipy.stats.norm(0.1, 1.3)
    true = np.log(1.3) + (1 + 0.1**2) / (2 * 1.3**2) - 0.5
    mirrored = -np.log(1.3) + (1.3**2 + 0.1**2) / 2 - 0.5
    x = old.rvs(200_000, random_state=0)
    log_p, log_q = (jnp.asarray(d.logpdf(x), jnp.float32) for d in (new, old))
    np.testing.assert_allclose(losses.approx_kl(log_p, log_q), true, rtol=0.02)
    assert mirrored > 1.4 * true
    np.testing.assert_allclose(losses.approx_kl(log_q, log_q), 0.0)


def test_clip_fraction():
    ratio = jnp.array([0.5, 0.74, 0.76, 1.0, 1.2, 1.24, 1.26, 9.0])
    fraction = losses.clip_fraction(jnp.log(ratio) - 3.0, jnp.full(8, -3.0), CLIP)
    np.testing.assert_allclose(fraction, 4 / 8)
    for clip in (CLIP, 0.0):  # on the edge is inside
        np.testing.assert_allclose(losses.clip_fraction(jnp.zeros(4), jnp.zeros(4), clip), 0.0)


def test_action_bound_loss():
    inside = jnp.array([[1.0, -1.0], [1.1, -1.1], [0.0, 0.5]])
    loss, grad = jax.value_and_grad(losses.action_bound_loss)(inside)
    assert loss == 0
    np.testing.assert_array_equal(grad, jnp.zeros_like(inside))
    # Excesses 0.9 and 1.9 in one row of four; the rows are averaged, the actions summed.
    outside = jnp.array([[2.0, -3.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    loss, grad = jax.value_and_grad(losses.action_bound_loss)(outside)
    np.testing.assert_allclose(loss, (0.81 + 3.61) / 4, rtol=1e-6)
    np.testing.assert_allclose(grad, np.array([[1.8, -3.8], [0, 0], [0, 0], [0, 0]]) / 4, rtol=1e-5)
    np.testing.assert_allclose(losses.action_bound_loss(outside, 2.5), 0.25 / 4, rtol=1e-6)


def test_l2_to_initial():
    initial = {"a": jnp.array([1.0, 2.0]), "b": {"c": jnp.ones((2, 2))}, "d": jnp.zeros(())}
    params = {"a": jnp.array([2.0, 0.0]), "b": {"c": jnp.zeros((2, 2))}, "d": jnp.float32(3)}
    loss, grad = jax.value_and_grad(losses.l2_to_initial)(params, initial)
    np.testing.assert_allclose(loss, 1 + 4 + 4 + 9)
    np.testing.assert_allclose(grad["a"], [2.0, -4.0])
    np.testing.assert_allclose(grad["b"]["c"], -2 * np.ones((2, 2)))
    np.testing.assert_allclose(losses.l2_to_initial(params, params), 0.0)


def test_explained_variance():
    target = jnp.array([1.0, 2.0, 3.0, 6.0])  # variance 3.5
    cases = [
        (target, 1.0),
        (target + 7.0, 1.0),  # a constant error explains all variance
        (jnp.full(4, 2.0), 0.0),
        (-target, -3.0),  # the error has variance 4 × 3.5
        (jnp.array([1.0, 2.0, 3.0, 4.0]), 1 - 0.75 / 3.5),  # error 0 0 0 2: variance ¾
    ]
    for value, expected in cases:
        result = losses.explained_variance(value, target)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_explained_variance_of_a_constant_target():
    for value in (jnp.ones(4), jnp.arange(4.0)):
        assert losses.explained_variance(value, jnp.full(4, 2.0)) == 0


@pytest.mark.parametrize("value", [np.zeros(1000), np.linspace(0, 1, 1000)])
def test_explained_variance_of_a_rounded_constant_target(value):
    target = jnp.full(1000, 0.1)
    assert losses.explained_variance(jnp.float32(value), target) == 0


# Around 1000: a spread of less than 1e-5 of that, squared, is rounding.
@pytest.mark.parametrize("spread, expected", [(0.0122, 1.0), (0.008, 0.0)])
def test_explained_variance_ignores_spread_at_rounding_level(spread, expected):
    target = 1000.0 + jnp.float32([spread, -spread, spread, -spread])
    assert losses.explained_variance(target, target) == expected


def test_explained_variance_of_zeros():
    assert losses.explained_variance(jnp.ones(4), jnp.zeros(4)) == 0


def test_gradient_of_a_huge_clipped_ratio_is_zero():
    grad = jax.grad(losses.clipped_surrogate)(jnp.array([100.0]), jnp.zeros(1), jnp.ones(1), CLIP)
    np.testing.assert_array_equal(grad, [0.0])


@pytest.mark.parametrize("gap, advantage", [(30.0, -1.0), (-30.0, 1.0)])
def test_log_ratio_is_clipped_to_finite_ratios(gap, advantage):
    loss = losses.clipped_surrogate(jnp.array([gap]), jnp.zeros(1), jnp.array([advantage]), CLIP)
    np.testing.assert_allclose(loss, -advantage * np.exp(20.0 * np.sign(gap)), rtol=1e-5)
