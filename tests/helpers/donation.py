"""Check that a state can be donated to a jitted function."""

import jax


def assert_donatable(state):
    """Donate a state; fails if two leaves share a buffer, since JAX cannot donate both."""
    leaves = jax.tree.leaves(state)
    jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)(state)
    assert leaves and all(leaf.is_deleted() for leaf in leaves)
