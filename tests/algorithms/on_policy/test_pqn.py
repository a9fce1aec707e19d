"""PQN: oracles for its targets and loss, its random actions, and probes with known answers."""

import functools
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import registry
from jaxrl.algorithms.on_policy import pqn
from jaxrl.config import NetworkConfig, PQNConfig, TrainConfig
from jaxrl.config.obs_keys import ACTION_MASK
from jaxrl.envs.tasks import probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.networks import actor_critic
from jaxrl.networks.actor_critic import network_obs
from jaxrl.types import ActionSpec, EnvSpec, Rollout
from tests.helpers.probing import Together

T, N, ACTIONS = 9, 5, 3
GAMMA, LAM = 0.9, 0.7


def _table():
    """Return networks whose values of an observation, a row number, are a row of a table."""

    def apply(params, obs, carry):
        values = params["values"][obs]
        return jnp.concatenate([values, jnp.ones_like(values[..., :1])], axis=-1), carry

    return SimpleNamespace(actor=SimpleNamespace(apply=apply))


def _rollout(rng):
    return Rollout(
        obs=jnp.asarray(rng.integers(0, 20, (T, N))),
        action=jnp.asarray(rng.integers(0, ACTIONS, (T, N))),
        reward=jnp.asarray(rng.normal(size=(T, N)), jnp.float32),
        terminated=jnp.asarray(rng.random((T, N)) < 0.2),
        truncated=jnp.asarray(rng.random((T, N)) < 0.2),
        next_obs=jnp.asarray(rng.integers(0, 20, (T, N))),
        extras=(),
        carry=(),
        episodes={},
    )


def _made():
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(20, ACTIONS)), jnp.float32)
    params, rollout = {"q": {"values": table}}, _rollout(rng)
    hparams = {"gamma": jnp.float32(GAMMA), "lam": jnp.float32(LAM)}
    return params, rollout, pqn.make_batch(_table(), params, hparams, rollout, None), hparams


def test_targets_are_sums_over_the_lengths_of_returns():
    """A λ-return is the mean of n-step returns, each weighted by (1 − λ) λ^(n − 1)."""
    params, rollout, batch, _ = _made()
    best = np.max(np.asarray(params["q"]["values"], np.float64), axis=1)
    steps = jax.tree.map(np.asarray, rollout)

    def n_step(t, row, n):
        total = 0.0
        for k in range(n):
            total += GAMMA**k * float(steps.reward[t + k, row])
            if steps.terminated[t + k, row]:
                return total
        return total + GAMMA**n * best[steps.next_obs[t + n - 1, row]]

    for t in range(T):
        for row in range(N):
            ended = (steps.terminated | steps.truncated)[t:, row]
            longest = 1 + int(np.argmax(ended)) if ended.any() else T - t
            weights = [(1 - LAM) * LAM ** (n - 1) for n in range(1, longest)]
            weights.append(LAM ** (longest - 1))
            expected = sum(w * n_step(t, row, n) for n, w in enumerate(weights, start=1))
            assert batch.target[t, row] == pytest.approx(expected, abs=1e-5)


def test_gradient_moves_the_values_of_taken_actions_towards_their_targets():
    params, rollout, batch, hparams = _made()
    grads = jax.grad(lambda p: pqn.loss(_table(), p, hparams, batch, None)[0])(params)
    expected = np.zeros((20, ACTIONS))
    for obs, action, target in zip(
        *(np.ravel(x) for x in (rollout.obs, rollout.action, batch.target)), strict=True
    ):
        expected[obs, action] += (params["q"]["values"][obs, action] - target) / (T * N)
    np.testing.assert_allclose(grads["q"]["values"], expected, atol=1e-6)


