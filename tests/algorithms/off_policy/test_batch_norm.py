"""Critics with BatchNorm and residual blocks against NumPy; weights of norm 1."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.off_policy import algorithm as off_policy
from jaxrl.algorithms.off_policy import base, sac, td3
from jaxrl.algorithms.policy import sample_action
from jaxrl.config import NetworkConfig, OffPolicyConfig, TrainConfig, validate
from jaxrl.learning import optimizer
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks import actor_critic, q_network
from jaxrl.networks.mlp import unit_weights
from jaxrl.types import ActionSpec, EnvSpec

B, GAMMA = 6, jnp.float32(0.9)
SPEC = EnvSpec(jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec(2, False))
NETWORK = NetworkConfig((5,), (4,), activation="relu", norm="rms", residual_blocks=1)
CONFIG = OffPolicyConfig(
    critic_norm="batch", unit_weights=True, max_grad_norm=0.0, polyak=0.5, alpha_init=1e-9
)
CRITIC = q_network.build(SPEC, NETWORK, norm="batch")
TWIN = base.TwinCritic(CONFIG, CRITIC)


def _batch(seed=0):
    keys = jax.random.split(jax.random.key(seed), 5)
    return Transition(
        obs=jax.random.normal(keys[0], (B, 3)),
        action=jax.random.uniform(keys[1], (B, 2), minval=-1.0),
        reward=jax.random.normal(keys[2], (B,)),
        terminated=jnp.arange(B) % 3 == 0,
        next_obs=2.0 + jax.random.normal(keys[3], (B, 3)),
    )


NEXT_ACTION = jnp.linspace(-1.0, 1.0, 2 * B).reshape(B, 2)


def _params(seed):
    """Return random parameters, none of them 0."""
    random = np.random.default_rng(seed)
    shapes = jax.eval_shape(CRITIC.init, jax.random.key(0))
    return jax.tree.map(lambda s: jnp.float32(random.normal(0.3, 0.7, s.shape)), shapes)


def _values(params, inputs, of):
    """Return the values of rows in NumPy, normalised by the statistics of the rows `of`."""
    result = []
    for i in range(2):
        one = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i], np.float64), params["params"])
        layers = one["MLP_0"]

        def layer(x, k, layers=layers):
            dense, norm = layers[f"Dense_{k}"], layers[f"BatchNorm_{k}"]
            x = x @ dense["kernel"] + dense["bias"]
            x = (x - x[of].mean(axis=0)) / np.sqrt(x[of].var(axis=0) + 1e-5)
            return np.maximum(x * norm["scale"] + norm["bias"], 0.0)

        x = layer(inputs, 0)
        x = x + layer(layer(x, 1), 2)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)
        x = x * layers["last_norm"]["scale"]
        result.append(x @ one["head"]["kernel"][:, 0] + one["head"]["bias"])
    return np.stack(result)


def _both_ends(batch):
    now = np.concatenate([batch.obs, batch.action], axis=1)
    return np.concatenate([now, np.concatenate([batch.next_obs, NEXT_ACTION], axis=1)])


def test_both_ends_of_a_transition_are_one_batch():
    """(s, a) and (s', a') share their statistics, for the critics and for the target critics."""
    params, target_params, batch = _params(1), _params(2), _batch()
    everything = slice(None)
    now = _values(params, _both_ends(batch), everything)[:, :B]
    later = _values(target_params, _both_ends(batch), everything)[:, B:].min(axis=0)
    target = np.asarray(batch.reward) + 0.9 * np.where(batch.terminated, 0.0, later)
    expected = 0.5 * ((now - target) ** 2).mean(axis=1).sum()
    loss = jax.jit(lambda *args: TWIN.loss(*args, batch, NEXT_ACTION, 0.0, GAMMA)[0])
    np.testing.assert_allclose(loss(params, target_params), expected, rtol=1e-4)


def test_gradient_goes_through_the_statistics():
    """A constant added to all inputs of a layer changes no value behind it."""
    params, batch = _params(1), _batch()
    gradient = jax.jit(
        jax.grad(lambda p: TWIN.loss(p, _params(2), batch, NEXT_ACTION, 0.0, GAMMA)[0])
    )(params)
    layers = gradient["params"]["MLP_0"]
    for k in range(3):
        np.testing.assert_allclose(layers[f"Dense_{k}"]["bias"], 0.0, atol=1e-5)
        assert np.abs(layers[f"Dense_{k}"]["kernel"]).max() > 1e-3


def test_the_actor_is_judged_with_the_statistics_of_the_critics_loss():
    """Which other actions are judged beside an action must not matter."""
    params, batch = _params(1), _batch()
    action = jnp.flip(NEXT_ACTION, axis=0)

    @jax.jit
    def values(obs, action):
        fixed = TWIN.with_stats(params, batch, NEXT_ACTION)
        return TWIN.values(fixed, obs, action)

    rows = np.concatenate([_both_ends(batch), np.concatenate([batch.obs, action], axis=1)])
    expected = _values(params, rows, slice(0, 2 * B))[:, 2 * B :]
    np.testing.assert_allclose(values(batch.obs, action), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values(batch.obs[:1], action[:1]), expected[:, :1], atol=1e-5)


@pytest.mark.parametrize("algo", ["sac", "td3", "cql"])
def test_losses_of_the_actor_use_those_statistics(algo):
    networks = actor_critic.build(SPEC, replace(NETWORK, distribution=DISTRIBUTION[algo]))
    config = replace(CONFIG, cql_alpha=1.0 if algo == "cql" else 0.0, pessimism="mean")
    seen = []

    def with_stats(params, obs, action):
        seen.append((obs, action))
        return CRITIC.with_stats(params, obs, action)

    critic = CRITIC._replace(with_stats=with_stats)
    make = td3.make if algo == "td3" else partial(sac.make, action_size=2)
    algorithm = make(config, networks, critic)
    batch = _batch()

    @jax.jit
    def losses(key):
        params = algorithm.init(key) | {"critic": _params(1)}
        targets = {name: params[name] for name in algorithm.targets}
        hparams = {name: jnp.float32(x) for name, x in HPARAMS.items()}
        metrics = algorithm.losses(params, targets, batch, key, hparams)[1]
        # The actions that the actor's loss judges, by the same random numbers.
        action = actions(params, key)
        fixed = CRITIC.with_stats(params["critic"], *seen[-1])
        return metrics["train/pi_loss"].total, TWIN.values(fixed, batch.obs, action), seen[-1]

    def actions(params, key):
        if algo == "td3":
            out, _ = networks.actor.apply(params["actor"], batch.obs, ())
            return networks.distribution.mode(out)
        return sample_action(networks, params["actor"], batch.obs, jax.random.split(key)[0])[0]

    found, values, (obs, action) = losses(jax.random.key(4))
    assert len(seen) == (2 if algo == "cql" else 1)  # the gap of CQL uses them too
    assert obs.shape == (2 * B, 3) and action.shape == (2 * B, 2)
    np.testing.assert_array_equal(obs, np.concatenate([batch.obs, batch.next_obs]))
    np.testing.assert_array_equal(action[:B], batch.action)
    expected = values[0] if algo == "td3" else values.mean(axis=0)  # entropy weighs nothing
    np.testing.assert_allclose(found, -expected.mean(), rtol=1e-4, atol=1e-5)


DISTRIBUTION = {"sac": "tanh_normal", "cql": "tanh_normal", "td3": "noisy"}
HPARAMS = {"gamma": 0.9, "target_entropy": -1.0, "cql_alpha": 1.0}
HPARAMS |= {"target_noise": 0.2, "target_noise_clip": 0.5}


@pytest.fixture(scope="module")
def stepped():
    """SAC's learner before and after a gradient step."""
    networks = actor_critic.build(SPEC, NETWORK)
    algorithm = sac.make(CONFIG, networks, CRITIC, 2)
    buffer = type("Buffer", (), {"spec": SPEC})()
    run = off_policy.OffPolicy(CONFIG, networks, algorithm, None, buffer, 10)  # type: ignore[arg-type]

    @jax.jit
    def steps():
        first = off_policy.init_learner(run, jax.random.key(0), jax.random.key(1))
        vectors, unravel = optimizer.flatten(first.params)
        targets, _ = optimizer.flatten(first.target_params)
        learner = first.replace(params=vectors, target_params=targets)
        batch = off_policy.Batch(_batch(), (), jax.random.key(2))
        after, _ = off_policy.gradient_step(run, unravel, learner, batch)
        params = {name: unravel[name](vector) for name, vector in after.params.items()}
        target_params = {n: unravel[n](vector) for n, vector in after.target_params.items()}
        return first, after.replace(params=params, target_params=target_params)

    return steps()


