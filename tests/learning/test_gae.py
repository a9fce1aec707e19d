"""Check advantages against hand-computed tables and explicit sums per episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.learning.gae import discounted_returns, gae, lambda_returns

GAMMA, LAM = 0.9, 0.8
T, N = 11, 3

compiled = jax.jit(gae)


def _batch(seed, ending_rate=0.3):
    """Draw arrays whose next values are independent of the value of the next row."""
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, T, N)).astype(np.float32)
    terminated, truncated = rng.random((2, T, N)) < ending_rate
    return reward, value, next_value, terminated, truncated


def _episode_end(ended, t):
    """Return the last step of the episode (or of the rollout) that step t belongs to."""
    return next((k for k in range(t, len(ended)) if ended[k]), len(ended) - 1)


def _sum_of_deltas(reward, value, next_value, terminated, truncated, gamma, lam):
    """Sum (γλ)^k δ_{t+k} up to the end of each step's own episode, with no recursion."""
    reward, value, next_value = (x.astype(np.float64) for x in (reward, value, next_value))
    advantage = np.zeros_like(reward)
    for n in range(reward.shape[1]):
        for t in range(reward.shape[0]):
            for k in range(t, _episode_end(terminated[:, n] | truncated[:, n], t) + 1):
                bootstrap_value = 0.0 if terminated[k, n] else next_value[k, n]
                delta = reward[k, n] + gamma * bootstrap_value - value[k, n]
                advantage[t, n] += (gamma * lam) ** (k - t) * delta
    return advantage


# γ = λ = ½, so each further step counts a quarter. Rewards 1 2 3 4, values 2 4 6 8, successor
# values 4 v 8 10: without an ending (and v = 6) every δ is exactly 1.
# name: (v, terminated, truncated, advantages)
TABLE = {
    "plain": (6, "0000", "0000", [1.328125, 1.3125, 1.25, 1.0]),
    # δ_1 = 2 − 4 = −2, and the episode ends there.
    "terminated in the middle": (6, "0100", "0000", [0.5, -2.0, 1.25, 1.0]),
    # The true successor is worth 10, unlike the state after the reset: δ_1 = 2 + 5 − 4 = 3.
    "truncated in the middle": (10, "0000", "0100", [1.75, 3.0, 1.25, 1.0]),
    "both in the middle": (10, "0100", "0100", [0.5, -2.0, 1.25, 1.0]),
    # δ_3 = 4 − 8 = −4.
    "terminated at the end": (6, "0001", "0000", [1.25, 1.0, 0.0, -4.0]),
    "truncated at the end": (6, "0000", "0001", [1.328125, 1.3125, 1.25, 1.0]),
    "both at the end": (6, "0001", "0001", [1.25, 1.0, 0.0, -4.0]),
}


@pytest.mark.parametrize("dtype", [bool, np.float32])
@pytest.mark.parametrize("name", TABLE)
def test_hand_computed(name, dtype):
    successor, terminated, truncated, expected = TABLE[name]
    reward = np.float32([1, 2, 3, 4])
    value = np.float32([2, 4, 6, 8])
    next_value = np.float32([4, successor, 8, 10])
    masks = [np.array(list(mask)) == "1" for mask in (terminated, truncated)]
    arrays = [x[:, None] for x in (reward, value, next_value, *(m.astype(dtype) for m in masks))]
    advantage, target = compiled(*arrays, gamma=0.5, lam=0.5)
    # All numbers are sums of powers of two, hence exact.
    np.testing.assert_array_equal(advantage[:, 0], expected)
    np.testing.assert_array_equal(target[:, 0], np.array(expected) + value)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**31),
    ending_rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
)
def test_equals_sum_of_deltas(seed, ending_rate, gamma, lam):
    arrays = _batch(seed, ending_rate)
    advantage, target = compiled(*arrays, gamma=gamma, lam=lam)
    expected = _sum_of_deltas(*arrays, gamma, lam)
    np.testing.assert_allclose(advantage, expected, atol=2e-5)
    np.testing.assert_allclose(target, expected + arrays[1], atol=2e-5)


def test_lambda_zero_is_one_step():
    reward, value, next_value, terminated, truncated = _batch(1)
    _, target = compiled(reward, value, next_value, terminated, truncated, gamma=GAMMA, lam=0.0)
    expected = np.where(terminated, reward, reward + GAMMA * next_value)
    np.testing.assert_allclose(target, expected, atol=1e-6)


