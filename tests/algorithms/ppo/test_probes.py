"""PPO on probe environments with known answers."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, PPOConfig, metadata
from jaxrl.envs.tasks import probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from tests.helpers.probing import AnyProbe

pytestmark = pytest.mark.learning

GAMMA = 0.9
NETWORK = NetworkConfig(hidden=(32,), critic_hidden=(32,), activation="tanh")
SETTINGS = {
    "rollout_length": 8,
    "update_epochs": 4,
    "num_minibatches": 2,
    "learning_rate": 1e-2,
    "schedule": "linear",
    "gamma": GAMMA,
    "normalize_obs": False,
    "entropy_coef": 0.0,
}
# Probes with the same spaces share a program.
ALIKE = (
    ("value", "obs_value", "discount", "truncation", "continuous_action"),
    ("action", "obs_action"),
    ("termination",),
    ("dict_obs",),
)
TRACED = metadata.traced(PPOConfig()).keys()


def train(name, obs, iterations=80, network=NETWORK, **changes):
    """Train on a probe; return the values and the greedy actions for observations."""
    names = next(group for group in ALIKE if name in group)
    config = PPOConfig(**SETTINGS | changes)
    static = tuple((key, value) for key, value in changes.items() if key not in TRACED)
    hparams = {key: np.float32(value) for key, value in metadata.traced(config).items()}
    number = len(jax.tree.leaves(obs)[0])
    rows = jax.tree.map(lambda x: np.resize(np.float32(x), (4, *np.shape(x)[1:])), obs)
    run = _program(names, network, static)
    found = run(names.index(name), iterations, hparams, rows)
    return tuple(np.asarray(each)[:number] for each in found)


@functools.cache
def _program(names, network, static):
    """Compile the training on any of the named probes, and what it learned."""
    config, classes = PPOConfig(**SETTINGS | dict(static)), [probes.PROBES[n] for n in names]

    @jax.jit
    def run(number, iterations, hparams, obs):
        probe = AnyProbe(classes, number)
        env = VectorEnv(probe, 32, probe.episode_length, pool_size=32)
        networks = actor_critic.build(env.spec, network)
        algorithm = ppo.make(config, env, networks, iterations)
        state = algorithm.init(jax.random.key(0))
        state = state.replace(learner=state.learner.replace(hparams=hparams))
        learner = jax.lax.fori_loop(
            0, iterations, lambda _, state: algorithm.train_step(state)[0], state
        ).learner
        normal = normalizer.normalize(learner.obs_stats, obs)
        value = networks.critic.apply(learner.params["critic"], normal, ())[0]
        if config.normalize_value:
            value = value * normalizer.std(learner.value_stats) + learner.value_stats.mean
        params = algorithm.policy_params(learner)
        return value, algorithm.policy(True)(params, obs, (), jax.random.key(0))[0]

    return run


def column(*numbers):
    return np.float32(numbers)[:, None]


def test_constant_value():
    value, _ = train("value", column(0.0))
    np.testing.assert_allclose(value, [1.0], atol=0.05)


def test_value_depends_on_observation():
    value, _ = train("obs_value", column(-1.0, 1.0))
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.1)


def test_value_is_discounted():
    value, _ = train("discount", column(0.0, 1.0))
    np.testing.assert_allclose(value, [GAMMA, 1.0], atol=0.04)


# A reward of 1 forever is worth 10. If the limit of 4 steps counts as termination, the value lies
# between the mean of the remaining returns (lambda 1) and V = 1 + gamma · 3/4 · V (lambda 0).
@pytest.mark.parametrize("bootstrap, low, high", [(True, 9.4, 10.6), (False, 2.26, 3.08)])
def test_truncation_bootstraps_unless_disabled(bootstrap, low, high):
    value, _ = train("truncation", column(1.0), 150, lam=0.95, bootstrap_truncated=bootstrap)
    assert low < value < high


def test_termination_does_not_bootstrap():
    """With values in normalised units; `test_value_is_discounted` has them as they are."""
    value, _ = train("termination", np.eye(4), normalize_value=True)
    expected = [(1 - GAMMA**n) / (1 - GAMMA) for n in (1, 2, 3, 4)]
    np.testing.assert_allclose(value, expected, atol=0.15)


# With normalised observations and rewards.
NORMALIZED = {"normalize_obs": True, "normalize_reward": True}
MUON = {"optimizer": "muon", "learning_rate": 2e-2}


def test_action_choice():
    _, action = train("action", column(0.0), **NORMALIZED)
    assert action == 1


@pytest.mark.parametrize("changes", [NORMALIZED, MUON], ids=["normalized", "muon"])
def test_action_depends_on_observation(changes):
    _, action = train("obs_action", column(-1.0, 1.0), **changes)
    np.testing.assert_array_equal(action, [0, 1])


@pytest.mark.parametrize(
    "changes",
    [{}, {"distribution": "normal", "sde": True, "sde_sample_freq": 8}],
    ids=["tanh_normal", "normal_sde"],
)
def test_continuous_action_matches_observation(changes):
    network = replace(NETWORK, **changes)
    wanted = column(-0.6, -0.2, 0.3, 0.7)
    _, action = train("continuous_action", wanted, 150, network)
    np.testing.assert_allclose(action, wanted, atol=0.12)


def test_critic_sees_privileged_observations():
    obs = {"state": np.zeros((2, 2)), "privileged_state": column(-1.0, 1.0)}
    value, _ = train("dict_obs", obs)
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.1)
