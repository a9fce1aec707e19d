"""PPO on probe environments with known answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, PPOConfig
from jaxrl.envs.tasks import probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic

pytestmark = pytest.mark.learning

GAMMA = 0.9
NETWORK = NetworkConfig(hidden=(16,), critic_hidden=(32,), activation="tanh")
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


def train(name, iterations=80, network=NETWORK, **changes):
    """Return the trained learner and (obs -> value, obs -> greedy action)."""
    env_class = probes.PROBES[name]
    env = VectorEnv(env_class(), 32, env_class.episode_length, pool_size=32)
    networks = actor_critic.build(env.spec, network)
    algorithm = ppo.make(PPOConfig(**SETTINGS | changes), env, networks, iterations)

    @jax.jit
    def run(key):
        return jax.lax.scan(
            lambda s, _: algorithm.train_step(s), algorithm.init(key), length=iterations
        )

    state, metrics = run(jax.random.key(0))
    learner = state.learner

    def value(obs):
        normal = normalizer.normalize(learner.obs_stats, obs)
        out = networks.critic.apply(learner.params["critic"], normal, ())[0]
        if changes.get("normalize_value"):
            out = out * normalizer.std(learner.value_stats) + learner.value_stats.mean
        return np.asarray(out)

    def action(obs):
        params = algorithm.policy_params(learner)
        return np.asarray(algorithm.policy(True)(params, obs, (), jax.random.key(0))[0])

    return learner, value, action, metrics


def column(*numbers):
    return jnp.array(numbers, jnp.float32)[:, None]


def test_constant_value():
    _, value, _, _ = train("value")
    np.testing.assert_allclose(value(column(0.0)), [1.0], atol=0.05)


def test_value_depends_on_observation():
    _, value, _, _ = train("obs_value")
    np.testing.assert_allclose(value(column(-1.0, 1.0)), [-1.0, 1.0], atol=0.1)


def test_value_is_discounted():
    _, value, _, _ = train("discount")
    np.testing.assert_allclose(value(column(0.0, 1.0)), [GAMMA, 1.0], atol=0.04)


# A reward of 1 forever is worth 10. If the limit of 4 steps counts as termination, the value lies
# between the mean of the remaining returns (lambda 1) and V = 1 + gamma · 3/4 · V (lambda 0).
@pytest.mark.parametrize("bootstrap, low, high", [(True, 9.4, 10.6), (False, 2.26, 3.08)])
def test_truncation_bootstraps_unless_disabled(bootstrap, low, high):
    _, value, _, _ = train("truncation", iterations=150, lam=0.95, bootstrap_truncated=bootstrap)
    assert low < value(column(1.0)) < high


@pytest.mark.parametrize("normalize_value", [False, True])
def test_termination_does_not_bootstrap(normalize_value):
    _, value, _, _ = train("termination", normalize_value=normalize_value)
    expected = [(1 - GAMMA**n) / (1 - GAMMA) for n in (1, 2, 3, 4)]
    np.testing.assert_allclose(value(jnp.eye(4)), expected, atol=0.15)


def test_action_choice():
    _, _, action, _ = train("action")
    assert action(column(0.0)) == 1


def test_action_depends_on_observation():
    _, _, action, _ = train("obs_action")
    np.testing.assert_array_equal(action(column(-1.0, 1.0)), [0, 1])


@pytest.mark.parametrize("distribution", ["tanh_normal", "normal"])
def test_continuous_action_matches_observation(distribution):
    network = NetworkConfig(
        hidden=(32,),
        critic_hidden=(32,),
        activation="tanh",
        distribution=distribution,
        state_dependent_std=distribution == "normal",
    )
    _, _, action, _ = train("continuous_action", 150, network, learning_rate=1e-2)
    wanted = column(-0.6, -0.2, 0.3, 0.7)
    np.testing.assert_allclose(action(wanted), wanted, atol=0.12)


def test_critic_sees_privileged_observations():
    _, value, _, _ = train("dict_obs")
    obs = {"state": jnp.zeros((2, 2)), "privileged_state": column(-1.0, 1.0)}
    np.testing.assert_allclose(value(obs), [-1.0, 1.0], atol=0.1)


def test_normalization_still_finds_the_action():
    _, _, action, _ = train("obs_action", normalize_obs=True, normalize_reward=True)
    np.testing.assert_array_equal(action(column(-1.0, 1.0)), [0, 1])