def test_lambda_one_is_monte_carlo_with_bootstrap():
    reward, value, next_value, terminated, truncated = _batch(2, ending_rate=0.15)
    ended = terminated | truncated
    # Inside an episode the successor is the next row; only then do values telescope away.
    next_value[:-1] = np.where(ended[:-1], next_value[:-1], value[1:])
    _, target = compiled(reward, value, next_value, terminated, truncated, gamma=GAMMA, lam=1.0)
    for n in range(N):
        for t in range(T):
            end = _episode_end(ended[:, n], t)
            rewards = sum(GAMMA ** (k - t) * reward[k, n] for k in range(t, end + 1))
            rest = 0.0 if terminated[end, n] else GAMMA ** (end - t + 1) * next_value[end, n]
            np.testing.assert_allclose(target[t, n], rewards + rest, atol=1e-5)


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_nothing_leaks_across_episode_ends(how):
    reward, value, next_value, _, _ = _batch(3)
    masks = {"terminated": np.zeros((T, N), bool), "truncated": np.zeros((T, N), bool)}
    masks[how][4] = True
    before, _ = compiled(reward, value, next_value, **masks, gamma=GAMMA, lam=LAM)
    for array in (reward, value, next_value):
        array[5:] += 100.0
    after, _ = compiled(reward, value, next_value, **masks, gamma=GAMMA, lam=LAM)
    np.testing.assert_array_equal(before[:5], after[:5])
    assert np.all(np.abs(before[5:] - after[5:]) > 1)


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_nan_does_not_leak_across_episode_ends(how):
    reward, value, next_value, _, _ = _batch(3)
    masks = {"terminated": np.zeros((T, N), bool), "truncated": np.zeros((T, N), bool)}
    masks[how][4] = True
    before, _ = compiled(reward, value, next_value, **masks, gamma=GAMMA, lam=LAM)
    reward[5:] = np.nan
    after, _ = compiled(reward, value, next_value, **masks, gamma=GAMMA, lam=LAM)
    np.testing.assert_array_equal(before[:5], after[:5])
    assert np.isnan(after[5:]).all()


def test_nothing_leaks_between_environments():
    arrays = _batch(4)
    before, _ = compiled(*arrays, gamma=GAMMA, lam=LAM)
    arrays[0][:, 1] += 100.0
    after, _ = compiled(*arrays, gamma=GAMMA, lam=LAM)
    np.testing.assert_array_equal(before[:, [0, 2]], after[:, [0, 2]])


def test_termination_ignores_the_next_value():
    reward, value, next_value, _, truncated = _batch(5)
    everywhere = np.ones((T, N), bool)
    advantage, _ = compiled(reward, value, next_value, everywhere, truncated, gamma=GAMMA, lam=LAM)
    np.testing.assert_allclose(advantage, reward - value, atol=1e-6)


def test_truncation_adds_the_discounted_next_value():
    reward, value, next_value, _, _ = _batch(6)
    at_step_4, never = np.zeros((T, N), bool), np.zeros((T, N), bool)
    at_step_4[4] = True
    truncated, _ = compiled(reward, value, next_value, never, at_step_4, gamma=GAMMA, lam=LAM)
    terminated, _ = compiled(reward, value, next_value, at_step_4, never, gamma=GAMMA, lam=LAM)
    np.testing.assert_allclose(truncated[4] - terminated[4], GAMMA * next_value[4], atol=1e-6)
    np.testing.assert_allclose(
        truncated[3] - terminated[3], GAMMA * LAM * GAMMA * next_value[4], atol=1e-6
    )
    np.testing.assert_array_equal(truncated[5:], terminated[5:])


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("shape", [(T,), (T, 1), (T, N, 1), (1, N), (T - 1, N)])
def test_wrong_shapes_raise(position, shape):
    arrays = [jnp.zeros((T, N))] * 5
    arrays[position] = jnp.zeros(shape)
    with pytest.raises(AssertionError):
        gae(*arrays, gamma=GAMMA, lam=LAM)


def test_wrong_rank_of_all_arrays_raises():
    with pytest.raises(AssertionError):
        gae(*[jnp.zeros((T, N, 2))] * 5, gamma=GAMMA, lam=LAM)


