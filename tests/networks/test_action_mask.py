"""Invalid actions are never chosen, have no probability, and no value."""

import json
import re
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs import base

from jaxrl import evaluate, train
from jaxrl import export as export_command
from jaxrl.algorithms import policy as policies
from jaxrl.algorithms import registry
from jaxrl.algorithms.off_policy import dqn
from jaxrl.config import NetworkConfig, OffPolicyConfig, TrainConfig
from jaxrl.envs import checks
from jaxrl.envs.gymnasium import observations
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.learning import distributions, normalizer
from jaxrl.learning.replay_buffer import Transition
from jaxrl.loggers import run_dir
from jaxrl.networks import actor_critic
from jaxrl.policies import export
from jaxrl.policies.numpy_policy import Policy
from jaxrl.types import ActionSpec, EnvSpec
from tests.helpers import tiny

N = 4
SPEC = EnvSpec(
    {
        "state": jax.ShapeDtypeStruct((3,), jnp.float32),
        "action_mask": jax.ShapeDtypeStruct((N,), jnp.uint8),
    },
    ActionSpec(N, discrete=True),
)
NETWORK = NetworkConfig((8,), (8,))


def _obs(number=500, seed=0):
    random = np.random.default_rng(seed)
    mask = random.integers(0, 2, (number, N), dtype=np.uint8)
    mask[np.arange(number), random.integers(0, N, number)] = 1  # at least one is valid
    return {"state": random.normal(size=(number, 3)).astype(np.float32), "action_mask": mask}


class Forbidden(base.Env):
    """One or more random actions are valid; any other ends the episode with a penalty."""

    num_actions, action_size, episode_length, backend = N, N, 6, "none"
    observation_size: ClassVar = {"state": 1, "action_mask": N}

    def reset(self, rng):
        obs = {"state": jnp.zeros(1), "action_mask": self._mask(rng)}
        return base.State(rng, obs, jnp.zeros(()), jnp.zeros(()), {"invalid": jnp.zeros(())})

    def _mask(self, rng):
        one = jax.nn.one_hot(jax.random.randint(rng, (), 0, N), N)
        return (one + jax.random.bernoulli(rng, 0.3, (N,)) > 0).astype(jnp.uint8)

    def step(self, state, action):
        rng, _ = jax.random.split(state.pipeline_state)
        invalid = 1.0 - state.obs["action_mask"][action]
        obs = {"state": jnp.ones(1) * action, "action_mask": self._mask(rng)}
        return state.replace(
            pipeline_state=rng,
            obs=obs,
            reward=jnp.float32(action),
            done=invalid,
            metrics={"invalid": invalid},
        )


