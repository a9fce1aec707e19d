"""From a configuration to an algorithm: which one, on which networks."""

import math
from dataclasses import replace
from typing import Any

from jaxrl.algorithms import offline_reward
from jaxrl.algorithms.amp import AMP
from jaxrl.algorithms.off_policy import algorithm as off_policy
from jaxrl.algorithms.off_policy import dqn, reward_model, sac, td3
from jaxrl.algorithms.off_policy.replay import ReplayBuffer
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, TrainConfig
from jaxrl.errors import UserError
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks import actor_critic, q_network
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Algorithm, EnvSpec


def network_config(config: TrainConfig) -> NetworkConfig:
    """Return the settings of the networks, with the way to explore that the algorithm needs."""
    network, settings = config.network, config.offpolicy
    if config.algo == "td3":
        return replace(network, distribution="noisy", init_std=settings.exploration_noise)
    if config.algo == "dqn":
        return replace(network, distribution="greedy", layer_norm=settings.layer_norm)
    return network


def make(
    config: TrainConfig,
    env: Any,
    networks: ActorCritic,
    num_shards: int = 1,
    teacher: ppo.Teacher | None = None,
) -> Algorithm:
    """Compose the algorithm of a configuration."""
    if config.algo == "ppo":
        total, amp = config.total_iterations, _amp(config, env)
        return ppo.make(config.ppo, env, networks, total, num_shards, teacher, amp)
    _check_actions(config, env.spec)
    settings, shapes = config.offpolicy, network_config(config)
    if config.algo == "dqn":
        method = dqn.make(settings, networks)
    else:
        atoms = settings.num_atoms if settings.critic == "c51" else 1
        critic = q_network.build(env.spec, shapes, layer_norm=settings.layer_norm, atoms=atoms)
        if config.algo == "sac":
            method = sac.make(settings, networks, critic, env.spec.action.size)
        else:
            method = td3.make(settings, networks, critic)
    model = None
    if settings.reward == "rrd":
        model = _reward_model(config, env.spec)
    store = ReplayBuffer(settings, env.spec, env.rows, env.longest_episode, num_shards)
    _check_room(config, store)
    return off_policy.make(settings, env, networks, method, model, store, config.total_iterations)


def _amp(config: TrainConfig, env: Any) -> AMP | None:
    """Return what judges style, if style counts."""
    if not config.amp.weight:
        return None
    spec = env.spec.obs
    if not (isinstance(spec, dict) and actor_critic.AMP_OBS in spec):
        raise UserError(f"--amp.weight: '{config.env}' has no demonstrations: leave it at 0.")
    return AMP(config.amp, env.env.demonstrations, spec[actor_critic.AMP_OBS].shape[0])


def make_reward(
    config: TrainConfig, spec: EnvSpec, moments: RunningStats, longest: int
) -> offline_reward.RewardLearning:
    """Compose the learning of a reward alone, from recorded episodes."""
    settings = config.offpolicy
    model = _reward_model(config, spec)
    store = ReplayBuffer(settings, spec, rows=1, longest=longest, num_shards=1)
    return offline_reward.make(settings, model, store, moments, config.total_iterations)


def _reward_model(config: TrainConfig, spec: EnvSpec) -> reward_model.RewardModel:
    """Compose the reward that is learnt from returns."""
    features = config.offpolicy.rrd_features
    if features != "none" and actor_critic.has_pictures(spec):
        raise UserError(f"--rrd.features {features} needs vectors, not images: use none.")
    network = q_network.build_reward(spec, network_config(config), linear=features != "none")
    return reward_model.decomposed(config.offpolicy, network)


def _check_actions(config: TrainConfig, spec: EnvSpec) -> None:
    if spec.action.discrete != (config.algo == "dqn"):
        kind, fit = ("choices", "dqn") if spec.action.discrete else ("numbers", "sac or td3")
        raise UserError(
            f"--algo {config.algo} does not fit {config.env}, whose actions are {kind}: "
            f"use {fit}, or ppo."
        )


def _check_room(config: TrainConfig, store: ReplayBuffer) -> None:
    """Check that warm-up can end: what it waits for must fit into the store."""
    c = config.offpolicy
    # Whole episodes count from their end until their first step is overwritten: room for two.
    spare = 2 * store.longest if c.keeps_episodes else 0
    needed = spare + max(c.rollout_length, math.ceil(c.warmup / store.rows))
    enough = _room_for(store, needed)
    if store.length < spare + c.rollout_length:
        raise UserError(
            f"--offpolicy.buffer-size {c.buffer_size} has room for {store.length} steps of each "
            f"environment, too few for episodes of up to {store.longest}: use {enough} or more."
        )
    if c.warmup > (most := store.rows * (store.length - spare)):
        kind = "sure to be of whole episodes" if spare else "kept, in whole rollouts"
        raise UserError(
            f"--offpolicy.warmup {c.warmup} may never be reached: of --offpolicy.buffer-size "
            f"{c.buffer_size} steps only {most} are {kind}. Use --offpolicy.warmup {most} or less, "
            f"or --offpolicy.buffer-size {enough} or more."
        )


def _room_for(store: ReplayBuffer, steps: int) -> int:
    """Return the buffer size that keeps so many steps of each row: it is cut to whole rollouts."""
    chunk = store.config.rollout_length
    return math.ceil(steps / chunk) * chunk * store.rows


def build_networks(config: TrainConfig, spec: EnvSpec) -> ActorCritic:
    """Build the networks that act (and, for PPO, judge)."""
    return actor_critic.build(spec, network_config(config))
