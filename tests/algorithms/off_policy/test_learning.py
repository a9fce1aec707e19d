"""SAC, TD3 and DQN on probe environments, and SAC's losses against a second implementation."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import rollout
from jaxrl.algorithms import registry
from jaxrl.algorithms.off_policy import base, dqn, sac
from jaxrl.algorithms.off_policy.replay import ReplayBuffer, return_range
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import NetworkConfig, OffPolicyConfig, RRDConfig, TrainConfig
from jaxrl.envs.tasks import probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks import actor_critic, q_network
from jaxrl.types import ActionSpec, EnvSpec
from tests.helpers.probing import AnyProbe
from tests.helpers.stepping import Compiled, jit_for_long

GAMMA = 0.9
NETWORK = NetworkConfig((16,), (32,), activation="tanh", init_std=0.3)
SETTINGS = {
    "train_batches": 4,
    "batch_size": 64,
    "buffer_size": 2048,
    "warmup": 64,
    "gamma": GAMMA,
    "pi_lr": 1e-2,
    "q_lr": 1e-2,
    "polyak": 0.9,
    "normalize_obs": False,
    "alpha_init": 0.01,
    "alpha_lr": 0.0,
}


class DiscreteTruncation(probes.PROBES["truncation"]):
    """The truncation probe with two actions that have no effect."""

    num_actions = 2
    action_size = 2


# Probes with the same spaces share a program.
CONTINUOUS = (probes.PROBES["continuous_action"], probes.PROBES["truncation"])
DISCRETE = (probes.PROBES["obs_action"], DiscreteTruncation)


def train(algo, probe, iterations, obs, network=NETWORK, **changes):
    """Train on a probe; return the values of both critics (or actions), and greedy actions."""
    alike = DISCRETE if algo == "dqn" else CONTINUOUS
    found = _program(algo, alike, network, tuple(changes.items()))(
        alike.index(probe), iterations, np.resize(obs, (3, 1))
    )
    return tuple(np.asarray(each)[..., : len(obs), :] for each in found)


@functools.cache
def _program(algo, alike, network, changes):
    """Compile the training on any of the probes, and what it learned."""
    settings = OffPolicyConfig(**SETTINGS | dict(changes))
    config = TrainConfig(algo=algo, network=network, offpolicy=settings)

    # A categorical critic runs for long.
    @(jit_for_long if settings.critic == "c51" else jax.jit)
    def run(number, iterations, obs):
        probe = AnyProbe(alike, number)
        env = VectorEnv(probe, 16, probe.episode_length, pool_size=16)
        networks = registry.build_networks(config, env.spec)
        algorithm = registry.make(config, env, networks)
        state = algorithm.init(jax.random.key(0))
        state = state.replace(learner=state.learner.replace(total_iterations=iterations))
        learner = jax.lax.fori_loop(
            0, iterations, lambda _, state: algorithm.train_step(state)[0], state
        ).learner
        params = algorithm.policy_params(learner)
        action = algorithm.policy(True)(params, obs, (), jax.random.key(0))[0]
        if algo == "dqn":
            values = networks.actor.apply(learner.params["critic"], obs, ())[0][..., :-1]
            return values, action[:, None]
        atoms = settings.num_atoms if settings.critic == "c51" else 1
        critic = q_network.build(env.spec, NETWORK, norm=settings.critic_norm, atoms=atoms)
        twin = base.TwinCritic(settings, critic)
        return twin.values(learner.params["critic"], obs, jnp.zeros((3, 1)))[..., None], action

    return run


def column(*numbers):
    return np.float32(numbers)[:, None]


@pytest.mark.learning
def test_dqn_action_depends_on_observation():
    _, action = train("dqn", probes.PROBES["obs_action"], 100, column(-1.0, 1.0))
    np.testing.assert_array_equal(action, column(0, 1))


@pytest.mark.learning
def test_dqn_bootstraps_at_truncation():
    values, _ = train("dqn", DiscreteTruncation, 300, column(1.0))
    np.testing.assert_allclose(values, 1 / (1 - GAMMA), rtol=0.05)


# SAC explores with noise that depends on the state. TD3 has categorical values, noise that is held
# with a scale for each row, weight decay, and a replay in half precision.
SDE = replace(NETWORK, sde=True, sde_sample_freq=8)
AT_SCALE = {
    **{"critic": "c51", "v_min": -3.0, "v_max": 12.0, "num_atoms": 31},
    **{"exploration_noise": 0.4, "exploration_noise_min": 0.01, "exploration_hold": 4},
    **{"weight_decay": 1e-3, "replay_dtype": "float16"},
}
BOTH = pytest.mark.parametrize(
    "algo, network, changes",
    [("sac", SDE, {}), ("td3", NETWORK, AT_SCALE)],
    ids=["sac_sde", "td3_at_scale"],
)


@pytest.mark.learning
@BOTH
def test_continuous_actions_reach_the_target(algo, network, changes):
    targets = column(-0.6, 0.0, 0.6)
    probe = probes.PROBES["continuous_action"]
    _, action = train(algo, probe, 250, targets, network, **changes)
    np.testing.assert_allclose(action, targets, atol=0.12)


@pytest.mark.learning
@BOTH
def test_values_bootstrap_at_truncation(algo, network, changes):
    """The weight of SAC's entropy is too small to count."""
    values, _ = train(algo, probes.PROBES["truncation"], 300, column(1.0), network, **changes)
    np.testing.assert_allclose(values, 1 / (1 - GAMMA), rtol=0.06)


