"""Learning from recorded episodes: losses by hand, and data whose best policy is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.off_policy import bc, iql, td3
from jaxrl.config import (
    DataConfig,
    NetworkConfig,
    OffPolicyConfig,
    RRDConfig,
    TaskConfig,
    TrainConfig,
)
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks import actor_critic, q_network
from jaxrl.programs import offline
from jaxrl.types import ActionSpec, EnvSpec
from tests.helpers import recorded

NETWORK = NetworkConfig((16,), (32,), activation="tanh")
SETTINGS = OffPolicyConfig(
    train_batches=20,
    batch_size=64,
    gamma=0.0,  # rewards of the bandit depend on nothing else
    pi_lr=1e-2,
    q_lr=1e-2,
    r_lr=1e-2,
    polyak=0.9,
    alpha_init=0.01,
    alpha_lr=0.0,
    awr_beta=10.0,
)
RRD = RRDConfig(batch_size=128, sample_size=8)
OBS = np.random.default_rng(1).uniform(-0.8, 0.8, (200, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    recorded.write_bandit(folder / "continuous.hdf5")
    recorded.write_bandit(folder / "discrete.hdf5", discrete=True)
    recorded.write_bandit(folder / "many.hdf5", episodes=400, length=5)
    return folder


def build(path, algo, *, iterations=20, task=None, rrd=RRD, **changes):
    config = TrainConfig(
        env="offline",
        algo=algo,
        iterations=iterations,
        epochs=1,
        cycles=1,
        task=task or TaskConfig(),
        network=NETWORK,
        offpolicy=replace(SETTINGS, **changes),
        rrd=rrd,
        data=DataConfig(path=path, normalize_returns=False),
    )
    return offline.build(config)


def learn(*arguments, **settings):
    """Return the program and its state after training, with the metrics of the last cycle."""
    program = build(*arguments, **settings)
    executor = program.start()
    executor.wait()
    state, metrics = executor.run_cycle(executor.init_state(), 0)
    executor.close()
    means = {name: float(np.sum(m.total) / np.sum(m.count)) for name, m in metrics.items()}
    return program, state, means


def actions(program, state):
    """Return the deterministic policy's actions for `OBS`."""
    params = program.policy_params(state.learner)
    return np.asarray(program.algorithm.policy(True)(params, OBS, (), jax.random.key(0))[0])


def test_bc_learns_the_mean_action(data):
    program, state, metrics = learn(data / "continuous.hdf5", "bc")
    assert np.abs(actions(program, state)).mean() < 0.15
    assert metrics["heldout/action_error"] == pytest.approx(1 / 3, rel=0.3)  # var of U(-1, 1)
    assert "heldout/q_loss" not in metrics


@pytest.mark.parametrize(
    "algo, changes",
    [("td3", {"bc_alpha": 20.0}), ("sac", {"cql_alpha": 0.1, "iterations": 14})],
)
def test_rewards_teach_the_best_actions(data, algo, changes):
    program, state, metrics = learn(data / "continuous.hdf5", algo, **changes)
    assert np.abs(actions(program, state)[:, 0] - OBS[:, 0]).mean() < 0.2
    assert metrics["heldout/q_loss"] < 0.05 and metrics["heldout/action_error"] > 0.2


@pytest.mark.parametrize("algo", ["dqn", "iql"])
def test_rewards_teach_the_best_discrete_actions(data, algo):
    program, state, metrics = learn(data / "discrete.hdf5", algo)
    clear = np.abs(OBS[:, 0]) > 0.1
    wrong = actions(program, state) != recorded.best_discrete(OBS)
    assert wrong[clear].mean() < 0.05
    assert 0.3 < metrics["heldout/action_error"] < 0.7  # recorded actions are random


def test_bc_clones_discrete_actions(data, tmp_path):
    program, _, metrics = learn(data / "discrete.hdf5", "bc", iterations=2)
    assert program.spec.action == ActionSpec(2, discrete=True)
    assert 0.3 < metrics["heldout/action_error"] < 0.7


def test_episode_returns_alone_teach_the_best_actions(data):
    """All rewards are given at the end of an episode: RRD gives each step its part."""
    task = TaskConfig(episodic_reward=True)
    program, state, metrics = learn(
        data / "many.hdf5",
        "iql",
        iterations=40,
        task=task,
        reward="rrd",
        rrd=RRDConfig(320, 5),
    )
    assert np.abs(actions(program, state)[:, 0] - OBS[:, 0]).mean() < 0.15
    assert metrics["heldout/reward_error"] < 0.05  # of rewards that were not shown
    assert metrics["heldout/q_loss"] < 0.05 and metrics["heldout/action_error"] > 0.2
    assert set(program.networks(state.learner)) == {"policies", "rewards"}


def test_sums_at_the_end_are_given_once(data):
    task = TaskConfig(episodic_reward=True)
    program = build(data / "continuous.hdf5", "bc", task=task)
    ring, index = program.data.chunk(0)
    rewards = np.asarray(ring.steps.reward[0]).reshape(-1, 10)
    assert not rewards[:, :-1].any()
    np.testing.assert_allclose(rewards[:, -1], index.episode_return[0, ::10], rtol=1e-6)


