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
from jaxrl.networks import actor_critic, q_network, reward_network
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Algorithm, EnvSpec


def network_config(config: TrainConfig) -> NetworkConfig:
    """Return the settings of the networks, with the distribution that the algorithm needs."""
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
        algorithm = dqn.make(settings, networks)
    else:
        atoms = settings.num_atoms if settings.critic == "c51" else 1
        critic = q_network.build(env.spec, shapes, layer_norm=settings.layer_norm, atoms=atoms)
        if config.algo == "sac":
            algorithm = sac.make(settings, networks, critic, env.spec.action.size)
        else:
            algorithm = td3.make(settings, networks, critic)
    model = None
    if settings.reward == "rrd":
        model = _reward_model(config, env.spec)
    buffer = ReplayBuffer(settings, env.spec, env.rows, env.longest_episode, num_shards)
    _check_buffer_size(config, buffer)
    total = config.total_iterations
    return off_policy.make(settings, env, networks, algorithm, model, buffer, total)


def _amp(config: TrainConfig, env: Any) -> AMP | None:
    """Return AMP, if style is rewarded."""
    if not config.amp.weight:
        return None
    spec = env.spec.obs
    if not (isinstance(spec, dict) and actor_critic.AMP_OBS in spec):
        raise UserError(f"--amp.weight: '{config.env}' has no demonstrations: leave it at 0.")
    return AMP(config.amp, env.env.demonstrations, spec[actor_critic.AMP_OBS].shape[0])


def make_reward(
    config: TrainConfig, spec: EnvSpec, obs_stats: RunningStats, longest: int
) -> offline_reward.RewardLearning:
    """Compose the learning of a reward alone, from recorded episodes."""
    settings = config.offpolicy
    model = _reward_model(config, spec)
    buffer = ReplayBuffer(settings, spec, rows=1, longest=longest)
    return offline_reward.make(settings, model, buffer, obs_stats, config.total_iterations)


def _reward_model(config: TrainConfig, spec: EnvSpec) -> reward_model.RewardModel:
    """Compose the reward model that is learnt from returns."""
    features = config.offpolicy.rrd_features
    if features != "none" and actor_critic.has_images(spec):
        raise UserError(f"--rrd.features {features} needs vectors, not images: use none.")
    network = reward_network.build(spec, network_config(config), quadratic=features != "none")
    return reward_model.rrd_model(config.offpolicy, network)


def _check_actions(config: TrainConfig, spec: EnvSpec) -> None:
    if spec.action.discrete != (config.algo == "dqn"):
        kind, fit = ("discrete", "dqn") if spec.action.discrete else ("continuous", "sac or td3")
        raise UserError(
            f"--algo {config.algo} does not fit {config.env}, whose actions are {kind}: "
            f"use {fit}, or ppo."
        )


def _check_buffer_size(config: TrainConfig, buffer: ReplayBuffer) -> None:
    """Check that the warm-up can end: the steps it waits for must fit into the buffer."""
    c = config.offpolicy
    # Episodes count from their end until their first step is overwritten: room for two.
    spare = 2 * buffer.longest if c.keeps_episodes else 0
    needed = spare + max(c.rollout_length, math.ceil(c.warmup / buffer.rows))
    enough = _size_for(buffer, needed)
    if buffer.length < spare + c.rollout_length:
        raise UserError(
            f"--offpolicy.buffer-size {c.buffer_size} has room for {buffer.length} steps of each "
            f"environment, too few for episodes of up to {buffer.longest}: use {enough} or more."
        )
    if c.warmup > (most := buffer.rows * (buffer.length - spare)):
        kind = "sure to be of whole episodes" if spare else "stored, in whole rollouts"
        raise UserError(
            f"--offpolicy.warmup {c.warmup} may never be reached: of --offpolicy.buffer-size "
            f"{c.buffer_size} steps only {most} are {kind}. Use --offpolicy.warmup {most} or less, "
            f"or --offpolicy.buffer-size {enough} or more."
        )


def _size_for(buffer: ReplayBuffer, steps: int) -> int:
    """Return the buffer size that holds `steps` steps of each row, in whole rollouts."""
    chunk = buffer.config.rollout_length
    return math.ceil(steps / chunk) * chunk * buffer.rows


def build_networks(config: TrainConfig, spec: EnvSpec) -> ActorCritic:
    """Build the actor, and the critic of PPO."""
    return actor_critic.build(spec, network_config(config))
