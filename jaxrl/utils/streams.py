"""Random streams: keys form a tree, seed -> stream -> number, and every key has one use.

`fold_in(key, i)` is `split(key, n)[i]` in JAX. So a key that is split somewhere must not be folded
with small numbers elsewhere: both would return the same keys. A new use of a seed gets a new stream
here, and the key of a seed itself is never used.
"""

import jax

from jaxrl.types import Array, Key

# Start states and actions of an evaluation are two streams. ACT is for Gymnasium
# environments, COMMAND for episodes that a command plays after training: evaluate, render.
# RESTART is for new episodes in all environments amid a run.
INIT, TRAIN, EVALUATE, PLAY, RESAMPLE, ACT, COMMAND, RECORD, RESTART = range(9)


def key(seed: Array | int, stream: Array | int, number: Array | int = 0) -> Key:
    """Return the key of one use of a seed."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), number)