@pytest.fixture(scope="module")
def delayed():
    """TD3 with a policy delay of 3 and a target update interval of 2."""
    changes = {"policy_delay": 3, "target_update_interval": 2, "train_batches": 1, "warmup": 1}
    config = TrainConfig(
        algo="td3", network=NETWORK, offpolicy=OffPolicyConfig(**SETTINGS | changes)
    )
    env = VectorEnv(probes.PROBES["continuous_action"](), 16, 1, pool_size=16)
    return Compiled(registry.make(config, env, registry.build_networks(config, env.spec)))


def test_checkpoint_between_delayed_updates_resumes_exactly(delayed, tmp_path):
    with CheckpointManager(tmp_path) as checkpoints:
        checkpoints.save(2, delayed.steps(2)[0], {})
    target = jax.eval_shape(delayed.init, jax.random.key(0))
    state = CheckpointManager(tmp_path).restore(target).state
    for _ in range(4):
        state, _ = delayed.step(state)
    uninterrupted, _ = delayed.steps(6)
    assert _same(state.learner, uninterrupted.learner)
    assert _same(state.collector.replay, uninterrupted.collector.replay)


def test_networks_and_target_networks_update_on_schedule(delayed):
    step, state = delayed.step, delayed.start()
    moved = []
    for _ in range(6):
        before, state = state.learner, step(state)[0]
        after = state.learner
        pairs = [(before.params[n], after.params[n]) for n in ("critic", "actor")]
        pairs += [(before.target_params[n], after.target_params[n]) for n in ("critic", "actor")]
        moved.append([not _same(*pair) for pair in pairs])
        # A target network moves a tenth of the way to its online network.
        if moved[-1][2]:
            for old, new, now in zip(
                *map(jax.tree.leaves, (before.target_params, after.target_params)),
                jax.tree.leaves({n: after.params[n] for n in after.target_params}),
                strict=True,
            ):
                np.testing.assert_allclose(new, 0.9 * old + 0.1 * now, atol=1e-6)
    assert moved == [
        [True, True, False, False],
        [True, False, True, True],
        [True, False, False, False],
        [True, True, True, True],
        [True, False, False, False],
        [True, False, True, True],
    ]


