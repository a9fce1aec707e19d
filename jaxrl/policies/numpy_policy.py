"""The policy in policy.npz with NumPy alone: action, carry = Policy().step(observation, carry).

Observations may have leading axes; `carry` is None at the start of an episode. For a policy that
is not recurrent, Policy()(observation) is enough. Copy this file and policy.npz to use them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x), for any x."""
    return 0.5 * (1 + np.tanh(x / 2))


def root_mean_square(x: np.ndarray) -> np.ndarray:
    """√(mean x² + 1e-6) over the last axis, which is kept."""
    return np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


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
            self.arrays = {name: data[name] for name in data.files}
        self.settings = json.loads(str(self.arrays.pop("settings")))

    def __call__(self, obs: Any) -> np.ndarray:
        """Return the action of a policy that is not recurrent."""
        return self.step(obs)[0]

    def step(self, obs: Any, carry: Any = None) -> tuple[np.ndarray, Any]:
        """Return the action, and the carry for the next observation."""
        a, settings = self.arrays, self.settings
        x = self.preprocess(obs)
        first = settings["layers"]
        for i in range(first):
            x = self.layer(x, i)
        blocks = range(settings.get("residual_blocks", 0))
        for i in blocks:
            x = x + self.layer(self.layer(x, first + 2 * i), first + 2 * i + 1)
        if blocks:
            x = x / root_mean_square(x) * a["last_scale"]
        if settings["rnn"] != "none":
            x, carry = self.rnn_layers(x, carry)
        out = x @ a["head_w"] + a["head_b"]
        if settings["discrete"]:
            if isinstance(obs, dict) and "action_mask" in obs:
                out = np.where(np.asarray(obs["action_mask"]) > 0, out, -np.inf)
            return np.argmax(out, axis=-1), carry
        return np.tanh(out) if settings["squashed"] else np.clip(out, -1, 1), carry

    def layer(self, x: np.ndarray, i: int) -> np.ndarray:
        """Return the output of one layer, normalised and activated."""
        a, norm = self.arrays, self.settings["norm"]
        x = x @ a[f"w{i}"] + a[f"b{i}"]
        if norm == "layer":
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
            x = x * a[f"scale{i}"] + a[f"offset{i}"]
        if norm == "rms":
            x = x / root_mean_square(x) * a[f"scale{i}"]
        return ACTIVATIONS[self.settings["activation"]](x)

    def preprocess(self, obs: Any) -> np.ndarray:
        """Return an observation as one normalised vector; tokens one-hot."""
        if tokens := self.settings["tokens"]:
            parts = [np.eye(n)[np.asarray(obs)[..., i]] for i, n in enumerate(tokens)]
            wide = np.concatenate(parts, axis=-1, dtype=np.float32)
            return wide.reshape(*wide.shape[:-2], -1)
        keys = self.settings["keys"]
        x = np.concatenate([np.asarray(obs[k]) for k in keys], axis=-1) if keys else np.asarray(obs)
        z = (x.astype(np.float32) - self.arrays["mean"]) / self.arrays["std"]
        return np.clip(z, -self.arrays["clip"], self.arrays["clip"])

    def rnn_layers(self, x: np.ndarray, carry: Any) -> tuple[np.ndarray, Any]:
        """Return the output of the last recurrent layer, and the carry: of several, a tuple."""
        if (number := self.settings.get("rnn_layers", 1)) == 1:
            return self.rnn(x, carry, "rnn")
        carries = []
        for i, before in enumerate((None,) * number if carry is None else carry):
            x, after = self.rnn(x, before, f"rnn{i or ''}")
            carries.append(after)
        return x, tuple(carries)

    def rnn(self, x: np.ndarray, carry: Any, name: str) -> tuple[np.ndarray, Any]:
        """Return the output of an LSTM, GRU or minGRU, and its carry after this step."""
        a, lstm = self.arrays, self.settings["rnn"] == "lstm"
        gates = x @ a[f"{name}_w"] + a[f"{name}_b"]
        if self.settings["rnn"] == "mingru":
            z, g, o = np.split(gates, 3, axis=-1)
            carry = (1 - sigmoid(z)) * (0.0 if carry is None else carry) + sigmoid(z) * g
            return sigmoid(o) * np.tanh(carry), carry
        zeros = np.zeros((*x.shape[:-1], a[f"{name}_recurrent"].shape[0]), np.float32)
        carry = ((zeros, zeros) if lstm else zeros) if carry is None else carry
        past = (carry[1] if lstm else carry) @ a[f"{name}_recurrent"]
        if lstm:
            i, f, g, o = np.split(gates + past, 4, axis=-1)
            cell = sigmoid(f) * carry[0] + sigmoid(i) * np.tanh(g)
            return (out := sigmoid(o) * np.tanh(cell)), (cell, out)
        (r, z, n), (past_r, past_z, past_n) = np.split(gates, 3, -1), np.split(past, 3, -1)
        z = sigmoid(z + past_z)
        n = np.tanh(n + sigmoid(r + past_r) * (past_n + a[f"{name}_bias"]))
        return (out := (1 - z) * n + z * carry), out
