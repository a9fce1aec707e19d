"""Compare the guarded step with Optax's Adam, and check that it skips non-finite gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl.learning import optimizer

RATE, EPSILON = 0.05, 1e-5


def _params():
    return {"w": jnp.arange(6.0).reshape(2, 3), "b": {"c": jnp.array([1.0, -1.0])}}


def _grads(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: jnp.float32(scale * rng.normal(size=p.shape)), _params())


def _stepper(max_grad_norm=0.5, weight_decay=0.0):
    transform = optimizer.adam(max_grad_norm, EPSILON, weight_decay)

    @jax.jit
    def step(params, state, grads, learning_rate=RATE, allowed=True):
        return optimizer.step(
            transform, params, state, grads, learning_rate=learning_rate, allowed=allowed
        )

    return transform, step


def _assert_identical(a, b):
    """Compare two trees bit by bit, so that NaN and −0 count too."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def _norm(tree):
    return np.sqrt(sum(np.sum(np.square(np.float64(x))) for x in jax.tree.leaves(tree)))


@pytest.mark.parametrize("max_grad_norm, weight_decay", [(0.5, 0.0), (1e3, 0.0), (0.0, 0.1)])
def test_equals_optax(max_grad_norm, weight_decay):
    transform, step = _stepper(max_grad_norm, weight_decay)
    parts = [optax.adamw(RATE, eps=EPSILON, weight_decay=weight_decay)]
    if max_grad_norm:
        parts.insert(0, optax.clip_by_global_norm(max_grad_norm))
    reference = optax.chain(*parts)
    params = expected = _params()
    state, reference_state = transform.init(params), reference.init(params)

    @jax.jit
    def apply(grads, state, params):
        updates, state = reference.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for i in range(5):
        # Norms differ between steps, so that clipping affects Adam.
        grads = _grads(i, scale=10.0 ** (i - 3))
        out = step(params, state, grads)
        params, state = out.params, out.opt_state
        expected, reference_state = apply(grads, reference_state, expected)
        assert out.finite
        np.testing.assert_allclose(out.grad_norm, _norm(grads), rtol=1e-5)
        for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_adam_by_hand():
    # After the first step's bias correction m = g and v = g²: the step is g / (|g| + ε).
    transform, step = _stepper(max_grad_norm=0.0)
    params = {"x": jnp.array([1.0, 1.0, 1.0])}
    grads = {"x": jnp.array([2.0, -3.0, EPSILON])}
    out = step(params, transform.init(params), grads)
    np.testing.assert_allclose(out.params["x"], [1 - RATE, 1 + RATE, 1 - RATE / 2], rtol=1e-5)


def test_clipping_scales_the_whole_gradient():
    transform, step = _stepper(max_grad_norm=0.5)
    params = {"x": jnp.zeros(1), "y": jnp.zeros(1)}
    grads = {"x": jnp.array([3e-4]), "y": jnp.array([4e-4])}
    huge = jax.tree.map(lambda g: 1e6 * g, grads)  # norm 500, clipped to 0.3 and 0.4
    out = step(params, transform.init(params), huge)
    np.testing.assert_allclose(out.grad_norm, 500, rtol=1e-5)
    moments = out.opt_state[1].mu
    np.testing.assert_allclose(moments["x"], [0.1 * 0.3], rtol=1e-5)
    np.testing.assert_allclose(moments["y"], [0.1 * 0.4], rtol=1e-5)


def test_learning_rate_is_traced():
    transform, step = _stepper()
    params, grads = _params(), _grads(0)
    moved = [
        np.asarray(step(params, transform.init(params), grads, jnp.float32(rate)).params["w"])
        for rate in (0.0, 0.1, 0.2)
    ]
    np.testing.assert_array_equal(moved[0], params["w"])
    np.testing.assert_allclose(moved[2] - moved[0], 2 * (moved[1] - moved[0]), rtol=1e-4)


@pytest.mark.parametrize("max_grad_norm", [0.5, 0.0])
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_non_finite_gradients_change_nothing(bad, max_grad_norm):
    transform, step = _stepper(max_grad_norm)
    first = step(_params(), transform.init(_params()), _grads(0))
    bad_grads = _grads(1)
    bad_grads["b"]["c"] = bad_grads["b"]["c"].at[1].set(bad)
    skipped = step(first.params, first.opt_state, bad_grads)
    assert not skipped.finite
    assert skipped.finite.dtype == bool
    assert skipped.grad_norm == 0
    _assert_identical(skipped.params, first.params)
    _assert_identical(skipped.opt_state, first.opt_state)
    # The next finite step is the same as without the skipped one.
    after, without = (step(s.params, s.opt_state, _grads(2)) for s in (skipped, first))
    assert after.finite
    assert not np.array_equal(after.params["w"], first.params["w"])
    _assert_identical(after, without)


