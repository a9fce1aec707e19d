"""Conditions of trials, side by side; and the zero policy among them."""

import jax
import numpy as np
import pytest

from jaxrl.algorithms.policy import PolicyParams, make_policy, zero_policy
from jaxrl.config import NetworkConfig
from jaxrl.envs.hooks import TrialReport
from jaxrl.evaluation import conditions
from jaxrl.evaluation.conditions import Played
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from jaxrl.types import ActionSpec, EnvSpec


def _report(*successes):
    table = [
        {"name": str(i), "success": s, "strict_success": False} for i, s in enumerate(successes)
    ]
    metrics = {"eval/success_rate": float(np.mean(successes)), "eval/success_rate_strict": 0.0}
    return TrialReport(metrics | {"eval/mpjpe_all": 1.0}, table, {}, "", "0")


CRITERIA = {"success": "eval/success_rate", "strict_success": "eval/success_rate_strict"}
EVERY = [
    Played("", "with plans", _report(True, True), _report(True, False)),
    Played("without_plans", "without plans", _report(False, True), None),
]


def test_every_condition_has_its_own_metrics_and_columns():
    assert conditions.metrics(EVERY, CRITERIA) == {
        "success_rate_zero": 0.5,
        "success_rate_strict_zero": 0.0,
        "success_rate_without_plans": 0.5,
        "success_rate_strict_without_plans": 0.0,
    }
    rows = conditions.add_columns(EVERY, CRITERIA)
    assert [row["zero_success"] for row in rows] == [True, False]
    assert [row["without_plans_success"] for row in rows] == [False, True]
    assert "zero_success" not in EVERY[0].policy.table[0], "the report itself is not changed"
    assert "without_plans_zero_success" not in rows[0]


def test_success_is_printed_side_by_side():
    assert conditions.text(EVERY, CRITERIA).splitlines() == [
        "success (strict success)                     policy     zero actions",
        "with plans                            100.0% (0.0%)     50.0% (0.0%)",
        "without plans                          50.0% (0.0%)                -",
    ]
    one = {"success": "eval/success_rate"}
    heading, first, _ = conditions.text(EVERY, one).splitlines()
    assert heading.split() == ["success", "policy", "zero", "actions"]
    assert first.split() == ["with", "plans", "100.0%", "50.0%"]
    lacking = EVERY[0]._replace(zero=_report(True)._replace(metrics={}))
    line = conditions.text([lacking], CRITERIA).splitlines()[1]
    assert line.split()[2:] == ["100.0%", "(0.0%)", "-", "(-)"]


@pytest.mark.parametrize(
    "settings",
    [
        {"distribution": "tanh_normal"},
        {"distribution": "normal", "state_dependent_std": False, "norm": "rms"},
        {"distribution": "normal", "rnn": "lstm", "rnn_size": 4},
    ],
)
def test_zero_policy_acts_by_zeros(settings):
    spec = EnvSpec(jax.ShapeDtypeStruct((3,), np.float32), ActionSpec(2, False))
    config = NetworkConfig(hidden=(8,), critic_hidden=(8,), **settings)
    networks = actor_critic.build(spec, config)
    actor = jax.tree.map(lambda x: x + 0.5, networks.actor.init(jax.random.key(0)))
    params = PolicyParams(actor, normalizer.init(spec.obs))
    act = jax.jit(make_policy(networks, deterministic=True))
    obs, carry = jax.random.normal(jax.random.key(1), (5, 3)), networks.actor.initial_carry(5)
    trained, zero = (
        act(each, obs, carry, jax.random.key(2))[0] for each in (params, zero_policy(params))
    )
    assert np.abs(trained).min() > 0.01
    np.testing.assert_array_equal(zero, np.zeros((5, 2)))
