"""The policy of every algorithm, its parameters, and its carry in rollouts."""

from typing import NamedTuple

from jaxrl.learning import normalizer, sde
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
    """Return the policy of an actor: sampled actions, or the most likely ones.

    With the carry of `rollout_carry` actions are sampled by state-dependent exploration, if the
    networks have it; with the actor's own carry, independently at every step.
    """
    dist = networks.distribution

    def act(params: PolicyParams, obs: PyTree, carry: PyTree, key: Key):
        normal_obs = normalizer.normalize(params.obs_stats, obs)
        if isinstance(carry, sde.Carry) and not deterministic:
            return explore(params, normal_obs, carry, key)
        out, carry = networks.actor.apply(params.actor, normal_obs, carry)
        raw = dist.mode(out) if deterministic else dist.sample(out, key)
        return dist.to_env(raw), carry, Extras(raw, dist.log_prob(out, raw))

    def explore(params: PolicyParams, normal_obs: PyTree, carry: sde.Carry, key: Key):
        assert networks.sde is not None
        noise = sde.resample(carry.noise, key, networks.sde.sample_freq)
        out, perturbation, memory = networks.sde.apply(
            params.actor, normal_obs, carry.memory, noise.matrix
        )
        raw = dist.mode(out) + perturbation
        extras = Extras(raw, dist.log_prob(out, raw))
        return dist.to_env(raw), sde.Carry(memory, noise), extras

    return act


def rollout_carry(networks: ActorCritic, number: int) -> PyTree:
    """Return the carry that `number` rows of rollouts start with: the actor's, and any noise."""
    memory = networks.actor.initial_carry(number)
    if networks.sde is None:
        return memory
    return sde.Carry(memory, networks.sde.initial_noise(number))
