"""The off-policy replay buffer: sampling from shards, episode returns and learned rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms.off_policy import reward_model
from jaxrl.algorithms.off_policy.replay import (
    ReplayBuffer,
    exclude_current,
    restart_episodes,
    return_range,
)
from jaxrl.config import NetworkConfig, OffPolicyConfig, RRDConfig
from jaxrl.learning import episode_index
from jaxrl.networks import reward_network
from jaxrl.types import ActionSpec, EnvSpec, Rollout

ROWS, T = 4, 5
RRD = RRDConfig()
SPEC = EnvSpec(jax.ShapeDtypeStruct((2,), jnp.float32), ActionSpec(1, False))


def _rollout(
    random,
    start,
    reward_fn=lambda obs, action: obs[..., 0],
    truncate=lambda number, row: False,
    scale=1.0,
):
    """T steps of random numbers; episodes end every 5 steps in row 0, every 10 in the others."""
    obs = (scale * random.normal(size=(T, ROWS, 2))).astype(np.float32)
    action = random.uniform(-1, 1, size=(T, ROWS, 1)).astype(np.float32)
    number = start + np.arange(T)[:, None] + 1
    period = np.array([5, 10, 10, 10])[None]
    return Rollout(
        obs=obs,
        action=action,
        reward=reward_fn(obs, action).astype(np.float32),
        terminated=number % period == 0,
        truncated=np.zeros((T, ROWS), bool) | truncate(number, np.arange(ROWS)[None]),
        next_obs=obs + 1,
        extras=(),
        carry=(),
        episodes={},
    )


def _filled(settings, num_shards=1, times=8, rrd=RRD, **kwargs):
    buffer = ReplayBuffer(OffPolicyConfig(**settings), SPEC, ROWS, 10, num_shards, rrd)
    replay, random = buffer.empty(), np.random.default_rng(0)
    add, rollouts = jax.jit(buffer.add), []
    for i in range(times):
        rollouts.append(_rollout(random, i * T, **kwargs))
        replay = add(replay, rollouts[-1])
    return buffer, replay, rollouts


SETTINGS = {"rollout_length": T, "buffer_size": ROWS * 20 + 3, "batch_size": 8}


@pytest.mark.parametrize("num_shards", [1, 2])
def test_samples_are_stored_transitions(num_shards):
    buffer, replay, rollouts = _filled(SETTINGS, num_shards)
    assert buffer.length == 20 and int(buffer.size(replay)) == ROWS * 20
    sampled = jax.jit(lambda s: buffer.sample(s, jax.random.key(0), 6))(replay)
    assert sampled.obs.shape == (6, 8, 2) and sampled.action.shape == (6, 8, 1)
    stored = np.concatenate([r.obs for r in rollouts[-4:]])  # the newest 20 steps
    for t in range(6):
        for i, obs in enumerate(np.asarray(sampled.obs[t])):
            _, row = np.argwhere((stored == obs).all(axis=-1))[0]
            # Each shard supplies an equal part of every batch.
            assert num_shards == 1 or (row < 2) == (i < 4)
    np.testing.assert_allclose(sampled.next_obs, sampled.obs + 1)
    np.testing.assert_allclose(sampled.reward, sampled.obs[..., 0])


@pytest.mark.parametrize("reward", ["env", "rrd"])
def test_observations_in_half_precision(reward):
    """They are rounded, and clipped to what the type can hold; nothing else is."""
    settings = SETTINGS | {"reward": reward, "replay_dtype": "float16"}
    buffer, replay, _ = _filled(settings, rrd=RRDConfig(20, 5), scale=3e4)
    steps = replay.ring.steps
    assert steps.obs.dtype == steps.next_obs.dtype == jnp.float16
    assert steps.action.dtype == steps.reward.dtype == jnp.float32
    read = [buffer.sample(replay, jax.random.key(0), 30)]
    if reward == "rrd":
        read.append(buffer.sample_steps(replay, jax.random.key(0), 30).steps)
        read.append(buffer.sample_episodes(replay, jax.random.key(0), 30).steps)
    most = 65504.0
    for sampled in read:
        assert sampled.obs.dtype == sampled.next_obs.dtype == jnp.float32
        assert np.abs(sampled.obs).max() == most
        exact = np.clip(sampled.reward, -most, most)  # the first number of the observation
        np.testing.assert_allclose(sampled.obs[..., 0], exact, rtol=2.0**-11)
        assert np.any(sampled.obs[..., 0] != exact)


@pytest.mark.parametrize("num_shards", [1, 2])
def test_n_step_returns_end_with_the_episode(num_shards):
    """Against a walk along the stored steps, over the ring's seam and both kinds of ends."""
    n, gamma = 3, 0.9
    buffer, replay, rollouts = _filled(
        SETTINGS | {"n_step": n}, num_shards, truncate=lambda number, row: number % 7 == row
    )
    assert int(buffer.size(replay)) == ROWS * (20 - n + 1)
    sampled = jax.jit(lambda s: buffer.sample(s, jax.random.key(0), 60, gamma))(replay)
    names = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
    stored = {k: np.concatenate([getattr(r, k) for r in rollouts[-4:]]) for k in names}
    kinds = set()
    for i in np.ndindex(sampled.reward.shape):
        t, row = np.argwhere((stored["obs"] == np.asarray(sampled.obs[i])).all(axis=-1))[0]
        total, steps = 0.0, 0
        while True:
            total += gamma**steps * stored["reward"][t + steps, row]
            terminated = stored["terminated"][t + steps, row]
            ended = terminated or stored["truncated"][t + steps, row]
            steps += 1
            if ended or steps == n:
                break
        assert int(sampled.steps[i]) == steps
        assert bool(sampled.terminated[i]) == terminated
        np.testing.assert_allclose(sampled.reward[i], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(sampled.next_obs[i], stored["next_obs"][t + steps - 1, row])
        np.testing.assert_array_equal(sampled.action[i], stored["action"][t, row])
        kinds.add((steps, bool(terminated), bool(ended)))
    assert {(1, True, True), (2, False, True), (3, False, False)} <= kinds


def test_n_step_returns_do_not_cross_a_restart():
    buffer, replay, _ = _filled(SETTINGS | {"n_step": 3}, times=1)
    replay = restart_episodes(replay, T)
    last = T - 1
    np.testing.assert_array_equal(
        np.asarray(replay.ring.steps.truncated[:, : T + 1]).any(axis=0),
        np.arange(T + 1) == last,
    )


@pytest.mark.parametrize("num_shards", [1, 2])
def test_whole_episodes_are_sampled_from_every_shard(num_shards):
    """Enough to hold the steps of all samples: 2 × 20 steps in episodes of up to 10."""
    settings = SETTINGS | {"reward": "rrd"}
    buffer, replay, rollouts = _filled(settings, num_shards, rrd=RRDConfig(20, 5))
    sample = jax.jit(lambda replay, key: buffer.sample_episodes(replay, key, 2))
    whole, other = (sample(replay, jax.random.key(i)) for i in (0, 1))
    assert whole.steps.obs.shape == (4, 10, 2) and whole.length.shape == (4,)
    assert (np.asarray(whole.steps.obs) != np.asarray(other.steps.obs)).any()
    played = np.concatenate([r.obs for r in rollouts])  # [40, ROWS, 2]
    rows = []
    for obs, length, episode_return in zip(
        *map(np.asarray, (whole.steps.obs, *whole[1:])), strict=True
    ):
        start, row = np.argwhere((played == obs[0]).all(axis=-1))[0]
        rows.append(row)
        assert length == (5 if row == 0 else 10) and start % length == 0
        np.testing.assert_array_equal(obs[:length], played[start : start + length, row])
        assert episode_return == pytest.approx(obs[:length, 0].sum(), abs=1e-5)
    rows_per_shard = ROWS // num_shards
    assert all(row // rows_per_shard == i // (4 // num_shards) for i, row in enumerate(rows))


@pytest.mark.parametrize("reward, newest", [("rrd", 35), ("ircr", 30)])
def test_rrd_samples_unfinished_episodes_but_ircr_does_not(reward, newest):
    buffer, replay, rollouts = _filled(SETTINGS | {"reward": reward}, times=7)
    everything = np.concatenate([r.obs for r in rollouts])[:, 1:]  # rows that end at 10, 20, 30
    sampled = jax.jit(lambda s: buffer.sample(s, jax.random.key(0), 40))(replay)
    rows = np.asarray(sampled.obs).reshape(-1, 2)
    found = [np.argwhere((everything == obs).all(axis=-1)) for obs in rows]
    assert max(place[0][0] for place in found if len(place)) == newest - 1


def test_add_makes_no_large_copies():
    """Adding one step at a time, as the presets do, needs little temporary memory."""
    settings = OffPolicyConfig(buffer_size=ROWS * 50_000, batch_size=8, reward="rrd")
    buffer = ReplayBuffer(settings, SPEC, ROWS, 10, 1)
    step = jax.tree.map(lambda x: x[:1], _rollout(np.random.default_rng(0), 0))

    def work(replay, step):
        def one(replay, _):
            replay = buffer.add(replay, step)
            sampled = buffer.sample(replay, jax.random.key(0), 1)
            return replay, jnp.sum(sampled.reward)

        return jax.lax.scan(one, replay, length=5)

    replay = jax.eval_shape(buffer.empty)
    compiled = jax.jit(work, donate_argnums=0).lower(replay, step).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 50_000


def test_episode_with_unknown_start_is_excluded():
    """Its first steps were never stored, so they do not match its return."""
    buffer, _, _ = _filled(SETTINGS | {"reward": "rrd"}, times=1)
    replay, random = exclude_current(buffer.empty()), np.random.default_rng(0)
    for i in range(4):  # rows end at 5, 10, 15, 20, or at 10 and 20
        replay = buffer.add(replay, _rollout(random, i * T))
    first, end = episode_index.complete_range(replay.index)
    np.testing.assert_array_equal(first, [5, 10, 10, 10])
    np.testing.assert_array_equal(end, [20, 20, 20, 20])


def test_restart_keeps_stored_steps():
    """The environments are reset in the middle of episodes of 10 steps."""
    buffer, replay, rollouts = _filled(SETTINGS | {"reward": "rrd"}, times=7)
    before = int(buffer.size(replay))
    sample = jax.jit(lambda s: buffer.sample(s, jax.random.key(0), 100))
    replay = restart_episodes(replay, T)
    assert int(buffer.size(replay)) == before == 15 + 5 + 3 * 10
    everything = np.concatenate([r.obs for r in rollouts[-4:]]).reshape(-1, 2)
    sampled = np.asarray(sample(replay).obs).reshape(-1, 2)
    assert {tuple(obs) for obs in sampled} == {tuple(obs) for obs in everything}
    # The next episode of each row begins with the next step, and counts when it ends.
    replay = buffer.add(replay, _rollout(np.random.default_rng(1), 0))
    replay = buffer.add(replay, _rollout(np.random.default_rng(2), T))
    first, end = episode_index.complete_range(replay.index)
    np.testing.assert_array_equal(end, 45)
    np.testing.assert_array_equal(first, 25)


def test_restart_drops_episode_with_unknown_start():
    buffer = ReplayBuffer(OffPolicyConfig(**SETTINGS | {"reward": "rrd"}), SPEC, ROWS, 10, 1)
    for a, b in zip(
        *map(
            jax.tree.leaves, (restart_episodes(exclude_current(buffer.empty()), T), buffer.empty())
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    replay = buffer.add(exclude_current(buffer.empty()), _rollout(np.random.default_rng(0), 0))
    replay = buffer.add(restart_episodes(replay, T), _rollout(np.random.default_rng(1), 0))
    first, end = episode_index.complete_range(replay.index)
    np.testing.assert_array_equal(first, 5)
    np.testing.assert_array_equal(end, [10, 5, 5, 5])


def test_ircr_reward_of_a_step_is_its_episode_return():
    buffer, replay, rollouts = _filled(SETTINGS | {"reward": "ircr"})
    everything = np.concatenate([r.obs for r in rollouts])
    reward = np.concatenate([r.reward for r in rollouts])
    last = 20  # of 40 steps, the newest 20 are whole episodes in every row
    sums = {}
    for row, period in enumerate([5, 10, 10, 10]):
        for start in range(last, 40, period):
            for step in range(start, start + period):
                sums[row, step] = reward[start : start + period, row].sum()
    assert int(buffer.size(replay)) == len(sums)
    low, high = jax.jit(return_range)(replay.index)
    assert float(low) == pytest.approx(min(sums.values()), abs=1e-5)
    assert float(high) == pytest.approx(max(sums.values()), abs=1e-5)
    sampled = jax.jit(lambda s: buffer.sample(s, jax.random.key(0), 6))(replay)
    for obs, reward_ in zip(sampled.obs.reshape(-1, 2), sampled.reward.ravel(), strict=True):
        step, row = np.argwhere((everything == np.asarray(obs)).all(axis=-1))[0]
        assert float(reward_) == pytest.approx(sums[row, step], abs=1e-5)


@pytest.mark.learning
@pytest.mark.parametrize("changes", [{}, {"whole_return": True, "bias_correction": True}])
def test_rrd_recovers_step_rewards_from_returns(changes):
    """Only sums over 5 or 10 steps are known; the network predicts the reward of each step."""
    settings = SETTINGS | {"buffer_size": ROWS * 400, "reward": "rrd"}
    rrd = RRDConfig(batch_size=64, sample_size=4, **changes)

    def reward_fn(obs, action):
        return np.sin(2 * obs[..., 0]) + obs[..., 1] * action[..., 0]

    buffer, replay, _ = _filled(settings, times=80, rrd=rrd, reward_fn=reward_fn)
    network = NetworkConfig((32,), (32, 32), activation="tanh")
    model = reward_model.rrd_model(rrd, reward_network.build(SPEC, network))
    transform = optax.adam(5e-3)

    @jax.jit
    def learn(replay, key):
        params = model.init(key)
        samples = buffer.sample_steps(replay, key, 1500)

        def step(carry, samples):
            params, state = carry
            grads, _ = jax.grad(model.loss, has_aux=True)(params, samples)
            updates, state = transform.update(grads, state)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, transform.init(params)), samples)
        return params

    params = learn(replay, jax.random.key(0))
    fresh = _rollout(np.random.default_rng(1), 0, reward_fn)
    steps = jax.eval_shape(lambda: buffer.sample(replay, jax.random.key(1), 1))
    steps = steps._replace(obs=fresh.obs, action=fresh.action, next_obs=fresh.next_obs)
    predicted = jax.jit(model.reward)(params, steps)
    assert np.corrcoef(np.ravel(predicted), fresh.reward.ravel())[0, 1] > 0.8