# --- losses by hand


SPEC = EnvSpec(jax.ShapeDtypeStruct((2,), jnp.float32), ActionSpec(1, discrete=False))


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 5, 2)).astype(np.float32)
    action = rng.uniform(-1, 1, (5, 1)).astype(np.float32)
    reward, done = rng.normal(size=5).astype(np.float32), np.array([0, 1, 0, 0, 1], bool)
    return Transition(*map(jnp.asarray, (obs, action, reward, done, next_obs)))


def _networks():
    config = replace(NETWORK, distribution="noisy", init_std=0.5)
    return actor_critic.build(SPEC, config), q_network.build(SPEC, config, norm="none")


def test_iql_loss_by_hand(batch):
    networks, critic = _networks()
    algorithm = iql.make(OffPolicyConfig(), networks, critic)
    params = algorithm.init(jax.random.key(0))
    targets = {"critic": algorithm.init(jax.random.key(1))["critic"]}
    hparams = {"gamma": 0.9, "expectile": 0.8, "awr_beta": 2.0}
    total, metrics = jax.jit(algorithm.losses)(params, targets, batch, jax.random.key(2), hparams)

    q = np.asarray(critic.apply(targets["critic"], batch.obs, batch.action)).min(axis=0)
    v, next_v = (
        np.asarray(networks.critic.apply(params["value"], obs, ())[0])
        for obs in (batch.obs, batch.next_obs)
    )
    error = q - v
    v_loss = np.mean(np.where(error > 0, 0.8, 0.2) * error**2)
    target = np.asarray(batch.reward) + 0.9 * np.where(batch.terminated, 0.0, next_v)
    both = np.asarray(critic.apply(params["critic"], batch.obs, batch.action))
    q_loss = 0.5 * np.mean((both - target) ** 2, axis=1).sum()
    out = np.asarray(networks.actor.apply(params["actor"], batch.obs, ())[0])
    mean, std = np.tanh(out[:, 0]), np.exp(out[:, 1])
    z = (np.asarray(batch.action)[:, 0] - mean) / std
    log_prob = -0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    pi_loss = -np.mean(np.minimum(np.exp(2.0 * error), 100.0) * log_prob)
    for name, value in {"q": q_loss, "v": v_loss, "pi": pi_loss}.items():
        assert float(metrics[f"train/{name}_loss"].total) == pytest.approx(value, rel=1e-4)
    assert float(total) == pytest.approx(q_loss + v_loss + pi_loss, rel=1e-4)


def test_iql_trains_each_network_by_its_own_loss(batch):
    """V must not follow the policy, nor Q the advantages."""
    networks, critic = _networks()
    algorithm = iql.make(OffPolicyConfig(), networks, critic)
    params = algorithm.init(jax.random.key(0))
    targets = {"critic": params["critic"]}

    def loss(params, hparams):
        return algorithm.losses(params, targets, batch, jax.random.key(2), hparams)[0]

    compiled = jax.jit(jax.grad(loss))

    def gradient(**hparams):
        return compiled(params, {"gamma": 0.9, "expectile": 0.8, "awr_beta": 2.0} | hparams)

    usual, other_policy, other_values = gradient(), gradient(awr_beta=5.0), gradient(expectile=0.6)
    for name in ("critic", "value"):
        jax.tree.map(np.testing.assert_array_equal, usual[name], other_policy[name])
    for name in ("critic", "actor"):
        jax.tree.map(np.testing.assert_array_equal, usual[name], other_values[name])


def test_td3_bc_loss_by_hand(batch):
    networks, critic = _networks()
    config = OffPolicyConfig(bc_alpha=2.5)
    plain, cloning = (td3.make(c, networks, critic) for c in (OffPolicyConfig(), config))
    params = plain.init(jax.random.key(0))
    hparams = {"gamma": 0.9, "target_noise": 0.2, "target_noise_clip": 0.5, "bc_alpha": 2.5}
    arguments = params, params, batch, jax.random.key(2), hparams
    pi_loss, bc_pi_loss = (
        float(algorithm.losses(*arguments)[1]["train/pi_loss"].total)
        for algorithm in (plain, cloning)
    )
    out, _ = networks.actor.apply(params["actor"], batch.obs, ())
    action = np.tanh(np.asarray(out)[:, :1])
    q = np.asarray(critic.apply(params["critic"], batch.obs, action))[0]
    assert pi_loss == pytest.approx(-q.mean(), rel=1e-5)
    distance = np.mean((action - np.asarray(batch.action)) ** 2)
    wanted = -2.5 * q.mean() / np.abs(q).mean() + distance
    assert bc_pi_loss == pytest.approx(wanted, rel=1e-4)


def test_bc_loss_by_hand(batch):
    networks, _ = _networks()
    algorithm = bc.make(networks, discrete=False)
    params = algorithm.init(jax.random.key(0))
    loss, _ = algorithm.losses(params, {}, batch, jax.random.key(0), {})
    out, _ = networks.actor.apply(params["actor"], batch.obs, ())
    wanted = np.mean((np.tanh(np.asarray(out)[:, :1]) - np.asarray(batch.action)) ** 2)
    assert float(loss) == pytest.approx(wanted, rel=1e-5)
