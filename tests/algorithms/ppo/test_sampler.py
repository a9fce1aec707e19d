"""Which rows a minibatch takes, and their advantages by V-trace, against loops."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.ppo.batch import Batch, PPOState, Steps
from jaxrl.algorithms.ppo.sampler import Live, Sampler
from jaxrl.config import PPOConfig
from jaxrl.learning import distributions, normalizer, segments

T, H, N, BLOCKS, MINIBATCHES = 4, 2, 4, 2, 2
ROWS = N * T // H  # 8 segments, 4 in each block, of which a minibatch takes 2
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


def _both(params, obs, carry, ended):
    return jnp.stack([params[0] * obs, jnp.zeros_like(obs)], axis=-1), params[1] * obs


def _sampler(sampling="sequential", advantage="gae"):
    config = PPOConfig(
        rollout_length=T,
        bptt_horizon=H,
        num_minibatches=MINIBATCHES,
        sampling=sampling,
        advantage=advantage,
        normalize_value=True,
    )
    networks: Any = SimpleNamespace(both=_both, distribution=distributions.normal(1))
    return Sampler(config, networks, ROWS, BLOCKS)


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
LAST = {  # of the last visit
    "value": WHOLE["value"] + 0.1 * RANDOM.normal(size=(T, N)).astype(np.float32),
    "ratio": RANDOM.uniform(0.5, 1.5, size=(T, N)).astype(np.float32),
}


def _batch() -> Batch:
    rows: Any = segments.cut({name: jnp.asarray(x) for name, x in WHOLE.items()}, H)
    steps = Steps(**{name: rows[name] for name in Steps._fields})
    given = {name: rows[name] for name in ("obs", "log_prob", "value", "advantage")}
    nothing = dict.fromkeys(("ended", "carry", "teacher", "weight", "noise"), ())
    raw = rows["raw_action"][..., None]
    return Batch(**given, **nothing, raw_action=raw, target=rows["value"], steps=steps)


def _live() -> Live:
    return Live(*(segments.cut(jnp.asarray(LAST[name]), H) for name in Live._fields))


def _advantages(value, ratio):
    """Sum discounted errors up to the end of each episode."""
    result = np.zeros((T, N))
    worth = value * SPREAD + CENTER
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                ended = WHOLE["terminated"][k, n] or WHOLE["truncated"][k, n]
                judged = WHOLE["next_value"][k, n] * SPREAD + CENTER
                follows = judged if ended or k == T - 1 else worth[k + 1, n]
                follows = 0.0 if WHOLE["terminated"][k, n] else follows
                error = WHOLE["reward"][k, n] + HYPER["gamma"] * follows - worth[k, n]
                result[t, n] += weight * min(ratio[k, n], HYPER["rho_clip"]) * error
                if ended:
                    break
                weight *= HYPER["gamma"] * HYPER["lam"] * min(ratio[k, n], HYPER["c_clip"])
    return np.asarray(segments.cut(jnp.float32(result), H))


def _chance(advantage):
    """Return each row's chance within its block, [BLOCKS, rows]."""
    weight = np.abs(advantage).sum(axis=0).reshape(BLOCKS, -1) ** HYPER["prio_alpha"] + 1e-6
    return weight / weight.sum(axis=1, keepdims=True)


def test_plans_are_rows_or_keys_to_draw_them_with():
    planned = np.asarray(_sampler().plan(jax.random.key(0)))
    assert planned.shape == (MINIBATCHES, BLOCKS, 2)
    for block in range(BLOCKS):
        assert sorted(planned[:, block].ravel()) == [0, 1, 2, 3]
    keys = _sampler("uniform").plan(jax.random.key(0))
    assert jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key) and keys.shape == (MINIBATCHES,)
    fixed = [_sampler(s, a).is_fixed for s in ("sequential", "uniform") for a in ("gae", "vtrace")]
    assert fixed == [True, False, False, False]


def _picked(sampler, live, number=2000):
    """Return rows and weights of many draws."""
    keys = jax.random.split(jax.random.key(1), number)

    def pick(key):
        return sampler._pick(_learner(), _batch(), live, key, jnp.float32(PROGRESS))

    return jax.jit(jax.vmap(pick))(keys)


