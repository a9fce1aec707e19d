"""Can a state be given away to a program that reuses its memory?"""

import jax


def assert_donatable(state):
    """Two leaves that share one buffer cannot both be given away: JAX refuses, or keeps one."""
    leaves = jax.tree.leaves(state)
    jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)(state)
    assert leaves and all(leaf.is_deleted() for leaf in leaves)
