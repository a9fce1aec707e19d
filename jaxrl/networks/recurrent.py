"""Memory: an LSTM or GRU layer, for one step or for whole segments.

What a step adds to the past is small; what it does with its input is most of the work. So the
products with all inputs of a segment are taken at once, and only the rest is done step by step.
Backwards likewise: see `_unroll`.
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.learning import turns
from jaxrl.types import Array, PyTree

# (memory, what the gates get from the input, what they get from the past) -> memory
Cell = Callable[[PyTree, Array, Array], PyTree]

GATES = {"lstm": 4, "gru": 3}


def initial_carry(kind: str, size: int, number: int) -> PyTree:
    """Return an empty memory for `number` rows; () for no memory."""
    if kind == "none":
        return ()
    zeros = jnp.zeros((number, size), jnp.float32)
    return (zeros, zeros) if kind == "lstm" else zeros


def reset_carry(ended: Array, carry: PyTree) -> PyTree:
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
        gates, cell = into(x), CELLS[self.kind]
        weights = self._weights()
        if ended is None:
            carry = cell(carry, gates, _past(weights, carry))
            return _output(carry), None, carry
        if tried is None:
            out, carry = _unroll(cell, weights, carry, gates, ended)  # type: ignore[misc]
            return out, None, carry

        def once(carry: PyTree, inputs: tuple):
            gates, tried, ended = inputs
            carry = cell(carry, gates, _past(weights, carry))
            beside = cell(carry, tried, _past(weights, carry))
            return reset_carry(ended, carry), (_output(carry), _output(beside))

        inputs = (gates, into(tried), ended)
        carry, (out, beside) = jax.lax.scan(once, carry, inputs, unroll=turns.on_gpu(8))
        return out, beside, carry

    def _weights(self) -> tuple[Array, Array]:
        """Return how the past reaches the gates: a matrix and a bias."""
        width = GATES[self.kind] * self.size
        recurrent = self.param("recurrent", _orthogonal_parts, (self.size, width))
        if self.kind == "lstm":  # its gates get their bias with the input
            return recurrent, jnp.zeros(width)
        bias = self.param("bias", nn.initializers.zeros, (self.size,))
        return recurrent, jnp.concatenate([jnp.zeros(width - self.size), bias])

    def _bias(self, key: Array, shape: tuple, dtype=jnp.float32) -> Array:
        """Start an LSTM with its forget gates open, so that it can learn over long times."""
        zeros = jnp.zeros(shape, dtype)
        return zeros.at[self.size : 2 * self.size].set(1.0) if self.kind == "lstm" else zeros


def _output(carry: PyTree) -> Array:
    return carry[1] if isinstance(carry, tuple) else carry


def _past(weights: tuple[Array, Array], carry: PyTree) -> Array:
    recurrent, bias = weights
    past = _output(carry) @ recurrent
    return past + bias.reshape((1,) * (past.ndim - 1) + bias.shape)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(
    cell: Cell, weights: tuple[Array, Array], carry: PyTree, gates: Array, ended: Array
) -> tuple[Array, PyTree]:
    """Return the outputs of T steps and the memory after them.

    Left to itself, differentiation adds up the gradient of the weights step by step, one product
    each. Here the steps only find what the gates should have been, and one product over all
    steps does the rest.
    """
    (out, _), carry = _forward(cell, weights, carry, gates, ended)
    return out, carry


def _forward(cell: Cell, weights: tuple[Array, Array], carry: PyTree, gates: Array, ended: Array):
    def once(carry: PyTree, inputs: tuple[Array, Array]):
        after = cell(carry, inputs[0], _past(weights, carry))
        return reset_carry(inputs[1], after), (_output(after), carry)

    carry, noted = jax.lax.scan(once, carry, (gates, ended), unroll=turns.on_gpu(8))
    return noted, carry


def _unroll_and_note(
    cell: Cell, weights: tuple[Array, Array], carry: PyTree, gates: Array, ended: Array
):
    (out, before), carry = _forward(cell, weights, carry, gates, ended)
    return (out, carry), (weights, before, gates, ended)


def _unroll_backwards(cell: Cell, noted: tuple, slopes: tuple[Array, PyTree]):
    weights, before, gates, ended = noted
    recurrent, bias = weights
    slope_of_out, slope_after = slopes

    def once(slope_after: PyTree, inputs: tuple):
        before, gates, past, ended, slope_of_out = inputs
        slope = _plus_output(reset_carry(ended, slope_after), slope_of_out)
        _, pull = jax.vjp(cell, before, gates, past)
        slope_before, *slopes = pull(slope)
        return _plus_output(slope_before, slopes[1] @ recurrent.T), slopes

    inputs = (before, gates, _past(weights, before), ended, slope_of_out)
    slope_before, (slope_of_gates, slope_of_past) = jax.lax.scan(
        once, slope_after, inputs, reverse=True, unroll=turns.on_gpu(8)
    )
    slope_of_recurrent = jnp.einsum("tni,tnj->ij", _output(before), slope_of_past)
    slope_of_bias = jnp.sum(slope_of_past, axis=(0, 1))
    return (slope_of_recurrent, slope_of_bias), slope_before, slope_of_gates, None


_unroll.defvjp(_unroll_and_note, _unroll_backwards)


def _plus_output(carry: PyTree, added: Array) -> PyTree:
    return (carry[0], carry[1] + added) if isinstance(carry, tuple) else carry + added


def _lstm(carry: tuple[Array, Array], gates: Array, past: Array) -> tuple[Array, Array]:
    """i, f, o = σ(·),  g = tanh(·),  c' = f c + i g,  h' = o tanh(c').  Hochreiter et al., 1997."""
    i, f, g, o = jnp.split(gates + past, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * carry[0] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return cell, jax.nn.sigmoid(o) * jnp.tanh(cell)


def _gru(hidden: Array, gates: Array, past: Array) -> Array:
    """r, z = σ(·),  n = tanh(x_n + r (h_n + b)),  h' = (1 − z) n + z h.  Cho et al., 2014."""
    (r, z, n), (past_r, past_z, past_n) = (jnp.split(part, 3, axis=-1) for part in (gates, past))
    r, z = jax.nn.sigmoid(r + past_r), jax.nn.sigmoid(z + past_z)
    new = jnp.tanh(n + r * past_n)
    return (1.0 - z) * new + z * hidden


CELLS: dict[str, Cell] = {"lstm": _lstm, "gru": _gru}


def _orthogonal_parts(key: Array, shape: tuple[int, int]) -> Array:
    """Draw an orthogonal square for each gate."""
    size, width = shape
    draw = nn.initializers.orthogonal()
    keys = jax.random.split(key, width // size)
    return jnp.concatenate([draw(k, (size, size), jnp.float32) for k in keys], axis=1)