def _kernels(params):
    """Return the hidden layers' weights by their path."""
    paths = jax.tree_util.tree_leaves_with_path(params)
    named = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    return {name: leaf for name, leaf in named.items() if "MLP" in name and "kernel" in name}


def test_weights_have_norm_1_before_and_after_a_step(stepped):
    for learner in stepped:
        kernels = _kernels(learner.params)
        assert len(kernels) == 6  # three layers of the actor, three of the critics
        for kernel in kernels.values():
            np.testing.assert_allclose(jnp.linalg.norm(kernel, axis=-2), 1.0, rtol=1e-5)
    before, after = (_kernels(learner.params) for learner in stepped)
    assert all(np.abs(before[name] - after[name]).max() > 1e-5 for name in before)


def test_target_networks_follow_the_scaled_weights(stepped):
    before, after = stepped
    for old, new, now in zip(
        *(jax.tree.leaves(x) for x in (before.target_params, after.target_params)),
        jax.tree.leaves({"critic": after.params["critic"]}),
        strict=True,
    ):
        np.testing.assert_allclose(new, 0.5 * old + 0.5 * now, atol=1e-6)


def test_scaling_leaves_other_parameters():
    params = {"critic": _params(1), "alpha": {"log": jnp.float32(3.0)}}
    leaves = jax.tree_util.tree_leaves_with_path
    for (path, old), (_, new) in zip(leaves(params), leaves(unit_weights(params)), strict=True):
        name = jax.tree_util.keystr(path)
        assert np.array_equal(old, new) != ("MLP" in name and "kernel" in name), name


def test_statistics_are_not_stored():
    assert set(jax.eval_shape(CRITIC.init, jax.random.key(0))) == {"params"}


def test_dqn_refuses_batch_norm():
    config = TrainConfig(env="cartpole", algo="dqn", offpolicy=OffPolicyConfig(critic_norm="batch"))
    (problem,) = validate.validate(config)
    assert "--offpolicy.critic-norm" in problem and "layer" in problem
