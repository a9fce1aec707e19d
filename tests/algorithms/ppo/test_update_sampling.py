"""Which rows a minibatch takes, and their advantages by V-trace, against loops."""

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
HYPER = {
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
    hparams = {name: jnp.float32(x) for name, x in HYPER.items()}
    return PPOState(*[()] * 6, values, hparams, *[()] * 4)  # type: ignore[arg-type]


RANDOM = np.random.default_rng(0)
WHOLE = {  # a rollout [T, N]; environment 1 terminates, 2 is truncated, amid their segments
    name: RANDOM.normal(size=(T, N)).astype(np.float32)
    for name in ("obs", "raw_action", "log_prob", "reward", "value", "next_value", "advantage")
}
WHOLE["terminated"], WHOLE["truncated"] = np.zeros((2, T, N), bool)
WHOLE["terminated"][1, 1] = WHOLE["truncated"][2, 2] = True
LAST = {  # of the last minibatch they were in
    "value": WHOLE["value"] + 0.1 * RANDOM.normal(size=(T, N)).astype(np.float32),
    "ratio": RANDOM.uniform(0.5, 1.5, size=(T, N)).astype(np.float32),
}


def _batch() -> Batch:
    rows: Any = segments.cut({name: jnp.asarray(x) for name, x in WHOLE.items()}, H)
    vtrace = VTraceInputs(**{name: rows[name] for name in VTraceInputs._fields})
    given = {name: rows[name] for name in ("obs", "log_prob", "value", "advantage")}
    nothing = dict.fromkeys(("ended", "carry", "teacher_output", "weight", "noise"), ())
    raw = rows["raw_action"][..., None]
    return Batch(**given, **nothing, raw_action=raw, target=rows["value"], vtrace=vtrace)


def _cache() -> VTraceCache:
    arrays = (segments.cut(jnp.asarray(LAST[name]), H) for name in VTraceCache._fields)
    return VTraceCache(*arrays)


def _advantages(value, ratio):
    """Sum discounted errors up to the end of each episode."""
    result = np.zeros((T, N))
    scaled = value * SPREAD + CENTER
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                ended = WHOLE["terminated"][k, n] or WHOLE["truncated"][k, n]
                next_value = WHOLE["next_value"][k, n] * SPREAD + CENTER
                follows = next_value if ended or k == T - 1 else scaled[k + 1, n]
                follows = 0.0 if WHOLE["terminated"][k, n] else follows
                error = WHOLE["reward"][k, n] + HYPER["gamma"] * follows - scaled[k, n]
                result[t, n] += weight * min(ratio[k, n], HYPER["rho_clip"]) * error
                if ended:
                    break
                weight *= HYPER["gamma"] * HYPER["lam"] * min(ratio[k, n], HYPER["c_clip"])
    return np.asarray(segments.cut(jnp.float32(result), H))


def _chance(advantage):
    """Return each row's chance within its shard, [SHARDS, rows]."""
    weight = np.abs(advantage).sum(axis=0).reshape(SHARDS, -1) ** HYPER["prio_alpha"] + 1e-6
    return weight / weight.sum(axis=1, keepdims=True)


def test_plans_are_rows_or_keys_to_draw_them_with():
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


def _picked(ppo, cache, number=2000):
    """Return rows and weights of many draws."""
    keys = jax.random.split(jax.random.key(1), number)

    def pick(key):
        progress = jnp.float32(PROGRESS)
        return ppo_update.sample_rows(ppo, _learner(), _batch(), cache, key, progress)

    return jax.jit(jax.vmap(pick))(keys)


def test_uniform_draws_take_two_different_rows_of_each_shard():
    rows, weight = _picked(_ppo("uniform"), ())
    rows = np.asarray(rows)
    assert rows.shape == (2000, SHARDS, 2) and weight == ()
    assert (rows[..., 0] != rows[..., 1]).all()
    for shard in range(SHARDS):
        counts = np.bincount(rows[:, shard].ravel(), minlength=4)
        np.testing.assert_allclose(counts, 1000, atol=100)
    assert (np.sort(rows[:, 0]) != np.sort(rows[:, 1])).any()  # shards draw by themselves


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_prioritized_draws_go_by_advantages_as_they_are_now(advantage):
    cache = () if advantage == "gae" else _cache()
    rows, weight = map(np.asarray, _picked(_ppo("prioritized", advantage), cache))
    assert rows.shape == (2000, SHARDS, 2) and weight.shape == (2000, 1, SHARDS * 2)
    if advantage == "gae":
        chance = _chance(_batch().advantage)
    else:
        chance = _chance(_advantages(LAST["value"], LAST["ratio"]))
    for shard in range(SHARDS):
        counts = np.bincount(rows[:, shard, 0], minlength=4)  # the first of two: by its chance
        np.testing.assert_allclose(counts / 2000, chance[shard], atol=0.05)
    beta = HYPER["prio_beta0"] + (1 - HYPER["prio_beta0"]) * HYPER["prio_alpha"] * PROGRESS
    drawn = np.stack([chance[b][rows[:, b]] for b in range(SHARDS)], axis=1)
    expected = (4 * drawn.reshape(2000, 1, -1)) ** -beta
    np.testing.assert_allclose(weight, expected, rtol=1e-3)


def test_without_vtrace_advantages_do_not_change():
    ppo, batch, rows = _ppo(), _batch(), jnp.array([[0, 3], [1, 2]])
    assert ppo_update.init_cache(ppo.config, batch) == ()
    progress = jnp.float32(PROGRESS)
    part, cache = ppo_update.sample(ppo, _learner(), PARAMS, batch, (), rows, progress)
    np.testing.assert_array_equal(part.advantage, batch.advantage[:, np.array([0, 3, 5, 6])])
    assert cache == () and part.weight == ()


def test_vtrace_recomputes_a_minibatch_and_caches_its_values_and_ratios():
    ppo, batch, rows = _ppo(advantage="vtrace"), _batch(), jnp.array([[0, 3], [1, 2]])
    first = ppo_update.init_cache(ppo.config, batch)
    np.testing.assert_array_equal(first.value, batch.value)
    np.testing.assert_array_equal(first.ratio, 1.0)
    sample = jax.jit(partial(ppo_update.sample, ppo))
    part, cache = sample(_learner(), PARAMS, batch, _cache(), rows, jnp.float32(PROGRESS))
    # In a rollout: row r of the segments is environment r // 2, its half r % 2.
    seen = np.zeros((T, N), bool)
    for row in (0, 3, 5, 6):
        seen[H * (row % 2) : H * (row % 2 + 1), row // 2] = True
    gap = WHOLE["raw_action"] - 0.7 * WHOLE["obs"]
    now = np.exp(-0.5 * gap**2 - 0.5 * np.log(2 * np.pi) - WHOLE["log_prob"])
    ratio = np.where(seen, now, LAST["ratio"])
    value = np.where(seen, -0.4 * WHOLE["obs"], LAST["value"])
    np.testing.assert_allclose(segments.join(cache.ratio, T), ratio, rtol=1e-4)
    np.testing.assert_allclose(segments.join(cache.value, T), value, rtol=1e-5)
    # The new ratios count at once, the new values from the next visit on.
    expected = _advantages(LAST["value"], ratio)[:, [0, 3, 5, 6]]
    np.testing.assert_allclose(part.advantage, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(part.obs, batch.obs[:, np.array([0, 3, 5, 6])])


def test_ratios_stay_finite():
    """exp(±20), however far the policy has moved."""
    ppo, batch = _ppo(advantage="vtrace"), _batch()
    for sign in (-1, 1):
        then = jnp.full((H, ROWS), -200.0 * sign)
        ratio = ppo_update.vtrace_values(ppo, PARAMS, batch._replace(log_prob=then)).ratio
        np.testing.assert_allclose(ratio, np.exp(20.0 * sign), rtol=1e-4)