def test_same_with_and_without_jit():
    arrays = [jnp.asarray(x) for x in _batch(7)]
    plain = gae(*arrays, gamma=GAMMA, lam=LAM)
    with jax.disable_jit():
        by_hand = gae(*arrays, gamma=GAMMA, lam=LAM)
    for other in (compiled(*arrays, gamma=GAMMA, lam=LAM), by_hand):
        for a, b in zip(plain, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_vmap_over_hyper_parameters():
    arrays = [jnp.asarray(x) for x in _batch(8)]
    gammas, lams = jnp.array([0.0, 0.5, 0.99]), jnp.array([1.0, 0.5, 0.95])
    many, _ = jax.vmap(lambda g, m: gae(*arrays, gamma=g, lam=m))(gammas, lams)
    for one, gamma, lam in zip(many, gammas, lams, strict=True):
        expected = _sum_of_deltas(*map(np.asarray, arrays), float(gamma), float(lam))
        np.testing.assert_allclose(one, expected, atol=2e-5)


def test_clipped_ratios_match_plain_loops():
    """The V-trace sum as in its paper, with terminations and truncations."""
    rng = np.random.default_rng(0)
    steps, rows, gamma, lam = 9, 5, 0.9, 0.8
    reward, value, next_value = rng.normal(size=(3, steps, rows))
    terminated, truncated = rng.random((2, steps, rows)) < 0.15
    truncated &= ~terminated
    ratio = np.exp(rng.normal(size=(steps, rows)))
    rho, c = np.minimum(ratio, 1.2), np.minimum(ratio, 0.9)
    advantage, _ = gae(
        *map(jnp.asarray, (reward, value, next_value, terminated, truncated)),
        gamma=gamma,
        lam=lam,
        rho=jnp.asarray(rho),
        c=jnp.asarray(c),
    )
    for t in range(steps):
        for n in range(rows):
            total, weight = 0.0, 1.0
            for k in range(t, steps):
                bootstrap = 0.0 if terminated[k, n] else gamma * next_value[k, n]
                total += weight * rho[k, n] * (reward[k, n] + bootstrap - value[k, n])
                if terminated[k, n] or truncated[k, n]:
                    break
                weight *= gamma * lam * c[k, n]
            np.testing.assert_allclose(advantage[t, n], total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend, expected", [("gpu", 32), ("cpu", 1), ("tpu", 1)])
def test_scan_is_unrolled_only_on_gpu(monkeypatch, backend, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    jaxpr = jax.make_jaxpr(lambda *arrays: gae(*arrays, gamma=GAMMA, lam=LAM))(*_batch(0))
    unrolled = [e.params["unroll"] for e in jaxpr.jaxpr.eqns if e.primitive.name == "scan"]
    assert unrolled == [expected]


def test_discounted_returns_by_hand():
    reward = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ended = jnp.array([[False, False], [True, False], [False, False]])
    found = discounted_returns(reward, ended, jnp.array([8.0, 0.0]), gamma=0.5)
    # The first column starts from 8, its carry; its second step ends an episode.
    np.testing.assert_array_equal(found, [[5.0, 2.0], [5.5, 5.0], [5.0, 8.5]])


def _lambda_return_by_loop(reward, next_value, terminated, truncated, t, gamma, lam):
    """Average the n-step returns of one row's step t, each with its weight, with no recursion."""
    total, weight, rewards = 0.0, 1.0, 0.0
    for k in range(t, len(reward)):
        rewards += gamma ** (k - t) * reward[k]
        bootstrap = 0.0 if terminated[k] else gamma ** (k - t + 1) * next_value[k]
        if terminated[k] or truncated[k] or k == len(reward) - 1:
            return total + weight * (rewards + bootstrap)
        total += weight * (1 - lam) * (rewards + bootstrap)
        weight *= lam
    raise AssertionError


@pytest.mark.parametrize("ending_rate", [0.0, 0.3])
@pytest.mark.parametrize("lam", [0.0, LAM, 1.0])
def test_lambda_returns_average_n_step_returns(lam, ending_rate):
    reward, _, next_value, terminated, truncated = _batch(3, ending_rate)
    found = jax.jit(lambda_returns)(reward, next_value, terminated, truncated, gamma=GAMMA, lam=lam)
    for t, n in np.ndindex(T, N):
        row = (x[:, n].astype(np.float64) for x in (reward, next_value))
        expected = _lambda_return_by_loop(
            *row, terminated[:, n], truncated[:, n], t, gamma=GAMMA, lam=lam
        )
        np.testing.assert_allclose(found[t, n], expected, rtol=1e-4, atol=1e-5)


def test_lambda_returns_do_not_read_the_next_episode():
    reward, _, next_value, terminated, truncated = _batch(4, ending_rate=0.0)
    truncated[4] = terminated[8] = True
    reward[5:], next_value[8] = np.nan, np.nan  # the value after a termination counts for nothing
    found = lambda_returns(reward, next_value, terminated, truncated, gamma=GAMMA, lam=LAM)
    assert np.isfinite(found[:5]).all()
