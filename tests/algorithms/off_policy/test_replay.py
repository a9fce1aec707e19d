"""What off-policy learning remembers: draws from blocks, ranks of episodes, learnt rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms.off_policy import reward_model
from jaxrl.algorithms.off_policy.replay import ReplayBuffer, beheaded, restarted, returns_seen
from jaxrl.config import NetworkConfig, OffPolicyConfig
from jaxrl.learning import episode_index
from jaxrl.networks import q_network
from jaxrl.types import ActionSpec, EnvSpec, Rollout

ROWS, T = 4, 5
SPEC = EnvSpec(jax.ShapeDtypeStruct((2,), jnp.float32), ActionSpec(1, False))


def _rollout(random, start, pay=lambda obs, action: obs[..., 0]):
    """T steps of random numbers; episodes end every 5 steps in row 0, every 10 in the others."""
    obs = random.normal(size=(T, ROWS, 2)).astype(np.float32)
    action = random.uniform(-1, 1, size=(T, ROWS, 1)).astype(np.float32)
    number = start + np.arange(T)[:, None] + 1
    period = np.array([5, 10, 10, 10])[None]
    return Rollout(
        obs=obs,
        action=action,
        reward=pay(obs, action).astype(np.float32),
        terminated=number % period == 0,
        truncated=np.zeros((T, ROWS), bool),
        next_obs=obs + 1,
        extras=(),
        carry=(),
        episodes={},
    )


def _filled(settings, num_shards=1, times=8, **kwargs):
    store = ReplayBuffer(OffPolicyConfig(**settings), SPEC, ROWS, 10, num_shards)
    stored, random = store.empty(), np.random.default_rng(0)
    add, rollouts = jax.jit(store.add), []
    for i in range(times):
        rollouts.append(_rollout(random, i * T, **kwargs))
        stored = add(stored, rollouts[-1])
    return store, stored, rollouts


SETTINGS = {"rollout_length": T, "buffer_size": ROWS * 20 + 3, "batch_size": 8}


@pytest.mark.parametrize("num_shards", [1, 2])
def test_drawn_transitions_are_stored_ones(num_shards):
    store, stored, rollouts = _filled(SETTINGS, num_shards)
    assert store.length == 20 and int(store.size(stored)) == ROWS * 20
    drawn = jax.jit(lambda s: store.draw(s, jax.random.key(0), 6))(stored)
    assert drawn.obs.shape == (6, 8, 2) and drawn.action.shape == (6, 8, 1)
    kept = np.concatenate([r.obs for r in rollouts[-4:]])  # the newest 20 steps
    for t in range(6):
        for i, obs in enumerate(np.asarray(drawn.obs[t])):
            _, row = np.argwhere((kept == obs).all(axis=-1))[0]
            # Each block gives its share of every batch.
            assert num_shards == 1 or (row < 2) == (i < 4)
    np.testing.assert_allclose(drawn.next_obs, drawn.obs + 1)
    np.testing.assert_allclose(drawn.reward, drawn.obs[..., 0])


@pytest.mark.parametrize("num_shards", [1, 2])
def test_whole_episodes_are_drawn_from_every_block(num_shards):
    """As many as have the steps of all pieces: 2 × 20 of episodes of up to 10."""
    settings = SETTINGS | {"reward": "rrd", "rrd_batch_size": 20, "rrd_sample_size": 5}
    store, stored, rollouts = _filled(settings, num_shards)
    whole, other = (store.draw_whole(stored, jax.random.key(i), 2) for i in (0, 1))
    assert whole.steps.obs.shape == (4, 10, 2) and whole.length.shape == (4,)
    assert (np.asarray(whole.steps.obs) != np.asarray(other.steps.obs)).any()
    played = np.concatenate([r.obs for r in rollouts])  # [40, ROWS, 2]
    rows = []
    for obs, length, returned in zip(*map(np.asarray, (whole.steps.obs, *whole[1:])), strict=True):
        start, row = np.argwhere((played == obs[0]).all(axis=-1))[0]
        rows.append(row)
        assert length == (5 if row == 0 else 10) and start % length == 0
        np.testing.assert_array_equal(obs[:length], played[start : start + length, row])
        assert returned == pytest.approx(obs[:length, 0].sum(), abs=1e-5)
    share = ROWS // num_shards
    assert all(row // share == i // (4 // num_shards) for i, row in enumerate(rows))


@pytest.mark.parametrize("reward, newest", [("rrd", 35), ("ircr", 30)])
def test_critics_learn_from_unfinished_episodes_where_the_reward_is_learnt(reward, newest):
    store, stored, rollouts = _filled(SETTINGS | {"reward": reward}, times=7)
    everything = np.concatenate([r.obs for r in rollouts])[:, 1:]  # rows that end at 10, 20, 30
    drawn = jax.jit(lambda s: store.draw(s, jax.random.key(0), 40))(stored)
    rows = np.asarray(drawn.obs).reshape(-1, 2)
    found = [np.argwhere((everything == obs).all(axis=-1)) for obs in rows]
    assert max(place[0][0] for place in found if len(place)) == newest - 1


def test_keeping_episodes_copies_nothing_large():
    """One step at a time, as the presets do it: the program's memory stays small."""
    settings = OffPolicyConfig(buffer_size=ROWS * 50_000, batch_size=8, reward="rrd")
    store = ReplayBuffer(settings, SPEC, ROWS, 10, 1)
    step = jax.tree.map(lambda x: x[:1], _rollout(np.random.default_rng(0), 0))

    def work(stored, step):
        def one(stored, _):
            stored = store.add(stored, step)
            drawn = store.draw(stored, jax.random.key(0), 1)
            return stored, jnp.sum(drawn.reward)

        return jax.lax.scan(one, stored, length=5)

    stored = jax.eval_shape(store.empty)
    compiled = jax.jit(work, donate_argnums=0).lower(stored, step).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 50_000


