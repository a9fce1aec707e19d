"""The recurrent layers against Flax cells, for single steps and whole segments."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic
from jaxrl.networks.recurrent import RNN, _scan_in_parallel, apply_layers, initial_carry
from jaxrl.types import ActionSpec, EnvSpec

T, N, F, SIZE = 7, 3, 5, 4
KEYS = jax.random.split(jax.random.key(0), 4)
X = jax.random.normal(KEYS[0], (T, N, F))
OTHER = jax.random.normal(KEYS[1], (T, N, F))
ENDED = jax.random.uniform(KEYS[2], (T, N)) < 0.3


def _carry(kind, layers=1):
    zeros = initial_carry(kind, SIZE, N, layers)
    return jax.tree.map(lambda leaf: jax.random.normal(KEYS[3], leaf.shape), zeros)


def _flax_params(kind, params):
    """Convert our weights to those of a Flax cell, which has one matrix per gate."""
    into, recurrent = params["input"], params["recurrent"]
    names = "ifgo" if kind == "lstm" else "rzn"

    def gate(matrix, i):
        return matrix[..., i * SIZE : (i + 1) * SIZE]

    cell = {}
    for i, name in enumerate(names):
        cell[f"i{name}"] = {"kernel": gate(into["kernel"], i)}
        cell[f"h{name}"] = {"kernel": gate(recurrent, i)}
        bias_side = "h" if kind == "lstm" else "i"
        cell[f"{bias_side}{name}"]["bias"] = gate(into["bias"], i)
    if kind == "gru":
        cell["hn"]["bias"] = params["bias"]
    return cell


def _random(params):
    keys = jax.random.split(jax.random.key(9), len(jax.tree.leaves(params)))
    leaves = [
        jax.random.normal(k, leaf.shape) * 0.5
        for k, leaf in zip(keys, jax.tree.leaves(params), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(params), leaves)


@functools.cache
def _module(kind):
    """Return a compiled `apply`, parameters and a carry."""
    module = RNN(kind, SIZE)

    @jax.jit
    def init():
        carry = _carry(kind)
        return _random(module.init(KEYS[0], X[0], carry)["params"]), carry

    params, carry = init()
    return jax.jit(module.apply), {"params": params}, carry


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_one_step_matches_flax_cell(kind):
    apply, params, carry = _module(kind)
    out, _, after = apply(params, X[0], carry)
    cell = nn.LSTMCell(SIZE) if kind == "lstm" else nn.GRUCell(SIZE)

    @jax.jit
    def flax_step(params):
        return cell.apply({"params": _flax_params(kind, params["params"])}, carry, X[0])

    theirs, expected = flax_step(params)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru"])
def test_segments_equal_single_steps_with_resets(kind):
    apply, params, carry = _module(kind)
    out, other_out, after = apply(params, X, carry, ENDED, OTHER)
    assert ENDED.any() and not ENDED.all()
    for t in range(T):
        expected, _, carry = apply(params, X[t], carry)
        np.testing.assert_allclose(out[t], expected, rtol=1e-5, atol=1e-6)
        other_expected, *_ = apply(params, OTHER[t], carry)
        np.testing.assert_allclose(other_out[t], other_expected, rtol=1e-5, atol=1e-6)
        carry = jax.tree.map(lambda leaf, t=t: np.where(ENDED[t][:, None], 0, leaf), carry)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(carry), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_parallel_steps_equal_single_steps():
    """What a GPU computes, with gradients."""
    keep, new = jax.nn.sigmoid(X), OTHER

    def loop(keep, new):
        hidden, found = jnp.zeros((N, F)), []
        for t in range(T):
            hidden = keep[t] * hidden + new[t]
            found.append(hidden)
        return jnp.stack(found)

    def value_and_gradients(scan):
        return jax.jit(jax.value_and_grad(lambda *a: jnp.sum(jnp.sin(scan(*a))), (0, 1)))(keep, new)

    np.testing.assert_allclose(_scan_in_parallel(keep, new), loop(keep, new), rtol=1e-5, atol=1e-6)
    ours, theirs = value_and_gradients(_scan_in_parallel), value_and_gradients(loop)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru"])
def test_segment_gradients_equal_single_steps(kind):
    apply, params, carry = _module(kind)

    def weighted_sum(outputs, carry):
        weights = jnp.cos(jnp.arange(T * N * SIZE)).reshape(T, N, SIZE)
        return jnp.sum(weights * jnp.stack(outputs)) + sum(map(jnp.sum, jax.tree.leaves(carry)))

    def at_once(params, carry, x):
        out, _, after = apply(params, x, carry, ENDED)
        return weighted_sum(list(out), after)

    def step_by_step(params, carry, x):
        outputs = []
        for t in range(T):
            out, _, carry = apply(params, x[t], carry)
            outputs.append(out)
            carry = jax.tree.map(lambda leaf, t=t: jnp.where(ENDED[t][:, None], 0.0, leaf), carry)
        return weighted_sum(outputs, carry)

    ours, plain = (
        jax.tree.leaves(jax.jit(jax.grad(function, (0, 1, 2)))(params, carry, X))
        for function in (at_once, step_by_step)
    )
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_lstm_init_opens_forget_gates_and_is_orthogonal():
    params = jax.jit(RNN("lstm", SIZE).init)(KEYS[0], X[0], _carry("lstm"))["params"]
    bias = np.asarray(params["input"]["bias"]).reshape(4, SIZE)
    np.testing.assert_array_equal(bias, [[0] * SIZE, [1] * SIZE, [0] * SIZE, [0] * SIZE])
    for gate in np.split(np.asarray(params["recurrent"]), 4, axis=1):
        np.testing.assert_allclose(gate @ gate.T, np.eye(SIZE), atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru"])
def test_timescale_is_how_long_a_carry_lasts(kind):
    """Without input, a unit forgets a fraction of 1 / s in each step, 2 < s < timescale."""
    module, size = RNN(kind, 64, timescale=50.0), 64
    zeros = jnp.zeros((1, 3))
    start = initial_carry(kind, size, 1)
    params = module.init(KEYS[0], zeros, start)["params"]
    if "recurrent" in params:  # the gates' biases alone
        params = params | {"recurrent": jnp.zeros_like(params["recurrent"])}
    cell = jnp.ones((1, size))
    carry = (cell, cell) if kind == "lstm" else cell
    _, _, after = module.apply({"params": params}, zeros, carry)
    kept = np.asarray(after[0] if kind == "lstm" else after)[0]
    steps = 1 / (1 - kept)
    assert 2 <= steps.min() < 10 and 40 < steps.max() <= 50


@pytest.mark.parametrize(
    "kind, who, layers",
    [
        ("lstm", "actor", 1),
        ("lstm", "critic", 2),
        ("gru", "both", 1),
        ("mingru", "both", 2),
    ],
)
def test_rnn_of_selects_the_recurrent_networks(kind, who, layers):
    spec = EnvSpec(jax.ShapeDtypeStruct((F,), jnp.float32), ActionSpec(2, False))
    config = NetworkConfig((6,), (6,), rnn=kind, rnn_size=SIZE, rnn_layers=layers, rnn_of=who)
    networks = actor_critic.build(spec, config)
    nets = {"actor": networks.actor, "critic": networks.critic}
    for name, network in nets.items():
        assert bool(jax.tree.leaves(network.initial_carry(N))) == (who in (name, "both"))
    start = {name: _carry(kind, layers) if who in (name, "both") else () for name in nets}

    @jax.jit
    def at_once():
        params = {"actor": nets["actor"].init(KEYS[0]), "critic": nets["critic"].init(KEYS[1])}
        values = networks.values(params["critic"], X, OTHER, start["critic"], ENDED)
        return params, networks.forward(params, X, start, ENDED), values

    @jax.jit
    def step(params, x, other, carry):
        steps = [nets[name].apply(params[name], x, carry[name]) for name in nets]
        return *steps, networks.critic.apply(params["critic"], other, steps[1][1])[0]

    params, (output, value), (values, next_values, _) = at_once()
    carry = start
    for t in range(T):
        (out_t, carry_a), (value_t, carry_c), next_value_t = step(params, X[t], OTHER[t], carry)
        np.testing.assert_allclose(output[t], out_t, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value[t], value_t, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values[t], value_t, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(next_values[t], next_value_t, rtol=1e-4, atol=1e-5)
        carry = jax.tree.map(
            lambda leaf, t=t: jnp.where(ENDED[t][:, None], 0, leaf),
            {"actor": carry_a, "critic": carry_c},
        )


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _numpy_cell(kind, params, x, carry):
    """Return output and carry of one layer after one step, by the formulas of the papers."""
    into = x @ params["input"]["kernel"] + params["input"]["bias"]
    if kind == "mingru":
        z, new, gate = np.split(into, 3, axis=-1)
        hidden = (1 - _sigmoid(z)) * carry + _sigmoid(z) * new
        return _sigmoid(gate) * np.tanh(hidden), hidden
    past = (carry[1] if kind == "lstm" else carry) @ params["recurrent"]
    if kind == "lstm":
        i, f, g, o = np.split(into + past, 4, axis=-1)
        cell = _sigmoid(f) * carry[0] + _sigmoid(i) * np.tanh(g)
        out = _sigmoid(o) * np.tanh(cell)
        return out, (cell, out)
    (r, z, n), (past_r, past_z, past_n) = np.split(into, 3, -1), np.split(past, 3, -1)
    z = _sigmoid(z + past_z)
    new = np.tanh(n + _sigmoid(r + past_r) * (past_n + params["bias"]))
    return (out := (1 - z) * new + z * carry), out


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru"])
def test_two_layers_equal_a_loop_over_layers_and_steps(kind):
    module = RNN(kind, SIZE)
    inputs = X[0], jnp.zeros((N, SIZE))

    @jax.jit
    def init():
        layers = [_random(module.init(KEYS[0], x, _carry(kind))["params"]) for x in inputs]
        layers[1] = jax.tree.map(lambda leaf: -0.7 * leaf, layers[1])  # others than the first's
        return layers, _carry(kind, layers=2)

    layers, start = init()

    @jax.jit
    def at_once():
        apply = [functools.partial(module.apply, {"params": params}) for params in layers]
        return apply_layers(apply, X, start, ENDED, OTHER)

    def loop(x, carries):
        """Return the output of the last layer and the carries of all, after one step."""
        after = []
        for params, carry in zip(jax.tree.map(np.asarray, layers), carries, strict=True):
            x, carry = _numpy_cell(kind, params, x, carry)
            after.append(carry)
        return x, after

    out, next_out, carry = at_once()
    carries = jax.tree.map(np.asarray, start)
    for t in range(T):
        expected, carries = loop(np.asarray(X[t]), carries)
        np.testing.assert_allclose(out[t], expected, rtol=1e-4, atol=1e-5)
        expected, _ = loop(np.asarray(OTHER[t]), carries)
        np.testing.assert_allclose(next_out[t], expected, rtol=1e-4, atol=1e-5)
        carries = jax.tree.map(lambda leaf, t=t: np.where(ENDED[t][:, None], 0, leaf), carries)
    for a, b in zip(jax.tree.leaves(carry), jax.tree.leaves(carries), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_second_layer_leaves_the_first_as_it_is(kind):
    """One layer has the parameters and the carry that policy files and checkpoints hold."""
    spec = EnvSpec(jax.ShapeDtypeStruct((F,), jnp.float32), ActionSpec(2, False))
    one, two = (
        actor_critic.build(spec, NetworkConfig((6,), (6,), rnn=kind, rnn_size=SIZE, rnn_layers=n))
        for n in (1, 2)
    )
    params, more = jax.jit(
        lambda: [
            {"actor": n.actor.init(KEYS[0]), "critic": n.critic.init(KEYS[1])} for n in (one, two)
        ]
    )()
    for name in ("actor", "critic"):
        assert sorted(more[name]["params"]) == sorted([*params[name]["params"], "memory_1"])
        del more[name]["params"]["memory_1"]
    jax.tree.map(np.testing.assert_array_equal, params, more)
    zeros = np.zeros((N, SIZE), np.float32)
    carry = (zeros, zeros) if kind == "lstm" else zeros
    for network in (one.actor, one.critic):
        jax.tree.map(np.testing.assert_array_equal, network.initial_carry(N), carry)
    for network in (two.actor, two.critic):
        jax.tree.map(np.testing.assert_array_equal, network.initial_carry(N), (carry, carry))
