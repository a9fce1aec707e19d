"""Running discounted returns by hand: they look back, and an ending clears what follows it."""

import jax.numpy as jnp
import numpy as np

from jaxrl.learning.returns import running_returns


def test_returns_by_hand():
    reward = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ended = jnp.array([[False, False], [True, False], [False, False]])
    found = running_returns(reward, ended, jnp.array([8.0, 0.0]), gamma=0.5)
    # The first column starts from 8, which it carried; its second step ends an episode.
    np.testing.assert_array_equal(found, [[5.0, 2.0], [5.5, 5.0], [5.0, 8.5]])
