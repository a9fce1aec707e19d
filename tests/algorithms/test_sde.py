"""State-dependent exploration: a policy, its rollouts, and what learning makes of them."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import policy as policies
from jaxrl.algorithms import registry
from jaxrl.algorithms.policy import PolicyParams
from jaxrl.config import NetworkConfig, OffPolicyConfig, PPOConfig, TrainConfig
from jaxrl.envs.tasks import classic
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.learning import exploration, normalizer, sde
from jaxrl.networks import actor_critic
from jaxrl.rollout import collect

ROWS, STEPS, FREQ = 6, 8, 3
ENV = VectorEnv(classic.Pendulum(), ROWS, 5, pool_size=8)  # episodes end inside a rollout
MLP = NetworkConfig((8,), (8,), sde=True, sde_sample_freq=FREQ)
LSTM = replace(MLP, rnn="lstm", rnn_size=4)
PPO = PPOConfig(rollout_length=STEPS, num_minibatches=2, bptt_horizon=4, normalize_obs=False)
SAC = OffPolicyConfig(
    rollout_length=STEPS, buffer_size=96, warmup=1, train_batches=2, batch_size=16, pi_lr=1e-2
)


def make(algo, network):
    config = TrainConfig(num_envs=ROWS, algo=algo, network=network, ppo=PPO, offpolicy=SAC)
    return registry.make(config, ENV, registry.build_networks(config, ENV.spec))


@functools.cache
def _program(algo, network):
    algorithm, horizon = make(algo, network), PPO.horizon if algo == "ppo" else None

    @jax.jit
    def run(key, rate):
        state = algorithm.init(key)
        learner = state.learner
        if algo == "ppo":
            learner = learner.replace(hparams=learner.hparams | {"learning_rate": rate})
        state = state.replace(learner=learner)
        params, policy = algorithm.policy_params(learner), algorithm.policy(False)
        collector, experience = collect(
            ENV, policy, params, state.collector, key, STEPS, horizon=horizon
        )
        learned = algorithm.learn(state.replace(collector=collector), experience)
        return state, (collector, experience), learned

    return run


@functools.cache
def trained(algo, network, rate=1e-2):
    """Return a state, its rollout with the collector after it, and the state after learning."""
    return _program(algo, network)(jax.random.key(0), np.float32(rate))


@functools.cache
def acted(network):
    """Return raw actions and log-probabilities, [STEPS, ROWS], for the same observation."""
    networks = actor_critic.build(ENV.spec, network)
    policy = policies.make_policy(networks, deterministic=False)
    obs = jnp.broadcast_to(jnp.float32([0.3, -0.8, 0.5]), (ROWS, 3))

    @jax.jit
    def run(key):
        params = PolicyParams(networks.actor.init(key), normalizer.init(ENV.spec.obs))

        def step(carry, key):
            _, carry, extras = policy(params, obs, carry, key)
            return carry, extras

        start = policies.rollout_carry(networks, ROWS)
        return params, obs, jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]

    return networks, *run(jax.random.key(1))


def test_equal_observations_get_equal_noise_until_it_is_sampled_again():
    networks, params, obs, extras = acted(MLP)
    raw = np.asarray(extras.raw_action)[..., 0]
    held, sampled = np.diff(raw, axis=0)[[0, 1, 3, 4, 6]], np.diff(raw, axis=0)[[2, 5]]
    np.testing.assert_allclose(held, 0.0, atol=1e-6)
    assert np.abs(sampled).min() > 1e-4
    assert len(np.unique(raw[0])) == ROWS
    out, _ = networks.actor.apply(params.actor, obs, ())
    expected = networks.distribution.log_prob(out, extras.raw_action[-1])
    np.testing.assert_allclose(extras.log_prob[-1], expected, rtol=1e-5)


def test_only_rollouts_hold_the_noise():
    """Evaluation and loaded policies need no carry: the mean, or independent samples."""
    networks, params, obs, _ = acted(MLP)
    assert networks.actor.initial_carry(ROWS) == ()
    keys = jax.random.split(jax.random.key(5), 2)
    for deterministic in (True, False):
        policy = policies.make_policy(networks, deterministic)
        first, second = (policy(params, obs, (), key)[2].raw_action for key in keys)
        assert np.array_equal(first, second) == deterministic
        assert len(np.unique(first)) == (1 if deterministic else ROWS)
    plain = actor_critic.build(ENV.spec, replace(MLP, sde=False))
    assert plain.exploration is None and policies.rollout_carry(plain, ROWS) == ()


@pytest.mark.parametrize(("algo", "network"), [("ppo", LSTM), ("sac", MLP)])
def test_rows_follow_their_own_schedule_in_a_rollout(algo, network):
    state, (collector, experience), _ = trained(algo, network)
    ended = np.asarray(experience.terminated | experience.truncated)
    steps = np.zeros(ROWS, int)
    for t in range(STEPS):
        steps = np.where(ended[t], 0, (steps + 1) % FREQ)
    np.testing.assert_array_equal(collector.carry.noise.steps, steps)
    assert len(np.unique(steps)) > 1
    last = steps > 0  # zeros where it is due
    assert np.all(np.any(collector.carry.noise.matrix, axis=(1, 2))[last])
    # Learning unrolls segments from the network's carry alone.
    network_carry = jax.tree.structure(state.collector.carry.network_carry)
    assert jax.tree.structure(experience.carry) == network_carry


def test_learning_sees_the_probabilities_of_the_rollout():
    """Without a gradient step the ratio is 1."""
    _, _, (_, metrics) = trained("ppo", LSTM, rate=0.0)
    assert float(metrics["train/approx_kl"].total) < 1e-10
    assert float(metrics["train/clip_fraction"].total) == 0.0
    _, _, (_, metrics) = trained("ppo", LSTM)
    assert float(metrics["train/approx_kl"].total) > 1e-6


@pytest.mark.parametrize(("algo", "network", "size"), [("ppo", LSTM, 4), ("sac", MLP, 8)])
def test_scales_of_the_noise_are_learnt(algo, network, size):
    state, _, (after, _) = trained(algo, network)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    before, now = (make(algo, network).policy_params(s.learner).actor for s in (state, after))
    moved = np.abs(now["params"]["noise_log_std"] - before["params"]["noise_log_std"])
    assert moved.shape == (size, 1) and moved.min() > 1e-5


def test_output_is_that_of_the_actor_without_noise():
    networks, params, obs, _ = acted(LSTM)
    carry = networks.actor.initial_carry(ROWS)
    matrix = jnp.ones((ROWS, 5, 1))
    held = exploration.Carry(carry, sde.Noise(matrix, jnp.ones(ROWS, jnp.int32)))
    assert networks.exploration is not None
    out, raw, (after, _) = networks.exploration.act(params.actor, obs, held, jax.random.key(0))
    noise = raw - networks.distribution.mode(out)
    expected, expected_after = networks.actor.apply(params.actor, obs, carry)
    np.testing.assert_array_equal(out, expected)
    jax.tree.map(np.testing.assert_array_equal, after, expected_after)
    hidden = np.asarray(after[1])  # the features are the output of the last layer
    scales = np.exp(params.actor["params"]["noise_log_std"])
    np.testing.assert_allclose(scales, np.full((4, 1), MLP.init_std / 2), rtol=1e-6)
    np.testing.assert_allclose(noise, hidden @ scales + MLP.min_std, rtol=1e-5)
    std = np.sqrt(np.square(hidden) @ np.square(scales) + MLP.min_std**2)
    np.testing.assert_allclose(networks.distribution.std(out), std, rtol=1e-4)


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_noise_is_held_for_a_rollout_by_default(algo):
    config = TrainConfig(algo=algo, network=replace(MLP, sde_sample_freq=None), ppo=PPO)
    config = replace(config, offpolicy=replace(SAC, rollout_length=5))
    found = registry.network_config(config).sde_sample_freq
    assert found == (STEPS if algo == "ppo" else 5)
    assert config.network.sde_sample_freq is None


def test_discrete_actions_are_refused():
    spec = VectorEnv(classic.CartPole(), 2, 5, pool_size=2).spec
    with pytest.raises(UserError, match=r"--network.sde: 'cartpole' has discrete actions"):
        registry.build_networks(TrainConfig(env="cartpole", network=MLP), spec)


def test_noise_has_a_row_for_each_environment():
    carry = make("ppo", LSTM).rollout_carry(ROWS)  # type: ignore[misc]
    assert isinstance(carry, exploration.Carry)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(carry)} == {ROWS}
    assert jax.tree.structure(make("ppo", LSTM).initial_carry(ROWS)) == jax.tree.structure(
        carry.network_carry
    )
