"""A multi-layer perceptron, its activations and initialisers."""

from collections.abc import Callable

import flax.linen as nn
import jax

from jaxrl.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swish": nn.swish,
    "relu": nn.relu,
    "tanh": nn.tanh,
    "elu": nn.elu,
    "gelu": nn.gelu,
}

NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


def kernel_init(kind: str, gain: float | None = None) -> jax.nn.initializers.Initializer:
    """Return a weight initialiser; `gain` scales the weights of a head."""
    if kind == "orthogonal":
        return nn.initializers.orthogonal(2.0**0.5 if gain is None else gain)
    return nn.initializers.variance_scaling(1.0 if gain is None else gain**2, "fan_in", "uniform")


class MLP(nn.Module):
    """Dense layers, each followed by (a normalisation and) an activation."""

    hidden: tuple[int, ...]
    activation: str = "swish"
    norm: str = "none"
    weights: str = "lecun"  # `init` is a method of flax modules
    precision: str = "float32"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Map [..., features] to [..., hidden[-1]]."""
        for width in self.hidden:
            x = nn.Dense(width, kernel_init=kernel_init(self.weights), dtype=self.precision)(x)
            if self.norm != "none":
                x = NORMS[self.norm](dtype=self.precision)(x)
            x = ACTIVATIONS[self.activation](x)
        return x.astype("float32")
