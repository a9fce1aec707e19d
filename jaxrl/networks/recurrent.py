"""LSTM, GRU and minGRU layers, for one step or for whole segments.

Most of the work of a step is the product with its input. So these products are computed for all
steps of a segment at once, and only the recurrent part step by step. Backwards likewise: see
`_unroll`. The gates of a minGRU do not depend on its carry, so that no part is left to compute step
by step: see `_scan_linear`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

# (carry, gates from the input, gates from the carry) -> carry
Cell = Callable[[PyTree, Array, Array], PyTree]

GATES = {"lstm": 4, "gru": 3, "mingru": 3}


def initial_carry(kind: str, size: int, number: int, layers: int = 1) -> PyTree:
    """Return the carry of zeros for `number` rows; () for kind "none".

    The carry of several layers is a tuple of theirs.
    """
    if kind == "none":
        return ()
    zeros = jnp.zeros((number, size), jnp.float32)
    carry = (zeros, zeros) if kind == "lstm" else zeros
    return carry if layers == 1 else (carry,) * layers


def layer_names(layers: int) -> tuple[str, ...]:
    """Return the names of the layers among a network's parameters."""
    return ("memory", *(f"memory_{i}" for i in range(1, layers)))


def apply_layers(
    layers: Sequence[Callable[..., tuple[Array, Array | None, PyTree]]],
    x: Array,
    carry: PyTree,
    ended: Array | None = None,
    next_x: Array | None = None,
) -> tuple[Array, Array | None, PyTree]:
    """Apply recurrent layers, each to the output of the one before; see `RNN` for the arguments."""
    if len(layers) == 1:
        return layers[0](x, carry, ended, next_x)
    carries = []
    for layer, before in zip(layers, carry, strict=True):
        x, next_x, after = layer(x, before, ended, next_x)
        carries.append(after)
    return x, next_x, tuple(carries)


def reset_carry(ended: Array, carry: PyTree) -> PyTree:
    """Set the carry, any tree of [N, ...], to zeros in rows whose episode has ended."""

    def clear(leaf: Array) -> Array:
        mask = ended.reshape(ended.shape + (1,) * (leaf.ndim - 1))
        return jnp.where(mask, jnp.zeros_like(leaf), leaf)

    return jax.tree.map(clear, carry)


class RNN(nn.Module):
    """A recurrent layer with an output of `size`."""

    kind: str
    size: int
    timescale: float = 0.0  # steps that the layer remembers at first, at most; 0: a few

    @nn.compact
    def __call__(
        self, x: Array, carry: PyTree, ended: Array | None = None, next_x: Array | None = None
    ) -> tuple[Array, Array | None, PyTree]:
        """Return the output, the output for `next_x`, and the carry afterwards.

        With `ended` [T, N], x is [T, N, features]: T steps, after each of which the carry of ended
        episodes is reset. `next_x` [T, N, features] are the true successors of x, each applied to
        the carry after the same step (and before its reset); they do not change the carry.
        """
        project = nn.Dense(GATES[self.kind] * self.size, bias_init=self._bias, name="input")
        gates = project(x)
        if self.kind == "mingru":
            next_gates = None if next_x is None else project(next_x)
            return _mingru(carry, gates, ended, next_gates)
        cell, weights = CELLS[self.kind], self._weights()
        if ended is None:
            carry = cell(carry, gates, _past(weights, carry))
            return _output(carry), None, carry
        if next_x is None:
            out, carry = _unroll(cell, weights, carry, gates, ended)  # type: ignore[misc]
            return out, None, carry

        def step(carry: PyTree, inputs: tuple):
            gates, next_gates, ended = inputs
            carry = cell(carry, gates, _past(weights, carry))
            after_next = cell(carry, next_gates, _past(weights, carry))
            return reset_carry(ended, carry), (_output(carry), _output(after_next))

        inputs = (gates, project(next_x), ended)
        carry, (out, next_out) = jax.lax.scan(step, carry, inputs, unroll=_num_unrolled())
        return out, next_out, carry

    def _weights(self) -> tuple[Array, Array]:
        """Return the recurrent weights: a matrix and a bias."""
        width = GATES[self.kind] * self.size
        recurrent = self.param("recurrent", _orthogonal_parts, (self.size, width))
        if self.kind == "lstm":  # its bias is that of the input projection
            return recurrent, jnp.zeros(width)
        bias = self.param("bias", nn.initializers.zeros, (self.size,))
        return recurrent, jnp.concatenate([jnp.zeros(width - self.size), bias])

    def _bias(self, key: Array, shape: tuple, dtype=jnp.float32) -> Array:
        """Return the initial bias, by which the gates remember for a while.

        With a timescale, a unit forgets a fraction of 1 / s in each step, s ~ U(2, timescale):
        chrono initialisation, Tallec and Ollivier, 2018. Without one, the forget gates of an LSTM
        are opened.
        """
        gates = jnp.zeros(shape, dtype).reshape(-1, self.size)
        if self.timescale:
            keep = jnp.log(jax.random.uniform(key, (self.size,), dtype, 2.0, self.timescale) - 1.0)
            for gate, sign in _REMEMBERING[self.kind].items():
                gates = gates.at[gate].set(sign * keep)
        elif self.kind == "lstm":
            gates = gates.at[1].set(1.0)
        return gates.reshape(shape)


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
    """Return the outputs of T steps and the carry after them.

    Plain differentiation sums the gradient of the weights step by step, one product each. Here
    the steps only compute the gradients of the gates, and one product over all steps gives that
    of the weights.
    """
    (out, _), carry = _forward(cell, weights, carry, gates, ended)
    return out, carry


