"""How many steps a loop takes at once."""

import jax


def on_gpu(steps: int) -> int:
    """Return `steps` on a GPU, elsewhere 1.

    There a step is a few small kernels, and a loop around so little costs as much as they do. A
    processor gains nothing, and compiles longer.
    """
    return steps if jax.default_backend() == "gpu" else 1