def test_step_not_allowed_changes_nothing():
    transform, step = _stepper()
    first = step(_params(), transform.init(_params()), _grads(0))
    skipped = step(first.params, first.opt_state, _grads(1), allowed=False)
    assert skipped.finite  # the gradient itself was finite
    np.testing.assert_allclose(skipped.grad_norm, _norm(_grads(1)), rtol=1e-5)
    _assert_identical(skipped.params, first.params)
    _assert_identical(skipped.opt_state, first.opt_state)
    after = step(skipped.params, skipped.opt_state, _grads(1), allowed=True)
    assert not np.array_equal(after.params["w"], first.params["w"])


def test_allowed_does_not_override_non_finite_gradients():
    transform, step = _stepper()
    bad = jax.tree.map(lambda g: g * jnp.nan, _grads(0))
    for allowed in (True, False):
        skipped = step(_params(), transform.init(_params()), bad, allowed=allowed)
        assert not skipped.finite
        _assert_identical(skipped.params, _params())


def test_non_finite_member_does_not_affect_the_others():
    transform, _ = _stepper()
    params = jax.tree.map(lambda p: jnp.stack([p, p]), _params())
    grads = jax.tree.map(lambda g: jnp.stack([g, g * jnp.nan]), _grads(0))
    step = jax.vmap(
        lambda p, g: optimizer.step(transform, p, transform.init(p), g, learning_rate=RATE)
    )
    out = jax.jit(step)(params, grads)
    np.testing.assert_array_equal(out.finite, [True, False])
    assert not np.array_equal(out.params["w"][0], params["w"][0])
    np.testing.assert_array_equal(out.params["w"][1], params["w"][1])


def test_select():
    yes, no = (
        {"a": jnp.ones(3), "b": (jnp.arange(2),)},
        {"a": jnp.zeros(3), "b": (-jnp.ones(2, int),)},
    )
    _assert_identical(optimizer.select(jnp.array(True), yes, no), yes)
    _assert_identical(optimizer.select(jnp.array(False), yes, no), no)


def test_muon_orthogonalizes_matrices_and_uses_adam_elsewhere():
    params = {"matrix": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}
    flat, unravel = ravel_pytree(params)
    transform = optimizer.muon(0.0, 1e-8, unravel)
    grads = {
        "matrix": jax.random.normal(jax.random.key(0), (4, 3)),
        "bias": jnp.array([3.0, -1, 2]),
    }
    flat_grads = ravel_pytree(grads)[0]
    steps = jax.jit(lambda: unravel(transform.update(flat_grads, transform.init(flat), flat)[0]))()
    # Newton-Schulz brings all singular values close together; Adam's first step is a sign.
    values = np.linalg.svd(np.asarray(steps["matrix"]), compute_uv=False)
    assert (values / values.mean() > 0.6).all() and (values / values.mean() < 1.4).all()
    assert np.sum(np.asarray(steps["matrix"] * grads["matrix"])) > 0
    np.testing.assert_allclose(steps["bias"] / steps["bias"][0], [1.0, -1.0, 1.0], rtol=1e-3)
    # Optax's update includes the negative learning rate; ours is only the direction.
    reference = optax.contrib.muon(1.0, eps=1e-8)
    expected, _ = jax.jit(lambda: reference.update(grads, reference.init(params), params))()
    np.testing.assert_allclose(steps["bias"], -expected["bias"], rtol=1e-5)
    np.testing.assert_allclose(steps["matrix"], -expected["matrix"], rtol=1e-4, atol=1e-5)


def test_muon_clips_the_whole_gradient():
    params = {"matrix": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}
    flat, unravel = ravel_pytree(params)
    grads = jnp.arange(15.0)
    clipped, free = optimizer.muon(0.5, 1e-8, unravel), optimizer.muon(0.0, 1e-8, unravel)
    update, state = clipped.update(grads, clipped.init(flat), flat)
    by_hand, wanted = free.update(grads * 0.5 / jnp.linalg.norm(grads), free.init(flat), flat)
    np.testing.assert_allclose(update, by_hand, rtol=1e-4)
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(wanted), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_each_network_is_one_vector_and_back():
    networks = {"actor": _params(), "critic": {"v": jnp.array([[2.0, 3.0]])}}
    vectors, unravel = optimizer.flatten(networks)
    np.testing.assert_array_equal(vectors["actor"], [1.0, -1.0, *range(6)])  # b before w
    np.testing.assert_array_equal(vectors["critic"], [2.0, 3.0])
    _assert_identical({name: unravel[name](vectors[name]) for name in networks}, networks)