def _forward(cell: Cell, weights: tuple[Array, Array], carry: PyTree, gates: Array, ended: Array):
    def step(carry: PyTree, inputs: tuple[Array, Array]):
        after = cell(carry, inputs[0], _past(weights, carry))
        return reset_carry(inputs[1], after), (_output(after), carry)

    carry, out_and_before = jax.lax.scan(step, carry, (gates, ended), unroll=_num_unrolled())
    return out_and_before, carry


def _num_unrolled() -> int:
    """Return the steps per loop iteration.

    On a GPU a step is a few small kernels, and the loop around it costs as much. A CPU gains
    nothing by unrolling, and compiles longer.
    """
    return 8 if jax.default_backend() == "gpu" else 1


def _unroll_forward(
    cell: Cell, weights: tuple[Array, Array], carry: PyTree, gates: Array, ended: Array
):
    (out, before), carry = _forward(cell, weights, carry, gates, ended)
    return (out, carry), (weights, before, gates, ended)


def _unroll_backward(cell: Cell, residuals: tuple, grads: tuple[Array, PyTree]):
    weights, before, gates, ended = residuals
    recurrent, bias = weights
    grad_out, grad_after = grads

    def step(grad_after: PyTree, inputs: tuple):
        before, gates, past, ended, grad_out = inputs
        grad = _add_to_output(reset_carry(ended, grad_after), grad_out)
        _, vjp = jax.vjp(cell, before, gates, past)
        grad_before, *grads = vjp(grad)
        return _add_to_output(grad_before, grads[1] @ recurrent.T), grads

    inputs = (before, gates, _past(weights, before), ended, grad_out)
    grad_before, (grad_gates, grad_past) = jax.lax.scan(
        step, grad_after, inputs, reverse=True, unroll=_num_unrolled()
    )
    grad_recurrent = jnp.einsum("tni,tnj->ij", _output(before), grad_past)
    grad_bias = jnp.sum(grad_past, axis=(0, 1))
    return (grad_recurrent, grad_bias), grad_before, grad_gates, None


_unroll.defvjp(_unroll_forward, _unroll_backward)


def _add_to_output(carry: PyTree, added: Array) -> PyTree:
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
# Gates whose bias decides how long a unit remembers: 1 keeps, −1 overwrites.
_REMEMBERING = {"lstm": {0: -1.0, 1: 1.0}, "gru": {1: 1.0}, "mingru": {0: -1.0}}


def _mingru(
    carry: Array, gates: Array, ended: Array | None, next_gates: Array | None
) -> tuple[Array, Array | None, Array]:
    """z, o = σ(·),  h' = (1 − z) h + z g,  y = o tanh(h').

    The gates follow from the input alone. Feng et al., Were RNNs all we needed?, 2024; the output
    gate is the LSTM's. Returns what `RNN` does.
    """
    keep, new, output_gate = _parts(gates)
    if ended is None:
        carry = keep * carry + new
        return output_gate * jnp.tanh(carry), None, carry
    hidden = _scan_linear(keep, new, carry, ended)
    next_out = None
    if next_gates is not None:
        next_keep, next_new, next_gate = _parts(next_gates)
        next_out = next_gate * jnp.tanh(next_keep * hidden + next_new)
    return output_gate * jnp.tanh(hidden), next_out, reset_carry(ended[-1], hidden[-1])


def _parts(gates: Array) -> tuple[Array, Array, Array]:
    """Return what a minGRU keeps of its carry, what it adds, and its output gate."""
    z, new, out = jnp.split(gates, 3, axis=-1)
    z = jax.nn.sigmoid(z)
    return 1.0 - z, z * new, jax.nn.sigmoid(out)


def _scan_linear(keep: Array, new: Array, carry: Array, ended: Array) -> Array:
    """Return h_t = keep_t h_{t−1} + new_t, [T, N, size], with h_{t−1} = 0 after an episode's end.

    A CPU has nothing to gain from parallel steps, and would compile them for a minute.
    """
    started = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    keep = jnp.where(started[..., None], 0.0, keep)
    new = new.at[0].add(keep[0] * carry)
    if jax.default_backend() != "cpu":
        return _scan_in_parallel(keep, new)

    def step(hidden: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        hidden = inputs[0] * hidden + inputs[1]
        return hidden, hidden

    return jax.lax.scan(step, jnp.zeros_like(carry), (keep, new))[1]


def _scan_in_parallel(keep: Array, new: Array) -> Array:
    """Return h_t = keep_t h_{t−1} + new_t, [T, ...], from h = 0.

    Two steps are one of the same form, (a₂ a₁) h + (a₂ b₁ + b₂): an associative operation, which
    is computed for T steps in about log₂ T parallel ones.
    """

    def combine(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return second[0] * first[0], second[0] * first[1] + second[1]

    return jax.lax.associative_scan(combine, (keep, new))[1]


def _orthogonal_parts(key: Array, shape: tuple[int, int]) -> Array:
    """Return an orthogonal square for each gate."""
    size, width = shape
    init = nn.initializers.orthogonal()
    keys = jax.random.split(key, width // size)
    return jnp.concatenate([init(k, (size, size), jnp.float32) for k in keys], axis=1)