def test_uniform_draws_take_two_different_rows_of_each_block():
    rows, weight = _picked(_sampler("uniform"), ())
    rows = np.asarray(rows)
    assert rows.shape == (2000, BLOCKS, 2) and weight == ()
    assert (rows[..., 0] != rows[..., 1]).all()
    for block in range(BLOCKS):
        counts = np.bincount(rows[:, block].ravel(), minlength=4)
        np.testing.assert_allclose(counts, 1000, atol=100)
    assert (np.sort(rows[:, 0]) != np.sort(rows[:, 1])).any()  # blocks draw by themselves


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_prioritized_draws_go_by_advantages_as_they_are_now(advantage):
    sampler = _sampler("prioritized", advantage)
    live = () if advantage == "gae" else _live()
    rows, weight = map(np.asarray, _picked(sampler, live))
    assert rows.shape == (2000, BLOCKS, 2) and weight.shape == (2000, 1, BLOCKS * 2)
    if advantage == "gae":
        chance = _chance(_batch().advantage)
    else:
        chance = _chance(_advantages(LAST["value"], LAST["ratio"]))
    for block in range(BLOCKS):
        counts = np.bincount(rows[:, block, 0], minlength=4)  # the first of two: by its chance
        np.testing.assert_allclose(counts / 2000, chance[block], atol=0.05)
    beta = HYPER["prio_beta0"] + (1 - HYPER["prio_beta0"]) * HYPER["prio_alpha"] * PROGRESS
    drawn = np.stack([chance[b][rows[:, b]] for b in range(BLOCKS)], axis=1)
    expected = (4 * drawn.reshape(2000, 1, -1)) ** -beta
    np.testing.assert_allclose(weight, expected, rtol=1e-3)


def test_without_vtrace_advantages_stay_as_they_were_judged():
    sampler, batch, rows = _sampler(), _batch(), jnp.array([[0, 3], [1, 2]])
    assert sampler.live(batch) == ()
    part, live = sampler.draw(_learner(), PARAMS, batch, (), rows, jnp.float32(PROGRESS))
    np.testing.assert_array_equal(part.advantage, batch.advantage[:, np.array([0, 3, 5, 6])])
    assert live == () and part.weight == ()


def test_vtrace_looks_at_a_minibatch_again_and_notes_what_it_saw():
    sampler, batch, rows = _sampler(advantage="vtrace"), _batch(), jnp.array([[0, 3], [1, 2]])
    first = sampler.live(batch)
    np.testing.assert_array_equal(first.value, batch.value)
    np.testing.assert_array_equal(first.ratio, 1.0)
    draw = jax.jit(sampler.draw)
    part, live = draw(_learner(), PARAMS, batch, _live(), rows, jnp.float32(PROGRESS))
    # In a rollout: row r of the segments is environment r // 2, its half r % 2.
    seen = np.zeros((T, N), bool)
    for row in (0, 3, 5, 6):
        seen[H * (row % 2) : H * (row % 2 + 1), row // 2] = True
    gap = WHOLE["raw_action"] - 0.7 * WHOLE["obs"]
    now = np.exp(-0.5 * gap**2 - 0.5 * np.log(2 * np.pi) - WHOLE["log_prob"])
    ratio = np.where(seen, now, LAST["ratio"])
    value = np.where(seen, -0.4 * WHOLE["obs"], LAST["value"])
    np.testing.assert_allclose(segments.join(live.ratio, T), ratio, rtol=1e-4)
    np.testing.assert_allclose(segments.join(live.value, T), value, rtol=1e-5)
    # The new ratios count at once, the new values from the next visit on.
    expected = _advantages(LAST["value"], ratio)[:, [0, 3, 5, 6]]
    np.testing.assert_allclose(part.advantage, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(part.obs, batch.obs[:, np.array([0, 3, 5, 6])])


def test_ratios_stay_finite():
    """exp(±20), however far the policy has moved."""
    sampler, batch = _sampler(advantage="vtrace"), _batch()
    for sign in (-1, 1):
        then = jnp.full((H, ROWS), -200.0 * sign)
        ratio = sampler._look(PARAMS, batch._replace(log_prob=then)).ratio
        np.testing.assert_allclose(ratio, np.exp(20.0 * sign), rtol=1e-4)