def test_an_episode_without_its_beginning_never_counts():
    """What was done before is lost, but its return would come whole: it must not be believed."""
    store, _, _ = _filled(SETTINGS | {"reward": "rrd"}, times=1)
    stored, random = beheaded(store.empty()), np.random.default_rng(0)
    for i in range(4):  # rows end at 5, 10, 15, 20, or at 10 and 20
        stored = store.add(stored, _rollout(random, i * T))
    first, end = episode_index.complete(stored.book)
    np.testing.assert_array_equal(first, [5, 10, 10, 10])
    np.testing.assert_array_equal(end, [20, 20, 20, 20])


def test_a_restart_keeps_what_there_is_to_learn_from():
    """Rows are amid episodes of 10 when their environments start anew."""
    store, stored, rollouts = _filled(SETTINGS | {"reward": "rrd"}, times=7)
    before = int(store.size(stored))
    draw = jax.jit(lambda s: store.draw(s, jax.random.key(0), 100))
    stored = restarted(stored, T)
    assert int(store.size(stored)) == before == 15 + 5 + 3 * 10
    everything = np.concatenate([r.obs for r in rollouts[-4:]]).reshape(-1, 2)
    drawn = np.asarray(draw(stored).obs).reshape(-1, 2)
    assert {tuple(obs) for obs in drawn} == {tuple(obs) for obs in everything}
    # The next episode of each row begins with the next step, and counts when it ends.
    stored = store.add(stored, _rollout(np.random.default_rng(1), 0))
    stored = store.add(stored, _rollout(np.random.default_rng(2), T))
    first, end = episode_index.complete(stored.book)
    np.testing.assert_array_equal(end, 45)
    np.testing.assert_array_equal(first, 25)


def test_a_restart_forgets_an_episode_without_its_beginning():
    store = ReplayBuffer(OffPolicyConfig(**SETTINGS | {"reward": "rrd"}), SPEC, ROWS, 10, 1)
    for a, b in zip(
        *map(jax.tree.leaves, (restarted(beheaded(store.empty()), T), store.empty())), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    stored = store.add(beheaded(store.empty()), _rollout(np.random.default_rng(0), 0))
    stored = store.add(restarted(stored, T), _rollout(np.random.default_rng(1), 0))
    first, end = episode_index.complete(stored.book)
    np.testing.assert_array_equal(first, 5)
    np.testing.assert_array_equal(end, [10, 5, 5, 5])


def test_ircr_pays_every_step_its_episodes_return():
    store, stored, rollouts = _filled(SETTINGS | {"reward": "ircr"})
    everything = np.concatenate([r.obs for r in rollouts])
    reward = np.concatenate([r.reward for r in rollouts])
    last = 20  # of 40 steps, the newest 20 are whole episodes in every row
    sums = {}
    for row, period in enumerate([5, 10, 10, 10]):
        for start in range(last, 40, period):
            for step in range(start, start + period):
                sums[row, step] = reward[start : start + period, row].sum()
    assert int(store.size(stored)) == len(sums)
    low, high = jax.jit(returns_seen)(stored.book)
    assert float(low) == pytest.approx(min(sums.values()), abs=1e-5)
    assert float(high) == pytest.approx(max(sums.values()), abs=1e-5)
    drawn = jax.jit(lambda s: store.draw(s, jax.random.key(0), 6))(stored)
    for obs, paid in zip(drawn.obs.reshape(-1, 2), drawn.reward.ravel(), strict=True):
        step, row = np.argwhere((everything == np.asarray(obs)).all(axis=-1))[0]
        assert float(paid) == pytest.approx(sums[row, step], abs=1e-5)


@pytest.mark.learning
@pytest.mark.parametrize(
    "changes",
    [{}, {"rrd_bias_correction": True}, {"rrd_whole_return": True, "rrd_bias_correction": True}],
)
def test_rewards_of_steps_are_found_from_returns_alone(changes):
    """Only sums over 5 or 10 steps are known; the network finds what each step was paid."""
    settings = SETTINGS | {
        "buffer_size": ROWS * 400,
        "reward": "rrd",
        "rrd_batch_size": 64,
        "rrd_sample_size": 4,
        **changes,
    }

    def pay(obs, action):
        return np.sin(2 * obs[..., 0]) + obs[..., 1] * action[..., 0]

    store, stored, _ = _filled(settings, times=80, pay=pay)
    network = NetworkConfig((32,), (32, 32), activation="tanh")
    model = reward_model.decomposed(store.config, q_network.build_reward(SPEC, network))
    transform = optax.adam(5e-3)

    @jax.jit
    def learn(stored, key):
        params = model.init(key)
        pieces = store.draw_pieces(stored, key, 1500)

        def step(carry, pieces):
            params, state = carry
            grads, _ = jax.grad(model.loss, has_aux=True)(params, pieces)
            updates, state = transform.update(grads, state)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, transform.init(params)), pieces)
        return params

    params = learn(stored, jax.random.key(0))
    fresh = _rollout(np.random.default_rng(1), 0, pay)
    steps = store.draw(stored, jax.random.key(1), 1)
    guess = model.reward(
        params, steps._replace(obs=fresh.obs, action=fresh.action, next_obs=fresh.next_obs)
    )
    assert np.corrcoef(np.ravel(guess), fresh.reward.ravel())[0, 1] > 0.8
