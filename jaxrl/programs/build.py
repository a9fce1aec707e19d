"""From a configuration to a program; nothing is compiled yet."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import jax

from jaxrl.algorithms import registry as algorithms
from jaxrl.config import TrainConfig, validate
from jaxrl.envs import factory as environments
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.loggers import sinks
from jaxrl.policies import load, reward_files
from jaxrl.programs import offline, trace_cache
from jaxrl.programs.device import DeviceProgram
from jaxrl.programs.gymnasium import GymnasiumProgram
from jaxrl.programs.program import Program
from jaxrl.types import Metrics, RewardFn, Rollout, TrainState
from jaxrl.utils import compilation_cache, sharding


def build(config: TrainConfig) -> Program:
    """Check the settings, and build environments or data, networks and algorithm."""
    validate.check(config, device_count=len(jax.devices()))
    sinks.check_extras(config)
    compilation_cache.enable()
    return offline.build(config) if config.offline else _build_online(config)


def _build_online(config: TrainConfig) -> DeviceProgram | GymnasiumProgram:
    mesh = sharding.make_mesh(config.devices)
    cache = trace_cache.find(config, mesh)
    template = cache.stored.template if cache and cache.stored else None
    env = environments.build(config, template)
    networks = algorithms.build_networks(config, env.spec)
    teacher = config.ppo.teacher and load.load_teacher(
        config.ppo.teacher, env.spec, networks, config.network.module
    )
    reward_fn = config.reward_from and reward_files.reward_fn(config.reward_from, env.spec)
    if reward_fn and isinstance(env, VectorEnv):
        env = replace(env, reward_fn=reward_fn)
    # A GymnasiumEnv has what `init` and `learn` use of an environment; nothing else is called.
    vector_env = cast(VectorEnv, env)
    algorithm = algorithms.make(config, vector_env, networks, num_shards=mesh.size, teacher=teacher)
    if isinstance(env, GymnasiumEnv):
        if reward_fn:
            algorithm = algorithm._replace(learn=_relabelled(algorithm.learn, reward_fn))
        return GymnasiumProgram(config, mesh, env=env, algorithm=algorithm)
    return DeviceProgram(config, mesh, env=env, algorithm=algorithm, cache=cache)


def _relabelled(learn: Callable, reward_fn: RewardFn) -> Callable:
    """Return `learn` with the rewards of each rollout replaced."""

    def learn_from(state: TrainState, experience: Rollout) -> tuple[TrainState, Metrics]:
        reward = reward_fn(experience.obs, experience.action, experience.next_obs)
        return learn(state, experience._replace(reward=reward))

    return learn_from


def build_device(config: TrainConfig) -> DeviceProgram:
    """Build a program whose environments are compiled; refuse others."""
    program = build(config)
    if not isinstance(program, DeviceProgram):
        raise TypeError(f"the environments of '{config.env}' are not compiled")
    return program
