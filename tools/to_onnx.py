"""Turn an exported policy into ONNX, in an environment of its own.

    python3 -m venv onnx && onnx/bin/pip install jax2onnx onnxruntime
    onnx/bin/python tools/to_onnx.py runs/.../exported

jax2onnx wants versions of JAX of its own choosing, so it is no extra of this project. What it
converts is policy.py with JAX's arrays in NumPy's place. The result is compared with NumPy's.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]
from jax2onnx import to_onnx  # pyright: ignore[reportMissingImports]


def main(folder: Path) -> None:
    """Write policy.onnx: observation and memory in, action and memory out, rows free."""
    sys.path.insert(0, str(folder))
    runner: Any = importlib.import_module("policy")
    policy = runner.Policy(folder / "policy.npz")
    if policy.about["tokens"]:
        sys.exit("Policies that see tokens are not converted.")
    policy.about["keys"] = []  # parts of an observation are given joined, in the order of `keys`
    parts = {"none": 0, "lstm": 2, "gru": 1}[policy.about["memory"]]

    def step(obs, *memory):
        """Take and return memory as separate arrays."""
        given = memory if parts == 2 else memory[0] if parts else None
        action, after = policy.step(obs, given)
        return (action, *(after if parts == 2 else [after] * parts))

    sizes = [policy.a["mean"].size]
    if parts:
        sizes += [policy.a["recurrent"].shape[0]] * parts
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
        sys.exit("That is too much: do not use it.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
