"""A multi-layer perceptron, its activations and initialisers."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swish": nn.swish,
    "relu": nn.relu,
    "tanh": nn.tanh,
    "elu": nn.elu,
    "gelu": nn.gelu,
}

NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    # No running averages: statistics of an earlier batch are those of other parameters.
    "batch": partial(nn.BatchNorm, momentum=0.0),
}
EXPANSION = 4  # the first layer of a residual block is 4 times as wide as its input
BATCH_STATS = "batch_stats"  # flax's name of the variables of BatchNorm


def kernel_init(kind: str, gain: float | None = None) -> jax.nn.initializers.Initializer:
    """Return a weight initialiser; `gain` scales the weights of a head."""
    if kind == "orthogonal":
        return nn.initializers.orthogonal(2.0**0.5 if gain is None else gain)
    return nn.initializers.variance_scaling(1.0 if gain is None else gain**2, "fan_in", "uniform")


def layer_widths(hidden: tuple[int, ...], blocks: int) -> list[int]:
    """Return the widths of all layers, with those of residual blocks."""
    return [*hidden, *(blocks * [EXPANSION * hidden[-1], hidden[-1]] if blocks else [])]


def unit_weights(params: PyTree) -> PyTree:
    """Return parameters of a network whose hidden units have incoming weights of norm 1.

    Before BatchNorm the length of these weights affects only the relative size of steps. Before
    other norms, which units share, it is a constraint.
    """

    def scaled(path: tuple, leaf: Array) -> Array:
        names = [str(getattr(key, "key", "")) for key in path]
        if names[-1] != "kernel" or not any(name.startswith(MLP.__name__) for name in names):
            return leaf
        norm = jnp.linalg.norm(leaf, axis=-2, keepdims=True)
        return leaf / jnp.maximum(norm, 1e-8)

    return jax.tree_util.tree_map_with_path(scaled, params)


class MLP(nn.Module):
    """Dense layers, each followed by (a normalisation and) an activation; then residual blocks.

    BatchNorm uses the statistics of its own batch, unless they are given as variables.
    """

    hidden: tuple[int, ...]
    activation: str = "swish"
    norm: str = "none"
    weights: str = "lecun"  # `init` is a method of flax modules
    precision: str = "float32"
    blocks: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Map [..., features] to [..., hidden[-1]]."""
        stats = {"use_running_average": BATCH_STATS in self.variables}
        stats = stats if self.norm == "batch" else {}

        def layer(x: Array, width: int) -> Array:
            x = nn.Dense(width, kernel_init=kernel_init(self.weights), dtype=self.precision)(x)
            if self.norm != "none":
                x = NORMS[self.norm](dtype=self.precision, **stats)(x)
            return ACTIVATIONS[self.activation](x)

        for width in self.hidden:
            x = layer(x, width)
        for _ in range(self.blocks):
            x = x + layer(layer(x, EXPANSION * x.shape[-1]), x.shape[-1])
        if self.blocks:  # the sum grows with every block
            x = nn.RMSNorm(dtype=self.precision, name="last_norm")(x)
        return x.astype("float32")
