"""Convert an exported policy to ONNX, in a separate virtual environment.

    python3 -m venv onnx && onnx/bin/pip install jax2onnx onnxruntime
    onnx/bin/python tools/to_onnx.py runs/.../exported

jax2onnx requires certain versions of JAX, so it is not an extra of this project. It converts
policy.py with jax.numpy in place of NumPy. The result is compared with NumPy's.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]
from jax2onnx import to_onnx  # pyright: ignore[reportMissingImports]


def main(folder: Path) -> None:
    """Write policy.onnx: observations and RNN state in, actions and RNN state out."""
    sys.path.insert(0, str(folder))
    runner: Any = importlib.import_module("policy")
    policy = runner.Policy(folder / "policy.npz")
    if policy.settings["tokens"]:
        sys.exit("Policies with token observations are not supported.")
    policy.settings["keys"] = []  # inputs are concatenated observations, in the order of `keys`
    width = policy.arrays["mean"].size
    carries, structure = jax.tree.flatten(policy.step(np.zeros((1, width), np.float32))[1])

    def step(obs, *carry):
        """Take and return the RNN state as separate arrays."""
        state = jax.tree.unflatten(structure, carry) if carry else None
        action, after = policy.step(obs, state)
        return (action, *jax.tree.leaves(after))

    sizes = [width, *(carry.shape[-1] for carry in carries)]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(3, size)).astype(np.float32) for size in sizes]
    expected = step(*given)
    runner.np = jnp
    out = folder / "policy.onnx"
    to_onnx(step, [("rows", size) for size in sizes], return_mode="file", output_path=str(out))
    session = onnxruntime.InferenceSession(str(out))
    names = [each.name for each in session.get_inputs()]
    found = session.run(None, dict(zip(names, given, strict=True)))
    gap = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    print(f"{out}: differs from NumPy by at most {gap:.1e}")
    if gap > 1e-4:
        sys.exit("The difference is too large: do not use this file.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
