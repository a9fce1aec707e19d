"""Shrink any configuration to a run of a few seconds."""

from dataclasses import replace

from jaxrl.config import MotionConfig, PickConfig, TrainConfig, algorithm_names, env_names

# Physics takes long to compile and has its own tests: cheap environments of the same kind stand in.
STAND_INS = {
    "imitation": "tests.helpers.custom_envs:Drill",
    "heading": "tests.helpers.custom_envs:Pacer",
    "pick_place": "tests.helpers.custom_envs:Widening",
} | dict.fromkeys(env_names.BRAX, "pendulum")


def has_physics(config: TrainConfig) -> bool:
    """Return whether the environment has physics, and so a stand-in."""
    return config.env in STAND_INS or env_names.is_playground(config.env)


def with_stand_in(config: TrainConfig) -> TrainConfig:
    """Return the configuration with its stand-in environment, if it has physics."""
    if not has_physics(config):
        return config
    plain = replace(config, motion=MotionConfig(), pick=PickConfig())
    task = replace(config.task, config=(), assets=None)
    if task.randomize == env_names.OWN_RANDOMIZER:
        task = replace(task, randomize=None)
    return replace(plain, env=STAND_INS.get(config.env, "pendulum"), backend=None, task=task)


def shrunk(config: TrainConfig) -> TrainConfig:
    """Return a small configuration with at most two epochs, on a cheap environment."""
    config = small(config)
    if config.offline:
        return config
    config = with_stand_in(config)
    return replace(config, task=replace(config.task, episode_length=10, action_repeat=1))


def small(config: TrainConfig) -> TrainConfig:
    """Return a small configuration with at most two epochs, on its own environment."""
    config = replace(
        config,
        epochs=1 if config.total_steps is None and config.epochs == 1 else 2,
        cycles=1,
        iterations=_iterations(config),
        total_steps=None,
        devices=1,
        network=replace(config.network, hidden=(8,), critic_hidden=(8,), rnn_size=8),
        ppo=_ppo(config),
        reppo=replace(config.reppo, rollout_length=8, num_minibatches=2, update_epochs=1),
        pqn=replace(config.pqn, rollout_length=8, num_minibatches=2, update_epochs=1),
        amp=replace(config.amp, hidden=(8,), batch_size=8, updates=1, replay=16),
        offpolicy=_off_policy(config),
        rrd=replace(config.rrd, batch_size=8, sample_size=4),
    )
    if config.offline:
        return config
    length = 10 * config.task.action_repeat
    return replace(
        config,
        num_envs=4,
        task=replace(config.task, episode_length=length, reset_pool=None),
        eval=replace(config.eval, num_envs=min(config.eval.num_envs, 2)),
    )


def _iterations(config: TrainConfig) -> int:
    """Return enough iterations for updates to begin; replay of whole episodes takes longer."""
    if config.algo in algorithm_names.ON_POLICY:
        return 2
    return 12 if config.offpolicy.keeps_episodes else 3


def _ppo(config: TrainConfig):
    horizon = config.ppo.bptt_horizon and 4
    return replace(
        config.ppo, rollout_length=8, bptt_horizon=horizon, num_minibatches=2, update_epochs=1
    )


def _off_policy(config: TrainConfig):
    small = replace(config.offpolicy, train_batches=2, batch_size=8)
    return small if config.offline else replace(small, buffer_size=160, warmup=8)
