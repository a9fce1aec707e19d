"""The policy of every algorithm, its parameters, and its carry in rollouts."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.config import LearningConfig, NetworkConfig, metadata
from jaxrl.learning import exploration, normalizer
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


def zero_policy(params: PolicyParams) -> PolicyParams:
    """Return parameters whose most likely action is 0: a baseline that has learnt nothing.

    All weights are 0, and with them the outputs of every layer of jaxrl's networks.
    """
    return params._replace(actor=jax.tree.map(jnp.zeros_like, params.actor))


def make_policy(networks: ActorCritic, deterministic: bool) -> Policy:
    """Return the policy of an actor: sampled actions, or the most likely ones.

    With the carry of `rollout_carry` actions are sampled by the networks' exploration, if they have
    one; with the actor's own carry, independently at every step.
    """
    dist = networks.distribution

    def act(params: PolicyParams, obs: PyTree, carry: PyTree, key: Key):
        normal_obs = normalizer.normalize(params.obs_stats, obs)
        if isinstance(carry, exploration.Carry) and not deterministic:
            assert networks.exploration is not None
            out, raw, carry = networks.exploration.act(params.actor, normal_obs, carry, key)
        else:
            out, carry = networks.actor.apply(params.actor, normal_obs, carry)
            raw = dist.mode(out) if deterministic else dist.sample(out, key)
        return dist.to_env(raw), carry, Extras(raw, dist.log_prob(out, raw))

    return act


def sample_action(
    networks: ActorCritic, params: PyTree, obs: PyTree, key: Key
) -> tuple[Array, Array]:
    """Return sampled actions and their log-probabilities, of an actor that is not recurrent."""
    out, _ = networks.actor.apply(params, obs, ())
    raw = networks.distribution.sample(out, key)
    return networks.distribution.to_env(raw), networks.distribution.log_prob(out, raw)


def greedy_network(network: NetworkConfig, norm: str) -> NetworkConfig:
    """Return the network of an actor whose outputs are the values of all actions.

    Its layers are normalised by `norm`, unless the settings of the network choose another way.
    """
    norm = norm if network.norm == "none" else network.norm
    return replace(network, distribution="greedy", norm=norm)


def action_values(networks: ActorCritic, params: PyTree, obs: PyTree) -> Array:
    """Return the values of all actions from a greedy actor that is not recurrent."""
    return networks.actor.apply(params, obs, ())[0][..., :-1]  # the last is epsilon


def set_epsilon(params: PyTree, progress: Array, fraction: float, end: float) -> PyTree:
    """Return a greedy actor's parameters with ε set for a point of the run.

    ε falls linearly from 1 to `end` over `fraction` of the run. With a fraction of 0 it is `end` as
    soon as there is progress.
    """
    done = jnp.minimum(progress / fraction, 1.0) if fraction else jnp.sign(progress)
    epsilon = jnp.asarray(1.0 + (end - 1.0) * done, jnp.float32)
    return {"params": params["params"] | {"epsilon": epsilon}}


def rollout_carry(networks: ActorCritic, number: int) -> PyTree:
    """Return the carry that `number` rows of rollouts start with: the actor's, and any noise."""
    network_carry = networks.actor.initial_carry(number)
    if networks.exploration is None:
        return network_carry
    return exploration.Carry(network_carry, networks.exploration.initial_noise(number))


def hparams_of(config: LearningConfig) -> dict[str, Array]:
    """Return the traced settings of an algorithm, as arrays of its learner."""
    return {
        name: jnp.asarray(value, jnp.float32) for name, value in metadata.traced(config).items()
    }