@pytest.fixture(scope="module")
def sac_rrd():
    """SAC with an RRD reward and no warm-up; an episode takes two iterations."""
    changes = {"warmup": 0, "train_batches": 1, "batch_size": 64, "buffer_size": 32}
    settings = OffPolicyConfig(**changes, reward="rrd")
    config = TrainConfig(algo="sac", network=NETWORK, offpolicy=settings, rrd=RRDConfig(8, 4))
    env = VectorEnv(probes.PROBES["truncation"](), 4, 2, pool_size=4, random_first_age=False)
    return Compiled(registry.make(config, env, registry.build_networks(config, env.spec)))


def test_no_updates_before_an_episode_is_complete(sac_rrd):
    """Batches larger than the buffer and samples longer than an episode are allowed."""
    state, first = sac_rrd.steps(1)
    assert first[0]["replay/steps"] == 0 == int(state.learner.updates)
    assert _same(state.learner.params, sac_rrd.start().learner.params)
    state, (_, second) = sac_rrd.steps(2)
    assert second["replay/steps"] == 8 and int(state.learner.updates) == 1
    assert not int(state.learner.skipped_updates) and second["train/R_loss"] >= 0
    assert not _same(state.learner.params, sac_rrd.start().learner.params)


def test_infinite_alpha_skips_and_counts_the_update(sac_rrd):
    state, _ = sac_rrd.steps(1)
    params = state.learner.params | {"alpha": {"log": jnp.float32(200.0)}}  # e^200 overflows
    after, _ = sac_rrd.step(state.replace(learner=state.learner.replace(params=params)))
    assert int(after.learner.skipped_updates) == int(after.learner.nonfinite_streak) == 1
    for name in ("actor", "critic", "alpha"):
        assert _same(after.learner.params[name], params[name])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.learner.target_params))


@pytest.mark.parametrize("target, rises", [(-100.0, False), (100.0, True)])
def test_alpha_falls_above_the_target_entropy_and_rises_below(sac_rrd, target, rises):
    state, _ = sac_rrd.steps(1)
    hparams = state.learner.hparams | {"target_entropy": jnp.float32(target)}
    after, _ = sac_rrd.step(state.replace(learner=state.learner.replace(hparams=hparams)))
    before, now = (x.learner.params["alpha"]["log"] for x in (state, after))
    assert before != now and (now > before) == rises


