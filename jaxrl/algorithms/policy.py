"""Acting: the policy of every algorithm, and what it needs."""

from typing import NamedTuple

from jaxrl.learning import normalizer
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, Key, Policy, PyTree


class PolicyParams(NamedTuple):
    """What acting needs: weights, and the statistics of what they were trained on."""

    actor: PyTree
    observations: RunningStats


class Extras(NamedTuple):
    """What the policy notes for learning: the action before squashing, and its likelihood."""

    raw_action: Array
    log_prob: Array


def make_policy(networks: ActorCritic, deterministic: bool) -> Policy:
    """Return the policy alone, as evaluation and loaded files use it."""
    dist = networks.distribution

    def act(params: PolicyParams, obs: PyTree, carry: PyTree, key: Key):
        normal_obs = normalizer.normalize(params.observations, obs)
        out, carry = networks.actor.apply(params.actor, normal_obs, carry)
        raw = dist.mode(out) if deterministic else dist.sample(out, key)
        return dist.to_env(raw), carry, Extras(raw, dist.log_prob(out, raw))

    return act
