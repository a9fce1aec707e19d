"""REPPO on probe environments with known answers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import registry
from jaxrl.config import NetworkConfig, REPPOConfig, TrainConfig
from jaxrl.envs.tasks import probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import td
from jaxrl.networks import embedding_critic
from tests.helpers.probing import AnyProbe
from tests.helpers.stepping import jit_for_long

pytestmark = pytest.mark.learning

GAMMA = 0.9
NETWORK = NetworkConfig((32,), (32, 32), norm="rms", init_std=0.5, min_std=0.05)
SETTINGS = REPPOConfig(
    rollout_length=8,
    update_epochs=4,
    num_minibatches=4,
    learning_rate=3e-3,
    schedule="linear",
    gamma=GAMMA,
    v_min=-2.0,
    v_max=12.0,
    num_atoms=71,
    normalize_obs=False,
    # Next to no entropy: values are those of the rewards.
    alpha_init=1e-3,
    target_entropy=-10.0,
)
# Probes with the same spaces share a program.
ALIKE = (
    ("value", "obs_value", "discount", "truncation", "continuous_action"),
    ("dict_obs",),
)


def train(name, obs, iterations=100):
    """Train on a probe; return the values of action 0, and the greedy actions."""
    names = next(group for group in ALIKE if name in group)
    number = len(jax.tree.leaves(obs)[0])
    rows = jax.tree.map(lambda x: np.resize(np.float32(x), (4, *np.shape(x)[1:])), obs)
    found = _program(names)(names.index(name), iterations, rows)
    return tuple(np.asarray(each)[:number] for each in found)


@functools.cache
def _program(names):
    """Compile the training on any of the named probes, and what it learned."""
    config = TrainConfig(algo="reppo", network=NETWORK, reppo=SETTINGS)

    @(jit_for_long if len(names) > 1 else jax.jit)
    def run(number, iterations, obs):
        probe = AnyProbe([probes.PROBES[n] for n in names], number)
        env = VectorEnv(probe, 32, probe.episode_length, pool_size=32)
        networks = registry.build_networks(config, env.spec)
        algorithm = registry.make(config, env, networks)
        state = algorithm.init(jax.random.key(0))
        state = state.replace(learner=state.learner.replace(total_iterations=iterations))
        learner = jax.lax.fori_loop(
            0, iterations, lambda _, state: algorithm.train_step(state)[0], state
        ).learner
        critic = embedding_critic.build(env.spec, NETWORK, SETTINGS.support)
        none = jnp.zeros((4, env.spec.action.size))
        logits = critic.apply(learner.params["critic"], obs, none).logits
        params = algorithm.policy_params(learner)
        action = algorithm.policy(True)(params, obs, (), jax.random.key(0))[0]
        return td.expected(logits, td.support(*SETTINGS.support)), action

    return run


def column(*numbers):
    return np.float32(numbers)[:, None]


def test_constant_value():
    value, _ = train("value", column(0.0))
    np.testing.assert_allclose(value, [1.0], atol=0.05)


def test_value_depends_on_observation():
    value, _ = train("obs_value", column(-1.0, 1.0))
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.1)


def test_value_is_discounted_and_ends_with_the_episode():
    value, _ = train("discount", column(0.0, 1.0))
    np.testing.assert_allclose(value, [GAMMA, 1.0], atol=0.06)


def test_truncation_bootstraps():
    value, _ = train("truncation", column(1.0), 150)
    np.testing.assert_allclose(value, 1 / (1 - GAMMA), rtol=0.06)


def test_continuous_action_matches_observation():
    wanted = column(-0.6, -0.2, 0.3, 0.7)
    _, action = train("continuous_action", wanted, 150)
    np.testing.assert_allclose(action, wanted, atol=0.12)


def test_critic_sees_privileged_observations():
    obs = {"state": np.zeros((2, 2)), "privileged_state": column(-1.0, 1.0)}
    value, _ = train("dict_obs", obs, 60)
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.1)