def test_bootstraps_from_valid_actions_only():
    spec = EnvSpec(
        {
            "state": jax.ShapeDtypeStruct((2,), jnp.float32),
            ACTION_MASK: jax.ShapeDtypeStruct((ACTIONS,), jnp.float32),
        },
        ActionSpec(ACTIONS, discrete=True),
    )
    config = TrainConfig(algo="pqn", network=NetworkConfig(hidden=(8,)))
    networks = registry.build_networks(config, spec)
    params = {"q": networks.actor.init(jax.random.key(0))}
    kernel = jax.random.normal(jax.random.key(1), (8, ACTIONS))
    params["q"]["params"]["head"]["kernel"] = kernel
    state = jax.random.normal(jax.random.key(2), (1, 6, 2))
    mask = jnp.asarray([[[0, 1, 1], [1, 0, 1], [1, 1, 0]] * 2], jnp.float32)

    def target(mask):
        zero = jnp.zeros((1, 6))
        obs = network_obs({"state": state, ACTION_MASK: mask})
        steps = Rollout(obs, zero.astype(int), zero, zero > 0, zero > 0, obs, (), (), {})
        hparams = {"gamma": 1.0, "lam": 0.0}
        return pqn.make_batch(networks, params, hparams, steps, None).target

    free = registry.build_networks(config, spec).actor.apply(
        params["q"], network_obs({"state": state, ACTION_MASK: jnp.ones_like(mask)}), ()
    )[0][..., :-1]
    expected = jnp.max(jnp.where(mask > 0, free, -jnp.inf), axis=-1)
    np.testing.assert_allclose(target(mask), expected, rtol=1e-6)
    assert (target(mask) < target(jnp.ones_like(mask))).any()


SETTINGS = PQNConfig(
    rollout_length=8,
    num_minibatches=2,
    update_epochs=4,
    learning_rate=1e-2,
    gamma=GAMMA,
    epsilon_end=0.2,
    epsilon_fraction=0.5,
    normalize_obs=False,
)
PROBES = ("action", "obs_action")


@functools.cache
def _program():
    """Compile the training of one network by two agents, and what it learned."""
    config = TrainConfig(algo="pqn", network=NetworkConfig(hidden=(32,)), pqn=SETTINGS)

    @jax.jit
    def run(iterations, obs):
        probe = Together([probes.PROBES[name] for name in PROBES])
        env = VectorEnv(probe, 16, probe.episode_length, pool_size=16)
        networks = registry.build_networks(config, env.spec)
        algorithm = registry.make(config, env, networks)
        state = algorithm.init(jax.random.key(0))
        state = state.replace(learner=state.learner.replace(total_iterations=iterations))
        learner = jax.lax.fori_loop(
            0, iterations, lambda _, state: algorithm.train_step(state)[0], state
        ).learner
        return networks.actor.apply(learner.params["q"], obs, ())[0]

    return run


@pytest.mark.learning
def test_two_agents_learn_the_values_of_their_probes():
    """The first agent always observes 0, the second −1 or 1."""
    found = _program()(100, jnp.asarray([[0], [-1], [1]], jnp.float32))
    np.testing.assert_allclose(found[:, :2], [[-1, 1], [1, -1], [-1, 1]], atol=0.1)


def test_random_actions_become_fewer_over_a_fraction_of_the_run():
    obs = jnp.ones((3, 1))
    for iterations, epsilon in ((0, 1.0), (40, 0.2)):
        assert _program()(iterations, obs)[0, -1] == pytest.approx(epsilon)
    quarter = pqn.make(SETTINGS, SimpleNamespace(actor=None)).explore(
        jnp.float32(0.25), {"params": {"epsilon": 1.0}}
    )
    assert quarter["params"]["epsilon"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "norm, layer_norm, used",
    [
        ("none", True, "layer"),
        ("none", False, "none"),
        ("rms", True, "rms"),
        ("rms", False, "rms"),
    ],
)
def test_layers_are_normalised_as_asked(norm, layer_norm, used):
    network = NetworkConfig(norm=norm)
    config = TrainConfig(algo="pqn", network=network, pqn=PQNConfig(layer_norm=layer_norm))
    assert registry.network_config(config).norm == used


def categorical(spec, config):
    """A network of one's own whose outputs are logits."""
    return actor_critic.build(spec, replace(config, distribution="tanh_normal"))


@pytest.mark.parametrize("algo", ["pqn", "dqn"])
def test_networks_that_choose_actions_by_logits_are_refused(algo):
    spec = EnvSpec(jax.ShapeDtypeStruct((2,), jnp.float32), ActionSpec(ACTIONS, discrete=True))
    config = TrainConfig(algo=algo, network=NetworkConfig(module=f"{__name__}:categorical"))
    with pytest.raises(UserError, match=f"by 'categorical', but --algo {algo} learns the values"):
        registry.build_networks(config, spec)
