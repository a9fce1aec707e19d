"""The policy in policy.npz, with NumPy alone: action, memory = Policy().step(observation, memory).

Observations may have leading axes; `memory` is None at the start of an episode. Without memory,
Policy()(observation) is enough. This file and policy.npz are all that is needed: copy them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x), for any x."""
    return 0.5 * (1 + np.tanh(x / 2))


ACTIVATIONS: dict[str, Any] = {
    "swish": lambda x: x * sigmoid(x),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


class Policy:
    """The most likely action for an observation; every array is float32."""

    def __init__(self, file: str | Path | None = None) -> None:
        with np.load(file or Path(__file__).with_name("policy.npz"), allow_pickle=False) as data:
            self.a = {name: data[name] for name in data.files}
        self.about = json.loads(str(self.a.pop("about")))

    def __call__(self, obs: Any) -> np.ndarray:
        """Return the action of a policy without memory."""
        return self.step(obs)[0]

    def step(self, obs: Any, memory: Any = None) -> tuple[np.ndarray, Any]:
        """Return the action, and the memory to give with the next observation."""
        a, about = self.a, self.about
        x = self.look(obs)
        for i in range(about["layers"]):
            x = x @ a[f"w{i}"] + a[f"b{i}"]
            if about["layer_norm"]:
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
                x = x * a[f"scale{i}"] + a[f"offset{i}"]
            x = ACTIVATIONS[about["activation"]](x)
        if about["memory"] != "none":
            x, memory = self.remember(x, memory)
        out = x @ a["head_w"] + a["head_b"]
        if about["discrete"]:
            return np.argmax(out, axis=-1), memory
        return np.tanh(out) if about["squashed"] else np.clip(out, -1, 1), memory

    def look(self, obs: Any) -> np.ndarray:
        """Return an observation as one normalised vector; tokens as zeros and ones."""
        if self.about["tokens"]:
            parts = [np.eye(n)[np.asarray(obs)[..., i]] for i, n in enumerate(self.about["tokens"])]
            wide = np.concatenate(parts, axis=-1, dtype=np.float32)
            return wide.reshape(*wide.shape[:-2], -1)
        keys = self.about["keys"]
        x = np.concatenate([np.asarray(obs[k]) for k in keys], axis=-1) if keys else np.asarray(obs)
        z = (x.astype(np.float32) - self.a["mean"]) / self.a["std"]
        return np.clip(z, -self.a["clip"], self.a["clip"])

    def remember(self, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        """Return the output of an LSTM or GRU, and its memory after this step."""
        gates, lstm = x @ self.a["memory_w"] + self.a["memory_b"], self.about["memory"] == "lstm"
        blank = np.zeros((*x.shape[:-1], self.a["recurrent"].shape[0]), np.float32)
        memory = ((blank, blank) if lstm else blank) if memory is None else memory
        past = (memory[1] if lstm else memory) @ self.a["recurrent"]
        if lstm:
            i, f, g, o = np.split(gates + past, 4, axis=-1)
            cell = sigmoid(f) * memory[0] + sigmoid(i) * np.tanh(g)
            return (out := sigmoid(o) * np.tanh(cell)), (cell, out)
        (r, z, n), (past_r, past_z, past_n) = np.split(gates, 3, -1), np.split(past, 3, -1)
        z = sigmoid(z + past_z)
        n = np.tanh(n + sigmoid(r + past_r) * (past_n + self.a["memory_bias"]))
        return (out := (1 - z) * n + z * memory), out
