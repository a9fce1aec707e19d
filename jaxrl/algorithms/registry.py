"""From a configuration to an algorithm: which one, on which networks."""

import math
from dataclasses import replace
from typing import Any

from jaxrl.algorithms.off_policy import algorithm as off_policy
from jaxrl.algorithms.off_policy import bc, dqn, iql, offline, reward_model, sac, td3
from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm
from jaxrl.algorithms.off_policy.replay import ReplayBuffer
from jaxrl.algorithms.on_policy import algorithm as on_policy
from jaxrl.algorithms.on_policy import pqn, reppo
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.algorithms.ppo.batch import Teacher
from jaxrl.config import NetworkConfig, OnPolicyConfig, TrainConfig, env_names
from jaxrl.config.algorithm_names import ALGORITHMS, names
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks import actor_critic, reward_network
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Algorithm, EnvSpec
from jaxrl.utils import user_code

# Every algorithm is composed by its own file; `jaxrl.config.algorithm_names` says what it is.
ON_POLICY = {"reppo": reppo.DEFINITION, "pqn": pqn.DEFINITION}
OFF_POLICY = {
    "sac": sac.DEFINITION,
    "td3": td3.DEFINITION,
    "dqn": dqn.DEFINITION,
    "iql": iql.DEFINITION,
    "bc": bc.DEFINITION,
}


def network_config(config: TrainConfig) -> NetworkConfig:
    """Return the settings of the networks, with the distribution that the algorithm needs."""
    known = ON_POLICY.get(config.algo) or OFF_POLICY.get(config.algo)
    network = known.network(config) if known else config.network
    if network.sde and network.sde_sample_freq is None:
        network = replace(network, sde_sample_freq=config.learning.rollout_length)
    return network


def make(
    config: TrainConfig,
    env: VectorEnv,
    networks: ActorCritic,
    num_shards: int = 1,
    teacher: Teacher | None = None,
) -> Algorithm[Any]:
    """Compose the algorithm of a configuration, with rows split over `num_shards` devices.

    Which learner it takes is forgotten here: it is only ever given the one that it has made.
    """
    if env_names.is_custom(config.algo):
        return _make_custom(config, env, networks, num_shards)
    _check_actions(config, env.spec)
    if config.algo == "ppo":
        return ppo.from_config(config, env, networks, num_shards, teacher)
    if definition := ON_POLICY.get(config.algo):
        settings, total = config.learning, config.total_iterations
        assert isinstance(settings, OnPolicyConfig)
        algorithm = definition.make(config, env.spec, networks)
        return on_policy.make(settings, env, networks, algorithm, total, num_shards)
    algorithm = OFF_POLICY[config.algo].make(config, env.spec, networks)
    return make_off_policy(config, env, networks, algorithm, num_shards)


def _make_custom(
    config: TrainConfig, env: VectorEnv, networks: ActorCritic, num_shards: int
) -> Algorithm[Any]:
    made = user_code.load("--algo", config.algo)(config, env, networks, num_shards)
    if not isinstance(made, Algorithm):
        raise UserError(
            f"--algo: '{config.algo}' returned {type(made).__name__}: return an Algorithm, for "
            "example by jaxrl.algorithms.make_off_policy."
        )
    return made


def make_off_policy(
    config: TrainConfig,
    env: VectorEnv,
    networks: ActorCritic,
    algorithm: OffPolicyAlgorithm,
    num_shards: int = 1,
) -> Algorithm[off_policy.OffPolicyState]:
    """Compose an off-policy algorithm with the replay and rewards of a configuration."""
    settings, total = config.offpolicy, config.total_iterations
    reward_model = _reward_model(config, env.spec) if settings.reward == "rrd" else None
    buffer = ReplayBuffer(settings, env.spec, env.rows, env.longest_episode, num_shards, config.rrd)
    _check_buffer_size(config, buffer)
    return off_policy.make(settings, env, networks, algorithm, reward_model, buffer, total)


def make_offline(
    config: TrainConfig,
    spec: EnvSpec,
    obs_stats: RunningStats,
    longest: int,
    reward_factor: float = 1.0,
) -> offline.OfflineAlgorithm[Any]:
    """Compose the learning of a policy, a reward or both from recorded episodes.

    Args:
      config: settings of the run.
      spec: of the data's observations and actions.
      obs_stats: of the data's observations.
      longest: steps of the longest episode.
      reward_factor: of the rewards that values are learnt from.
    """
    settings, networks = config.offpolicy, build_networks(config, spec)
    if config.rrd.reward_only:
        algorithm = offline.REWARD_ONLY
    else:
        _check_actions(config, spec)
        algorithm = OFF_POLICY[config.algo].make(config, spec, networks)
    model = _reward_model(config, spec) if settings.reward == "rrd" else None
    buffer = ReplayBuffer(settings, spec, rows=1, longest=longest, rrd=config.rrd)
    total = config.total_iterations
    run = off_policy.OffPolicy(settings, networks, algorithm, model, buffer, total, reward_factor)
    return offline.make(run, obs_stats)


def _reward_model(config: TrainConfig, spec: EnvSpec) -> reward_model.RewardModel:
    """Compose the reward model that is learnt from returns."""
    features = config.rrd.features
    if features != "none" and actor_critic.has_images(spec):
        raise UserError(f"--rrd.features {features} needs vectors, not images: use none.")
    network = reward_network.build(spec, network_config(config), quadratic=features != "none")
    return reward_model.rrd_model(config.rrd, network)


def _check_actions(config: TrainConfig, spec: EnvSpec) -> None:
    kind = "discrete" if spec.action.discrete else "continuous"
    if ALGORITHMS[config.algo].actions in (kind, "any"):
        return
    *others, last = names(
        lambda info: (
            info.actions in (kind, "any")
            and (info.section == "offpolicy" if config.offline else not info.data_only)
        )
    )
    where = config.data.path if config.offline else config.env
    raise UserError(
        f"--algo {config.algo} does not fit {where}, whose actions are {kind}: use "
        f"{', '.join(others)} or {last}."
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
    """Build the actor, and the critic of PPO: jaxrl's, or those of --network.module."""
    network = network_config(config)
    if network.sde and spec.action.discrete:
        raise UserError(f"--network.sde: '{config.env}' has discrete actions: leave it out.")
    if network.module is None:
        return _exploring(config, actor_critic.build(spec, network))
    made = user_code.load("--network.module", network.module)(spec, network)
    if not isinstance(made, ActorCritic):
        raise UserError(
            f"--network.module: '{network.module}' returned {type(made).__name__}: return an "
            "ActorCritic."
        )
    if network.distribution == "greedy" and made.distribution.kind != "greedy":
        raise UserError(
            f"--network.module: '{network.module}' chooses actions by '{made.distribution.kind}', "
            f"but --algo {config.algo} learns the values of actions: build the actor with the "
            "settings that are given to it, whose distribution is 'greedy'."
        )
    return _exploring(config, made)


def _exploring(config: TrainConfig, networks: ActorCritic) -> ActorCritic:
    """Add noise that rollouts of SAC and TD3 hold or scale, if the settings ask for it."""
    c = config.offpolicy
    low = c.exploration_noise_min
    if c.exploration_hold == 1 and low is None:
        return networks
    scale = 1.0 if low is None else low / max(c.exploration_noise, 1e-9)
    return actor_critic.with_noise(networks, c.exploration_hold, scale)
