"""The policy of every algorithm, and its parameters."""

from typing import NamedTuple

from jaxrl.learning import normalizer
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, Key, Policy, PyTree


class PolicyParams(NamedTuple):
    """What acting needs: weights, and the statistics that normalise observations."""

    actor: PyTree
    obs_stats: RunningStats


class Extras(NamedTuple):
    """What learning needs of an action: its value before squashing, and its log-probability."""

    raw_action: Array
    log_prob: Array


def make_policy(networks: ActorCritic, deterministic: bool) -> Policy:
    """Return the policy of an actor: sampled actions, or the most likely ones."""
    dist = networks.distribution

    def act(params: PolicyParams, obs: PyTree, carry: PyTree, key: Key):
        normal_obs = normalizer.normalize(params.obs_stats, obs)
        out, carry = networks.actor.apply(params.actor, normal_obs, carry)
        raw = dist.mode(out) if deterministic else dist.sample(out, key)
        return dist.to_env(raw), carry, Extras(raw, dist.log_prob(out, raw))

    return act
