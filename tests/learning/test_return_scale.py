"""The scale of returns, against numpy."""

import jax.numpy as jnp
import numpy as np

from jaxrl.learning import return_scale


def _scale_of(*batches):
    scale = return_scale.init()
    for batch in batches:
        scale = return_scale.update(scale, jnp.float32(batch))
    return float(return_scale.divisor(scale))


def test_scale_is_the_deviation_unless_a_return_is_far_off():
    batches = np.random.default_rng(0).normal(3.0, 2.0, size=(4, 5, 6))
    assert _scale_of() == 1.0
    np.testing.assert_allclose(_scale_of(*batches), batches.std(), rtol=1e-5)
    batches[2, 1, 1] = -40.0
    assert batches.std() < 8.0
    np.testing.assert_allclose(_scale_of(*batches), 40.0 / return_scale.BOUND, rtol=1e-6)


def test_what_is_not_finite_changes_nothing():
    batch = np.random.default_rng(1).normal(size=(5, 6))
    assert _scale_of(batch, [np.inf, 1.0], [np.nan]) == _scale_of(batch)
