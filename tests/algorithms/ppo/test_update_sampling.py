"""Minibatch row sampling, and V-trace advantages against loops."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.ppo import update as ppo_update
from jaxrl.algorithms.ppo.batch import PPO, Batch, PPOState, VTraceInputs
from jaxrl.algorithms.ppo.update import VTraceCache
from jaxrl.config import PPOConfig
from jaxrl.learning import distributions, normalizer, segments

T, H, N, SHARDS, MINIBATCHES = 4, 2, 4, 2, 2
ROWS = N * T // H  # 8 segments, 4 in each shard, of which a minibatch takes 2
HPARAMS = {
    "gamma": 0.9,
    "lam": 0.8,
    "rho_clip": 1.1,
    "c_clip": 0.9,
    "prio_alpha": 0.7,
    "prio_beta0": 0.4,
}
PROGRESS, CENTER, SPREAD = 0.25, 0.3, 2.0
PARAMS = jnp.float32([0.7, -0.4])  # the mean is 0.7 × obs, the value −0.4 × obs


def _forward(params, obs, carry, ended):
    return jnp.stack([params[0] * obs, jnp.zeros_like(obs)], axis=-1), params[1] * obs


def _ppo(sampling="sequential", advantage="gae"):
    config = PPOConfig(
        rollout_length=T,
        bptt_horizon=H,
        num_minibatches=MINIBATCHES,
        sampling=sampling,
        advantage=advantage,
        normalize_value=True,
    )
    networks: Any = SimpleNamespace(forward=_forward, distribution=distributions.normal(1))
    env: Any = None  # sampling uses none
    return PPO(config, env, networks, total_iterations=1, num_shards=SHARDS)


def _learner() -> PPOState:
    values = normalizer.RunningStats(jnp.float32(9), jnp.float32(CENTER), jnp.float32(SPREAD**2))
    hparams = {name: jnp.float32(x) for name, x in HPARAMS.items()}
    return PPOState(*[()] * 6, values, hparams, *[()] * 4)  # type: ignore[arg-type]


RANDOM = np.random.default_rng(0)
ROLLOUT = {  # a rollout [T, N]; environment 1 terminates, 2 is truncated, inside segments
    name: RANDOM.normal(size=(T, N)).astype(np.float32)
    for name in ("obs", "raw_action", "log_prob", "reward", "value", "next_value", "advantage")
}
ROLLOUT["terminated"], ROLLOUT["truncated"] = np.zeros((2, T, N), bool)
ROLLOUT["terminated"][1, 1] = ROLLOUT["truncated"][2, 2] = True
CACHED = {  # from the last minibatch with each row
    "value": ROLLOUT["value"] + 0.1 * RANDOM.normal(size=(T, N)).astype(np.float32),
    "ratio": RANDOM.uniform(0.5, 1.5, size=(T, N)).astype(np.float32),
}


def _batch() -> Batch:
    rows: Any = segments.cut({name: jnp.asarray(x) for name, x in ROLLOUT.items()}, H)
    vtrace = VTraceInputs(**{name: rows[name] for name in VTraceInputs._fields})
    given = {name: rows[name] for name in ("obs", "log_prob", "value", "advantage")}
    nothing = dict.fromkeys(("ended", "carry", "teacher_output", "weight", "noise"), ())
    raw = rows["raw_action"][..., None]
    return Batch(**given, **nothing, raw_action=raw, target=rows["value"], vtrace=vtrace)


def _cache() -> VTraceCache:
    arrays = (segments.cut(jnp.asarray(CACHED[name]), H) for name in VTraceCache._fields)
    return VTraceCache(*arrays)


def _advantages(value, ratio):
    """Sum discounted errors up to the end of each episode."""
    result = np.zeros((T, N))
    scaled = value * SPREAD + CENTER
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                ended = ROLLOUT["terminated"][k, n] or ROLLOUT["truncated"][k, n]
                next_value = ROLLOUT["next_value"][k, n] * SPREAD + CENTER
                bootstrap = next_value if ended or k == T - 1 else scaled[k + 1, n]
                bootstrap = 0.0 if ROLLOUT["terminated"][k, n] else bootstrap
                error = ROLLOUT["reward"][k, n] + HPARAMS["gamma"] * bootstrap - scaled[k, n]
                result[t, n] += weight * min(ratio[k, n], HPARAMS["rho_clip"]) * error
                if ended:
                    break
                weight *= HPARAMS["gamma"] * HPARAMS["lam"] * min(ratio[k, n], HPARAMS["c_clip"])
    return np.asarray(segments.cut(jnp.float32(result), H))


def _probs(advantage):
    """Return each row's probability within its shard, [SHARDS, rows]."""
    weight = np.abs(advantage).sum(axis=0).reshape(SHARDS, -1) ** HPARAMS["prio_alpha"] + 1e-6
    return weight / weight.sum(axis=1, keepdims=True)


