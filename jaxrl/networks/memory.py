"""Memory: an LSTM or GRU layer, for one step or for whole segments.

What a step adds to the past is small; what it does with its input is most of the work. So the
products with all inputs of a segment are taken at once, and only the rest is done step by step.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

GATES = {"lstm": 4, "gru": 3}


def initial_carry(kind: str, size: int, number: int) -> PyTree:
    """Return an empty memory for `number` rows; () for no memory."""
    if kind == "none":
        return ()
    zeros = jnp.zeros((number, size), jnp.float32)
    return (zeros, zeros) if kind == "lstm" else zeros


def forget(ended: Array, carry: PyTree) -> PyTree:
    """Empty the memory, any tree of [N, ...], of the rows whose episode has ended."""

    def clear(leaf: Array) -> Array:
        mask = ended.reshape(ended.shape + (1,) * (leaf.ndim - 1))
        return jnp.where(mask, jnp.zeros_like(leaf), leaf)

    return jax.tree.map(clear, carry)


class Memory(nn.Module):
    """A recurrent layer; its output is as wide as its memory."""

    kind: str
    size: int

    @nn.compact
    def __call__(
        self, x: Array, carry: PyTree, ended: Array | None = None, tried: Array | None = None
    ) -> tuple[Array, Array | None, PyTree]:
        """Return the output, what `tried` would have given, and the memory afterwards.

        With `ended` [T, N], x is [T, N, features]: T steps, after each of which ended episodes
        are forgotten. `tried` [T, N, features] are other inputs, each given once to the memory
        as it is after the same step (and before forgetting); they leave no trace.
        """
        into = nn.Dense(GATES[self.kind] * self.size, bias_init=self._bias, name="input")
        step = self._step()
        gates = into(x)
        if ended is None:
            carry = step(carry, gates)
            return _output(carry), None, carry
        tried_gates = None if tried is None else into(tried)

        def once(carry: PyTree, inputs: tuple):
            gates, tried, ended = inputs
            carry = step(carry, gates)
            beside = None if tried is None else _output(step(carry, tried))
            return forget(ended, carry), (_output(carry), beside)

        carry, (out, beside) = jax.lax.scan(once, carry, (gates, tried_gates, ended))
        return out, beside, carry

    def _step(self) -> Callable[[PyTree, Array], PyTree]:
        """Return (carry, what the gates get from the input) -> carry."""
        shape = (self.size, GATES[self.kind] * self.size)
        recurrent = self.param("recurrent", _orthogonal_parts, shape)
        if self.kind == "lstm":
            return lambda carry, gates: _lstm(carry, gates + carry[1] @ recurrent)
        bias = self.param("bias", nn.initializers.zeros, (self.size,))
        return lambda hidden, gates: _gru(hidden, gates, hidden @ recurrent, bias)

    def _bias(self, key: Array, shape: tuple, dtype=jnp.float32) -> Array:
        """Start an LSTM with its forget gates open, so that it can learn over long times."""
        zeros = jnp.zeros(shape, dtype)
        return zeros.at[self.size : 2 * self.size].set(1.0) if self.kind == "lstm" else zeros


def _output(carry: PyTree) -> Array:
    return carry[1] if isinstance(carry, tuple) else carry


def _lstm(carry: tuple[Array, Array], gates: Array) -> tuple[Array, Array]:
    """i, f, o = σ(·),  g = tanh(·),  c' = f c + i g,  h' = o tanh(c').  Hochreiter et al., 1997."""
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * carry[0] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return cell, jax.nn.sigmoid(o) * jnp.tanh(cell)


def _gru(hidden: Array, gates: Array, past: Array, bias: Array) -> Array:
    """r, z = σ(·),  n = tanh(x_n + r (h_n + b)),  h' = (1 − z) n + z h.  Cho et al., 2014."""
    (r, z, n), (past_r, past_z, past_n) = (jnp.split(part, 3, axis=-1) for part in (gates, past))
    r, z = jax.nn.sigmoid(r + past_r), jax.nn.sigmoid(z + past_z)
    new = jnp.tanh(n + r * (past_n + bias.reshape((1,) * (past_n.ndim - 1) + bias.shape)))
    return (1.0 - z) * new + z * hidden


def _orthogonal_parts(key: Array, shape: tuple[int, int]) -> Array:
    """Draw an orthogonal square for each gate."""
    size, width = shape
    draw = nn.initializers.orthogonal()
    keys = jax.random.split(key, width // size)
    return jnp.concatenate([draw(k, (size, size), jnp.float32) for k in keys], axis=1)