@pytest.mark.parametrize(
    "fraction, expected", [(0.0, [1.0, 0.1, 0.1, 0.1]), (0.5, [1.0, 0.55, 0.1, 0.1])]
)
def test_dqn_epsilon_decays_over_its_fraction(fraction, expected):
    spec = EnvSpec(jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec(2, discrete=True))
    networks = actor_critic.build(spec, NetworkConfig((4,), (4,), distribution="greedy"))
    explore = dqn.make(
        OffPolicyConfig(epsilon_fraction=fraction, epsilon_end=0.1), networks
    ).explore
    found = [
        explore(jnp.asarray(done), {"params": {}})["params"]["epsilon"]
        for done in (0.0, 0.25, 0.5, 1.0)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def _same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# A second implementation of SAC's losses: one network at a time, layers as plain products.

SPEC = EnvSpec(jax.ShapeDtypeStruct((3,), jnp.float32), ActionSpec(2, False))
HPARAMS = {"gamma": jnp.asarray(0.97), "target_entropy": jnp.asarray(-1.0)}


def _batch(number=7):
    keys = jax.random.split(jax.random.key(5), 5)
    return Transition(
        obs=jax.random.normal(keys[0], (number, 3)),
        action=jnp.tanh(jax.random.normal(keys[1], (number, 2))),
        reward=jax.random.normal(keys[2], (number,)),
        terminated=jnp.arange(number) % 3 == 0,
        next_obs=jax.random.normal(keys[3], (number, 3)),
    )


def _mlp(params, x):
    layers = params["MLP_0"]
    i = 0
    while f"Dense_{i}" in layers:
        x = jnp.tanh(x @ layers[f"Dense_{i}"]["kernel"] + layers[f"Dense_{i}"]["bias"][None])
        i += 1
    return x


def _linear(params, x):
    return x @ params["kernel"] + params["bias"][None]


def _q(params, i, obs, action):
    one = jax.tree.map(lambda leaf: leaf[i], params["params"])
    return _linear(one["head"], _mlp(one, jnp.hstack([obs, action])))[:, 0]


def test_sac_losses_match_second_implementation():
    """Each network's gradient is that of a loss of its own."""
    network = NetworkConfig((5, 4), (6,), activation="tanh")
    critic = q_network.build(SPEC, network, norm="none")
    algorithm = sac.make(OffPolicyConfig(), actor_critic.build(SPEC, network), critic, 2)
    key = jax.random.key(9)

    def act(params, obs, key):
        hidden = _mlp(params["params"], obs)
        mean = _linear(params["params"]["head"], hidden)
        raw_std = _linear(params["params"]["std_head"], hidden) + np.log(np.expm1(0.7))
        std = jnp.log1p(jnp.exp(raw_std)) + 0.001
        x = mean + std * jax.random.normal(key, mean.shape)
        log_prob = jax.scipy.stats.norm.logpdf(x, mean, std) - jnp.log(1 - jnp.tanh(x) ** 2)
        return jnp.tanh(x), log_prob.sum(axis=1)

    def separate(params, target_params, batch):
        actor_key, next_key = jax.random.split(key)
        alpha = jnp.exp(params["alpha"]["log"])
        action, log_prob = act(params["actor"], batch.next_obs, next_key)
        next_q = jnp.minimum(
            *(_q(target_params["critic"], i, batch.next_obs, action) for i in range(2))
        )
        target = batch.reward + 0.97 * (1 - batch.terminated) * (next_q - alpha * log_prob)

        def critic(p):
            return sum(
                0.5 * jnp.mean((_q(p, i, batch.obs, batch.action) - target) ** 2) for i in range(2)
            )

        def actor(p):
            action, log_prob = act(p, batch.obs, actor_key)
            q = jnp.minimum(*(_q(params["critic"], i, batch.obs, action) for i in range(2)))
            return jnp.mean(alpha * log_prob - q)

        def alpha_loss(p):  # the log-probability is constant here
            return -p["log"] * (jnp.mean(act(params["actor"], batch.obs, actor_key)[1]) - 2)

        return {"critic": critic, "actor": actor, "alpha": alpha_loss}

    @jax.jit
    def gradients():
        params, target_params = (algorithm.init(jax.random.key(seed)) for seed in (2, 3))
        batch = _batch()
        grads, _ = jax.grad(algorithm.losses, has_aux=True)(
            params, {"critic": target_params["critic"]}, batch, key, HPARAMS
        )
        losses = separate(params, target_params, batch)
        return grads, {name: jax.grad(loss)(params[name]) for name, loss in losses.items()}

    grads, expected = gradients()
    assert grads.keys() == expected.keys()
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reward", ["ircr", "rrd"])
def test_ircr_excludes_episodes_cut_by_random_first_age(reward):
    """Counters give rewards 1, 2, ..., 10. Cut episodes return less, or more with others."""
    settings = {"rollout_length": 20, "buffer_size": 16 * 40}
    config = TrainConfig(
        env="Counter",
        algo="td3",
        network=NETWORK,
        offpolicy=OffPolicyConfig(**SETTINGS | settings | {"reward": reward}),
        rrd=RRDConfig(sample_size=4),
    )
    env = VectorEnv(probes.Counter(), 16, 10, pool_size=16, random_first_age=True)
    algorithm = registry.make(config, env, registry.build_networks(config, env.spec))
    buffer = ReplayBuffer(config.offpolicy, env.spec, env.rows, env.longest_episode, 1)

    @jax.jit
    def collect(key):
        state = algorithm.init(key)
        params = algorithm.policy_params(state.learner)
        collector, experience = rollout.collect(
            env, algorithm.policy(False), params, state.collector, key, 20
        )
        return return_range(buffer.add(collector.replay, experience).index)

    low, high = collect(jax.random.key(0))
    assert float(high) == 55.0
    assert float(low) == 55.0 if reward == "ircr" else float(low) < 20.0