def test_plans_are_rows_or_sampling_keys():
    planned = np.asarray(ppo_update.plan_epoch(_ppo(), _batch(), jax.random.key(0)))
    assert planned.shape == (MINIBATCHES, SHARDS, 2)
    for shard in range(SHARDS):
        assert sorted(planned[:, shard].ravel()) == [0, 1, 2, 3]
    keys = ppo_update.plan_epoch(_ppo("uniform"), _batch(), jax.random.key(0))
    assert jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key) and keys.shape == (MINIBATCHES,)
    fixed = [
        ppo_update.is_fixed(_ppo(sampling, advantage).config)
        for sampling in ("sequential", "uniform")
        for advantage in ("gae", "vtrace")
    ]
    assert fixed == [True, False, False, False]


def _sample_rows(ppo, cache, number=2000):
    """Return rows and weights of many samples."""
    keys = jax.random.split(jax.random.key(1), number)

    def pick(key):
        progress = jnp.float32(PROGRESS)
        return ppo_update.sample_rows(ppo, _learner(), _batch(), cache, key, progress)

    return jax.jit(jax.vmap(pick))(keys)


def test_uniform_sampling_draws_distinct_rows_per_shard():
    rows, weight = _sample_rows(_ppo("uniform"), ())
    rows = np.asarray(rows)
    assert rows.shape == (2000, SHARDS, 2) and weight == ()
    assert (rows[..., 0] != rows[..., 1]).all()
    for shard in range(SHARDS):
        counts = np.bincount(rows[:, shard].ravel(), minlength=4)
        np.testing.assert_allclose(counts, 1000, atol=100)
    assert (np.sort(rows[:, 0]) != np.sort(rows[:, 1])).any()  # shards sample independently


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_prioritized_sampling_uses_current_advantages(advantage):
    cache = () if advantage == "gae" else _cache()
    rows, weight = map(np.asarray, _sample_rows(_ppo("prioritized", advantage), cache))
    assert rows.shape == (2000, SHARDS, 2) and weight.shape == (2000, 1, SHARDS * 2)
    if advantage == "gae":
        probs = _probs(_batch().advantage)
    else:
        probs = _probs(_advantages(CACHED["value"], CACHED["ratio"]))
    for shard in range(SHARDS):
        counts = np.bincount(rows[:, shard, 0], minlength=4)  # the first of two rows
        np.testing.assert_allclose(counts / 2000, probs[shard], atol=0.05)
    beta = HPARAMS["prio_beta0"] + (1 - HPARAMS["prio_beta0"]) * HPARAMS["prio_alpha"] * PROGRESS
    drawn = np.stack([probs[b][rows[:, b]] for b in range(SHARDS)], axis=1)
    expected = (4 * drawn.reshape(2000, 1, -1)) ** -beta
    np.testing.assert_allclose(weight, expected, rtol=1e-3)


def test_gae_advantages_are_not_recomputed():
    ppo, batch, rows = _ppo(), _batch(), jnp.array([[0, 3], [1, 2]])
    assert ppo_update.init_cache(ppo.config, batch) == ()
    progress = jnp.float32(PROGRESS)
    part, cache = ppo_update.sample(ppo, _learner(), PARAMS, batch, (), rows, progress)
    np.testing.assert_array_equal(part.advantage, batch.advantage[:, np.array([0, 3, 5, 6])])
    assert cache == () and part.weight == ()


def test_vtrace_recomputes_and_caches_values_and_ratios():
    ppo, batch, rows = _ppo(advantage="vtrace"), _batch(), jnp.array([[0, 3], [1, 2]])
    first = ppo_update.init_cache(ppo.config, batch)
    np.testing.assert_array_equal(first.value, batch.value)
    np.testing.assert_array_equal(first.ratio, 1.0)
    sample = jax.jit(partial(ppo_update.sample, ppo))
    part, cache = sample(_learner(), PARAMS, batch, _cache(), rows, jnp.float32(PROGRESS))
    # In a rollout: row r of the segments is environment r // 2, its half r % 2.
    visited = np.zeros((T, N), bool)
    for row in (0, 3, 5, 6):
        visited[H * (row % 2) : H * (row % 2 + 1), row // 2] = True
    error = ROLLOUT["raw_action"] - 0.7 * ROLLOUT["obs"]
    now = np.exp(-0.5 * error**2 - 0.5 * np.log(2 * np.pi) - ROLLOUT["log_prob"])
    ratio = np.where(visited, now, CACHED["ratio"])
    value = np.where(visited, -0.4 * ROLLOUT["obs"], CACHED["value"])
    np.testing.assert_allclose(segments.join(cache.ratio, T), ratio, rtol=1e-4)
    np.testing.assert_allclose(segments.join(cache.value, T), value, rtol=1e-5)
    # The new ratios count at once, the new values from the next visit on.
    expected = _advantages(CACHED["value"], ratio)[:, [0, 3, 5, 6]]
    np.testing.assert_allclose(part.advantage, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(part.obs, batch.obs[:, np.array([0, 3, 5, 6])])


def test_vtrace_ratios_stay_finite():
    """Log-ratios are clipped to ±20, however far the policy has moved."""
    ppo, batch = _ppo(advantage="vtrace"), _batch()
    for sign in (-1, 1):
        old_log_prob = jnp.full((H, ROWS), -200.0 * sign)
        ratio = ppo_update.vtrace_values(ppo, PARAMS, batch._replace(log_prob=old_log_prob)).ratio
        np.testing.assert_allclose(ratio, np.exp(20.0 * sign), rtol=1e-4)
