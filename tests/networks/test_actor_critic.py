"""Check actor and critic: shapes, initial values, and the inputs of each."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic
from jaxrl.networks.mlp import ACTIVATIONS, MLP
from jaxrl.types import ActionSpec, EnvSpec

KEY = jax.random.key(0)
OBS, ACTIONS = 5, 3
FLAT = jax.ShapeDtypeStruct((OBS,), jnp.float32)
SMALL = {"hidden": (16, 8), "critic_hidden": (12, 6)}
STDS = [(0.05, "orthogonal"), (0.7, "lecun"), (2.0, "orthogonal")]


_BUILT = {}


def _build(obs=FLAT, discrete=False, **settings):
    """Return compiled networks, the same ones for the same settings."""
    key = repr((obs, discrete, sorted(settings.items())))
    if key not in _BUILT:
        _BUILT[key] = _networks(obs, discrete, settings)
    return _BUILT[key]


def _networks(obs, discrete, settings):
    spec = EnvSpec(obs, ActionSpec(ACTIONS, discrete))
    networks = actor_critic.build(spec, NetworkConfig(**{**SMALL, **settings}))
    # One program each is faster here than compiling every operation.
    return networks._replace(actor=_compiled(networks.actor), critic=_compiled(networks.critic))


def _compiled(network):
    return network._replace(init=jax.jit(network.init), apply=jax.jit(network.apply))


def _dict_spec(**sizes):
    return {name: jax.ShapeDtypeStruct((n,), jnp.float32) for name, n in sizes.items()}


def _leaves(params, name):
    """Return all parameters of one kind, by path."""
    paths = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path): x for path, x in paths if name in str(path[-1])}


def _initial_std(**settings):
    """Return the standard deviations of an initial policy at normalized observations."""
    networks = _build(**settings)
    obs = jax.random.normal(KEY, (200, OBS))
    out, _ = networks.actor.apply(networks.actor.init(jax.random.key(1)), obs, ())
    return np.asarray(networks.distribution.std(out))


@pytest.mark.parametrize(
    "init_std, distribution, init",
    [
        (0.05, "normal", "lecun"),
        (0.05, "tanh_normal", "orthogonal"),
        (0.7, "normal", "orthogonal"),
        (2.0, "tanh_normal", "lecun"),
    ],
)
def test_free_std_starts_at_init_std(init_std, distribution, init):
    std = _initial_std(
        state_dependent_std=False, init_std=init_std, distribution=distribution, init=init
    )
    np.testing.assert_allclose(std, init_std, rtol=1e-5)


@pytest.mark.parametrize("init_std, init", STDS)
def test_state_dependent_std_starts_at_init_std_for_zero_features(init_std, init):
    networks = _build(init_std=init_std, init=init)
    out, _ = networks.actor.apply(networks.actor.init(KEY), jnp.zeros((200, OBS)), ())
    std = networks.distribution.std(out)
    # All biases start at 0, so the heads give 0; min_std (0.001) is added on top.
    np.testing.assert_allclose(std, init_std + 1e-3, rtol=1e-4)
    np.testing.assert_allclose(networks.distribution.mode(out), 0.0, atol=1e-6)


@pytest.mark.parametrize("init_std, init", STDS)
def test_state_dependent_std_starts_at_init_std(init_std, init):
    std = _initial_std(init_std=init_std, init=init)
    np.testing.assert_allclose(std, init_std, rtol=0.05)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("init", ["lecun", "orthogonal"])
def test_initial_policy_hardly_depends_on_the_observation(init, discrete):
    networks = _build(init=init, discrete=discrete)
    obs = jax.random.normal(KEY, (200, OBS))
    out, _ = networks.actor.apply(networks.actor.init(KEY), obs, ())
    assert np.max(np.abs(out[:, :ACTIONS])) < 0.1


@pytest.mark.parametrize("state_dependent", [True, False])
def test_std_never_falls_below_its_minimum(state_dependent):
    networks = _build(state_dependent_std=state_dependent, min_std=0.02)
    params = networks.actor.init(KEY)
    if state_dependent:
        head = params["params"]["std_head"]
        head["bias"] = head["bias"] - 100.0
    else:
        params["params"]["log_std"] = params["params"]["log_std"] - 100.0
    out, _ = networks.actor.apply(params, jnp.ones((4, OBS)), ())
    np.testing.assert_allclose(networks.distribution.std(out), 0.02, rtol=1e-4)


def test_free_log_std_is_a_parameter():
    networks = _build(state_dependent_std=False)
    params = networks.actor.init(KEY)
    assert params["params"]["log_std"].shape == (ACTIONS,)
    assert "std_head" not in params["params"]
    wanted = jnp.log(jnp.array([0.1, 0.2, 0.3]))
    params["params"]["log_std"] = wanted
    out, _ = networks.actor.apply(params, jax.random.normal(KEY, (4, OBS)), ())
    np.testing.assert_allclose(networks.distribution.std(out), [[0.1, 0.2, 0.3]] * 4, rtol=1e-5)
    grad = jax.grad(lambda p: jnp.sum(networks.actor.apply(p, jnp.zeros((4, OBS)), ())[0]))(params)
    np.testing.assert_allclose(grad["params"]["log_std"], 4.0)
    # With a state-dependent std there is no such parameter.
    assert "log_std" not in _build().actor.init(KEY)["params"]


def test_orthogonal_init():
    networks = _build(init="orthogonal")
    for network, head_gain in ((networks.actor, 0.01), (networks.critic, 1.0)):
        kernels = _leaves(network.init(KEY), "kernel")
        assert len(kernels) >= 3
        for path, kernel in kernels.items():
            gain = head_gain if "head" in path else np.sqrt(2)
            rows, columns = kernel.shape
            gram = kernel @ kernel.T if rows < columns else kernel.T @ kernel
            np.testing.assert_allclose(gram, gain**2 * np.eye(min(rows, columns)), atol=1e-5)


def test_lecun_init():
    networks = _build(obs=jax.ShapeDtypeStruct((300,), jnp.float32), critic_hidden=(200, 100))
    for path, kernel in _leaves(networks.critic.init(KEY), "kernel").items():
        if "head" not in path:
            np.testing.assert_allclose(np.var(kernel), 1 / kernel.shape[0], rtol=0.05)


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_norm(norm):
    networks = _build(norm=norm)
    for network, widths in ((networks.actor, (16, 8)), (networks.critic, (12, 6))):
        params = network.init(KEY)
        scales = [x.shape for x in _leaves(params, "scale").values()]
        assert sorted(scales) == ([] if norm == "none" else sorted((w,) for w in widths))
        # With zero biases, normalisation removes the scale of the input.
        one, _ = network.apply(params, jnp.ones((1, OBS)), ())
        two, _ = network.apply(params, 3 * jnp.ones((1, OBS)), ())
        assert np.allclose(one, two, atol=1e-3) == (norm != "none")


def test_widths():
    networks = _build()
    actor = sorted(x.shape for x in _leaves(networks.actor.init(KEY), "kernel").values())
    critic = sorted(x.shape for x in _leaves(networks.critic.init(KEY), "kernel").values())
    assert actor == sorted([(OBS, 16), (16, 8), (8, ACTIONS), (8, ACTIONS)])
    assert critic == sorted([(OBS, 12), (12, 6), (6, 1)])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mlp_equals_numpy(activation):
    def tanh_gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    functions = {
        "swish": lambda x: x / (1 + np.exp(-x)),
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
        "gelu": tanh_gelu,
    }
    mlp = MLP((7, 4), activation)
    x = jax.random.normal(KEY, (6, OBS))
    params = jax.jit(nn.init(lambda module, x: module(x), mlp))(KEY, x)
    # Biases start at 0; give them values, so that they count.
    params = jax.tree.map(lambda p: p + 0.1, params)
    expected = np.asarray(x, np.float64)
    for layer in ("Dense_0", "Dense_1"):
        weights = params["params"][layer]
        expected = functions[activation](
            expected @ np.asarray(weights["kernel"]) + np.asarray(weights["bias"])
        )
    np.testing.assert_allclose(jax.jit(mlp.apply)(params, x), expected, rtol=1e-4, atol=1e-5)


def test_only_the_critic_sees_privileged_state():
    networks = _build(_dict_spec(state=4, extra=2, privileged_state=6))
    keys = jax.random.split(KEY, 6)
    names = {"state": 4, "extra": 2, "privileged_state": 6}
    obs = {n: jax.random.normal(k, (3, s)) for k, (n, s) in zip(keys, names.items(), strict=False)}
    actor, critic = networks.actor.init(keys[4]), networks.critic.init(keys[5])
    assert actor["params"]["MLP_0"]["Dense_0"]["kernel"].shape == (6, 16)
    assert critic["params"]["MLP_0"]["Dense_0"]["kernel"].shape == (6, 12)

    def sensitivity(network, params):
        slope = jax.grad(lambda o: jnp.sum(jnp.square(network.apply(params, o, ())[0])))
        grads = jax.jit(slope)(obs)
        return {name: bool(jnp.any(g != 0)) for name, g in grads.items()}

    assert sensitivity(networks.actor, actor) == {
        "state": True,
        "extra": True,
        "privileged_state": False,
    }
    assert sensitivity(networks.critic, critic) == {
        "state": False,
        "extra": False,
        "privileged_state": True,
    }


def test_dict_obs_are_concatenated_for_both_networks():
    networks = _build(_dict_spec(b=2, a=3))
    a, b = jax.random.normal(KEY, (4, 3)), jax.random.normal(jax.random.key(1), (4, 2))
    flat = _build()
    for network, plain in ((networks.actor, flat.actor), (networks.critic, flat.critic)):
        params = network.init(KEY)
        out, _ = network.apply(params, {"b": b, "a": a}, ())
        expected, _ = plain.apply(params, jnp.concatenate([a, b], axis=-1), ())
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("state_dependent", [True, False])
def test_gradient_reaches_every_parameter(state_dependent):
    networks = _build(state_dependent_std=state_dependent, norm="layer", activation="tanh")
    obs = jax.random.normal(KEY, (32, OBS))
    for network in (networks.actor, networks.critic):
        slope = jax.grad(lambda p, net=network: jnp.sum(net.apply(p, obs, ())[0] ** 2))
        grads = jax.jit(slope)(network.init(KEY))
        for path, grad in jax.tree_util.tree_leaves_with_path(grads):
            assert np.all(np.isfinite(grad)), path
            assert np.any(np.asarray(grad) != 0), path


@pytest.mark.parametrize("distribution", ["normal", "tanh_normal"])
def test_discrete_actions(distribution):
    networks = _build(discrete=True, distribution=distribution)
    assert networks.distribution.param_size == ACTIONS
    params = networks.actor.init(KEY)
    assert set(params["params"]) == {"MLP_0", "head"}
    out, _ = networks.actor.apply(params, jnp.ones((7, OBS)), ())
    assert out.shape == (7, ACTIONS)
    assert networks.distribution.sample(out, KEY).shape == (7,)


@pytest.mark.parametrize(("state_dependent", "norm"), [(True, "layer"), (False, "none")])
def test_leading_axes_and_rows(state_dependent, norm):
    networks = _build(state_dependent_std=state_dependent, norm=norm)
    obs = jax.random.normal(KEY, (4, 3, OBS))
    for network, tail in ((networks.actor, (2 * ACTIONS,)), (networks.critic, ())):
        params = network.init(KEY)
        whole, _ = network.apply(params, obs, ())
        assert whole.shape == (4, 3, *tail)
        assert whole.dtype == jnp.float32
        for t in range(4):
            for n in range(3):
                row, _ = network.apply(params, obs[t, n], ())
                np.testing.assert_allclose(whole[t, n], row, rtol=1e-5, atol=1e-5)


def test_feedforward_carry_is_empty():
    networks = _build()
    for network in (networks.actor, networks.critic):
        assert network.initial_carry(8) == ()
        _, carry = network.apply(network.init(KEY), jnp.zeros((1, OBS)), ())
        assert carry == ()


def test_parameters_depend_on_the_key():
    actor = _build().actor
    first, again, other = (
        actor.init(jax.random.key(seed))["params"]["head"]["kernel"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": (8, 8), "critic_hidden": (8, 8)},  # equal widths: one batched product per layer
        {
            "hidden": (8, 8),
            "critic_hidden": (8, 8),
            "norm": "layer",
            "state_dependent_std": False,
        },
        {},  # different widths: separate products
    ],
)
def test_forward_equals_separate_actor_and_critic(settings):
    networks = _build(**settings)
    params = {"actor": networks.actor.init(KEY), "critic": networks.critic.init(KEY)}
    obs = jax.random.normal(KEY, (3, 5, OBS))

    def together(params):
        return networks.forward(params, obs, {"actor": (), "critic": ()}, ())

    def alone(params):
        output, _ = networks.actor.apply(params["actor"], obs, ())
        return output, networks.critic.apply(params["critic"], obs, ())[0]

    def slope(function):
        return jax.jit(jax.grad(lambda p: sum(jnp.sum(jnp.sin(out)) for out in function(p))))

    for a, b in zip(jax.jit(together)(params), alone(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    slopes = [jax.tree.leaves(slope(function)(params)) for function in (together, alone)]
    for a, b in zip(*slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_bfloat16_is_internal_and_close_to_float32():
    exact, coarse = _build(), _build(precision="bfloat16")
    params, obs = exact.actor.init(KEY), jax.random.normal(KEY, (16, OBS))
    for leaf in jax.tree.leaves(coarse.actor.init(KEY)):
        assert leaf.dtype == jnp.float32
    one, other = (network.actor.apply(params, obs, ())[0] for network in (exact, coarse))
    assert other.dtype == jnp.float32
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(one, other, atol=2e-2)