@pytest.mark.parametrize("rnn", ["none", "lstm"])
def test_forward_passes_agree_and_give_invalid_actions_no_probability(rnn):
    networks = actor_critic.build(SPEC, NetworkConfig((8,), (8,), rnn=rnn, rnn_size=4))
    obs = jax.tree.map(jnp.asarray, _obs(20))

    @jax.jit
    def computed():
        params = {
            "actor": networks.actor.init(jax.random.key(0)),
            "critic": networks.critic.init(jax.random.key(1)),
        }
        carry = {name: getattr(networks, name).initial_carry(20) for name in ("actor", "critic")}
        segment = jax.tree.map(lambda x: x[None], obs) if rnn != "none" else obs
        ended = jnp.zeros((1, 20), bool) if rnn != "none" else None
        together, _ = networks.forward(params, segment, carry, ended)

        def entropy(params):
            logits, _ = networks.actor.apply(params, obs, carry["actor"])
            found = networks.distribution.entropy(logits, ())
            return jnp.sum(found), (logits, found)

        grads, (logits, found) = jax.grad(entropy, has_aux=True)(params["actor"])
        log_probs = [networks.distribution.log_prob(logits, jnp.full(20, a)) for a in range(N)]
        return together, logits, jnp.exp(jnp.stack(log_probs, axis=1)), found, grads

    together, logits, probability, entropy, grads = map(jax.device_get, computed())
    np.testing.assert_allclose(together.reshape(20, N), logits, rtol=1e-5)
    assert (probability[obs["action_mask"] == 0] == 0).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    positive = np.where(probability > 0, probability, 1)
    np.testing.assert_allclose(entropy, -(positive * np.log(positive)).sum(axis=1), atol=1e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_random_actions_are_sampled_from_the_valid_ones():
    mask = np.array([1, 0, 1, 0], np.uint8)
    values = np.where(mask, [0.0, 9.0, 1.0, 9.0], distributions.INVALID)
    params = jnp.asarray(np.append(values, 1.0), jnp.float32)  # always at random
    keys = jax.random.split(jax.random.key(0), 400)
    found = np.asarray(
        jax.vmap(distributions.greedy(N, masked=True).sample, (None, 0))(params, keys)
    )
    assert set(found) == {0, 2} and 140 < (found == 0).sum() < 260
    greedy = params.at[-1].set(0.0)
    assert set(
        np.asarray(jax.vmap(distributions.greedy(N, masked=True).sample, (None, 0))(greedy, keys))
    ) == {2}


def test_dqn_bootstraps_from_valid_actions_only():
    """Of the next actions only the worse one is valid: its value is the target."""
    config = OffPolicyConfig(gamma=0.5, double=False)
    networks = registry.build_networks(TrainConfig(algo="dqn", network=NETWORK), SPEC)
    algorithm = dqn.make(config, networks)
    params = algorithm.init(jax.random.key(3))
    obs, next_obs = (jax.tree.map(jnp.asarray, _obs(64, seed)) for seed in (1, 2))
    action = jnp.argmax(obs["action_mask"], axis=-1)
    reward = jnp.arange(64.0)
    batch = Transition(obs, action, reward, jnp.zeros(64, bool), next_obs)
    hparams = {"gamma": 0.5}
    loss, _ = algorithm.losses(params, params, batch, jax.random.key(0), hparams)

    def free(obs):
        plain = {"state": obs["state"], "action_mask": jnp.ones_like(obs["action_mask"])}
        return np.asarray(networks.actor.apply(params["critic"], plain, ())[0])[:, :N]

    q = free(obs)[np.arange(64), action]
    best = np.where(next_obs["action_mask"], free(next_obs), -np.inf).max(axis=1)
    gap = np.abs(q - (np.arange(64) + 0.5 * best))
    np.testing.assert_allclose(loss, np.where(gap < 1, gap**2 / 2, gap - 0.5).mean(), rtol=1e-5)


@pytest.mark.parametrize(
    "algo, vary",
    [
        ("ppo", "ppo.learning-rate=1e-3,0.1"),
        ("pqn", "pqn.learning-rate=1e-3,0.1"),
        ("dqn", "offpolicy.q-lr=1e-3,0.1"),
    ],
)
def test_members_of_populations_obey_the_mask(algo, vary, tmp_path, capsys):
    run, task = tmp_path / "run", ["--env", f"{__name__}:Forbidden"]
    flags = (
        "--num-seeds 2 --num-envs 16 --epochs 1 --cycles 2 --iterations 3 --eval.num-envs 8 "
        "--network.hidden 8 --network.critic-hidden 8 --task.no-random-first-age --devices 1 "
    )
    flags += {
        "ppo": "--ppo.rollout-length 8 --ppo.num-minibatches 2 --ppo.update-epochs 1",
        "pqn": "--pqn.rollout-length 8 --pqn.num-minibatches 2 --pqn.update-epochs 1",
        "dqn": "--offpolicy.rollout-length 8 --offpolicy.train-batches 2 --offpolicy.batch-size 8 "
        "--offpolicy.warmup 8 --offpolicy.buffer-size 800",
    }[algo]
    command = [*task, "--algo", algo, *flags.split(), "--vary", vary, "--run-dir", str(run)]
    assert train.main(command) == 0
    members = run_dir.member_names(run)
    assert len(members) == 4
    for member in members:
        rows = tiny.rows(run / member)
        assert [row["rollout/ep_len_mean"] for row in rows] == [6, 6]  # the whole episode
        assert rows[-1]["eval/mean_ep_length"] == 6 and rows[-1]["rollout/ep_invalid"] == 0
    capsys.readouterr()
    assert (
        evaluate.main([str(run / members[-1]), "--episodes", "8", "--stochastic", "True", *task])
        == 0
    )
    assert re.search(r"mean_ep_length +6 ", capsys.readouterr().out)
    assert export_command.main([str(run / members[-1])]) == 0


def test_numpy_policy_obeys_the_mask(tmp_path):
    networks = actor_critic.build(SPEC, NETWORK)
    stats = normalizer.update(normalizer.init(SPEC.obs), _obs(50, 5))
    params = policies.PolicyParams(networks.actor.init(jax.random.key(0)), stats)
    arrays, settings = export.numpy_arrays(params, SPEC, NETWORK)
    np.savez(tmp_path / "policy.npz", settings=np.array(json.dumps(settings)), **arrays)
    obs = _obs(200, 6)
    ours = Policy(tmp_path / "policy.npz")(obs)
    assert (obs["action_mask"][np.arange(200), ours] == 1).all()
    normal = normalizer.normalize(stats, jax.tree.map(jnp.asarray, obs))
    theirs = networks.distribution.mode(networks.actor.apply(params.actor, normal, ())[0])
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"action_mask": jnp.ones(N)}, r"must be uint8\[4\], 1 where an action is valid"),
        ({"action_mask": jnp.ones(3, jnp.uint8)}, r"must be uint8\[4\].*not uint8\[3\]"),
    ],
)
def test_masks_that_do_not_fit_are_refused(change, problem):
    class Wrong(Forbidden):
        def reset(self, rng):
            state = super().reset(rng)
            return state.replace(obs=state.obs | change)

    with pytest.raises(UserError, match=problem):
        _ = VectorEnv(Wrong(), 2, 6).template


def test_masks_of_gymnasium_stay_bytes():
    from gymnasium import spaces

    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)})
    assert observations.unsupported(space) is None
    assert observations.shapes(space)["action_mask"] == ((3,), np.uint8)
    obs = {"a": np.zeros((2, 2)), "action_mask": np.array([[1, 0, 1], [0, 1, 1]], np.int8)}
    assert observations.convert(space, obs)["action_mask"].dtype == np.uint8


def test_checks_need_discrete_actions():
    with pytest.raises(UserError, match="needs discrete actions"):
        checks._check_mask({"action_mask": jnp.ones(2, jnp.uint8)}, (), None)
