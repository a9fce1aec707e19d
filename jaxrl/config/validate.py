"""Is this configuration one that can be run? Every problem is named at once, with its fix."""

import math
from typing import Any

from jaxrl.config import TrainConfig, env_names
from jaxrl.config.algorithms import PLAIN
from jaxrl.config.validate_motion import motion_problems
from jaxrl.config.validate_replay import data_problems, near, replay_problems
from jaxrl.config.validate_values import count_problems, value_problems
from jaxrl.errors import UserError, nearest

# Field paths by the rule they must obey; other numbers only need to fit their type.
_AT_LEAST_ONE = (
    "num_envs",
    "epochs",
    "cycles",
    "iterations",
    "total_steps",
    "devices",
    "task.episode_length",
    "task.action_repeat",
    "task.reset_pool",
    "task.async_factor",
    "ppo.rollout_length",
    "ppo.bptt_horizon",
    "network.rnn_size",
    "ppo.update_epochs",
    "ppo.num_minibatches",
    "ppo.accumulate",
    "pick.substeps",
    "pick.hold",
    "checkpoint.save_freq",
    "checkpoint.keep_last",
    "ppo.max_bad_updates",
    "offpolicy.rollout_length",
    "offpolicy.train_batches",
    "offpolicy.batch_size",
    "offpolicy.buffer_size",
    "offpolicy.target_update_interval",
    "offpolicy.policy_delay",
    "offpolicy.rrd_batch_size",
    "offpolicy.rrd_sample_size",
    "offpolicy.max_bad_updates",
)
_NOT_NEGATIVE = (
    "seed",
    "eval.num_envs",
    "eval.every",
    "motion.resample_interval",
    "pick.approach_reward",
    "pick.grasp_reward",
    "pick.lift_reward",
    "pick.place_reward",
    "pick.success_reward",
    "pick.time_cost",
    "pick.drop_cost",
    "ppo.value_clip",
    "ppo.value_coef",
    "ppo.entropy_coef",
    "ppo.bound_coef",
    "ppo.l2_init_coef",
    "ppo.max_grad_norm",
    "ppo.target_kl",
    "ppo.rho_clip",
    "ppo.c_clip",
    "ppo.prio_alpha",
    "ppo.teacher_coef",
    "ppo.learning_rate",
    "offpolicy.warmup",
    "offpolicy.pi_lr",
    "offpolicy.q_lr",
    "offpolicy.alpha_lr",
    "offpolicy.r_lr",
    "offpolicy.max_grad_norm",
    "offpolicy.target_noise",
    "offpolicy.exploration_noise",
    "offpolicy.target_noise_clip",
)
_POSITIVE = (
    "ppo.desired_kl",
    "ppo.min_learning_rate",
    "ppo.max_learning_rate",
    "ppo.clip",
    "ppo.adam_epsilon",
    "ppo.reward_scale",
    "offpolicy.reward_scale",
    "offpolicy.adam_epsilon",
    "offpolicy.alpha_init",
    "pick.attach_distance",
    "pick.success_distance",
    "pick.lift_height",
    "network.init_std",
    "network.min_std",
)
_SHARE = (
    "ppo.gamma",
    "ppo.lam",
    "ppo.schedule_floor",
    "ppo.prio_beta0",
    "ppo.entropy_coef_end",
    "ppo.l2_init_coef_end",
    "ppo.teacher_coef_end",
    "offpolicy.gamma",
    "offpolicy.polyak",
    "offpolicy.epsilon_end",
    "offpolicy.epsilon_share",
    "motion.resample_floor",
    "motion.resample_decay",
    "pick.raise_at",
    "pick.raise_by",
)


def get(config: Any, path: str) -> Any:
    """Return the field at a dotted path."""
    for part in path.split("."):
        config = getattr(config, part)
    return config


def flag(path: str) -> str:
    """Return the command-line flag of a dotted path."""
    section, _, name = path.rpartition(".")
    if section == "offpolicy" and name in PLAIN:  # --amp.batch-size is another setting
        path = name
    elif name.startswith("rrd_"):
        path = name.replace("_", ".", 1)
    return "--" + path.replace("_", "-")


def validate(config: TrainConfig, device_count: int | None = None) -> list[str]:
    """Return every problem of a configuration, each with its field and its fix."""
    if unusable := _value_problems(config):
        return unusable
    out_of_range = _range_problems(config)
    # Sizes can only be compared once each of them makes sense.
    sizes = [] if out_of_range else _size_problems(config, device_count)
    return [*out_of_range, *_name_problems(config), *motion_problems(config), *sizes]


def check_ranges(config: TrainConfig, where: str) -> None:
    """Raise a UserError for numbers that no run could have been trained with."""
    problems = _value_problems(config) or _range_problems(config)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise UserError(f"{where} has settings that cannot be used:\n{listed}")


def _value_problems(config: TrainConfig) -> list[str]:
    """Return the values that their fields cannot hold: nothing can be compared with those."""
    return [f"{flag(path)} {problem}." for path, problem in value_problems(config)]


def _range_problems(config: TrainConfig) -> list[str]:
    rules = [
        (_AT_LEAST_ONE, lambda v: v >= 1, "must be at least 1"),
        (_NOT_NEGATIVE, lambda v: v >= 0, "must not be negative"),
        (_POSITIVE, lambda v: v > 0, "must be greater than 0"),
        (_SHARE, lambda v: 0 <= v <= 1, "must lie between 0 and 1"),
    ]
    problems = []
    for paths, holds, text in rules:
        for path in paths:
            value = get(config, path)
            if value is not None and not holds(value):
                problems.append(f"{flag(path)} {text}, not {value}.")
    for path in ("network.hidden", "network.critic_hidden"):
        widths = get(config, path)
        if not widths or min(widths) < 1:
            problems.append(f"{flag(path)} needs one or more widths of at least 1, not {widths}.")
    if config.network.distribution in ("noisy", "greedy"):
        problems.append(
            f"--network.distribution {config.network.distribution} belongs to td3 or dqn, which "
            "choose it themselves: use tanh_normal or normal."
        )
    changing = config.ppo.advantage == "vtrace" or config.ppo.sampling == "prioritized"
    if config.ppo.normalize_advantage == "batch" and changing:
        problems.append(
            "--ppo.normalize-advantage batch needs advantages that stay as they are: use minibatch "
            "with --ppo.advantage vtrace and with --ppo.sampling prioritized."
        )
    if config.ppo.min_learning_rate > config.ppo.max_learning_rate:
        problems.append("--ppo.min-learning-rate must not exceed --ppo.max-learning-rate.")
    return problems


def _name_problems(config: TrainConfig) -> list[str]:
    problems = []
    every = (*env_names.BRAX, *env_names.CLASSIC, *env_names.MOTION, *env_names.ARM)
    if not env_names.known(config.env):
        problems.append(
            f"--env: unknown environment '{config.env}'.{nearest(config.env, every)} "
            f"Known: {', '.join(every)}, Gymnasium's as gym:<id>, or your own as module:Class."
        )
    known = env_names.ALGORITHMS
    if config.algo not in known and not env_names.is_custom(config.algo):
        problems.append(
            f"--algo: unknown algorithm '{config.algo}'.{nearest(config.algo, known)} Known: "
            f"{', '.join(known)}, or your own as module:make."
        )
    if config.network.module is not None and not env_names.is_custom(config.network.module):
        problems.append(
            f"--network.module: '{config.network.module}' is no function: name it as module:build."
        )
    if config.backend is not None and config.backend not in env_names.BACKENDS:
        problems.append(
            f"--backend: unknown backend '{config.backend}'."
            f"{nearest(config.backend, env_names.BACKENDS)} Known: {', '.join(env_names.BACKENDS)}."
        )
    elif config.backend is not None and (
        config.env in (*env_names.CLASSIC, *env_names.MOTION, *env_names.ARM)
        or env_names.is_hosted(config.env)
    ):
        problems.append(
            f"--backend: '{config.env}' has no physics backend to choose: use --backend None."
        )
    return problems


def _size_problems(config: TrainConfig, device_count: int | None) -> list[str]:
    problems = count_problems(config)
    shards = config.devices or device_count or 1
    if device_count is not None and shards > device_count:
        problems.append(f"--devices {shards}: this machine has {device_count}.")
    problems += (_segment_problems if config.algo == "ppo" else replay_problems)(config, shards)
    problems += data_problems(config, shards)
    if config.eval.num_envs and config.eval.num_envs % shards:
        fits = -(-config.eval.num_envs // shards) * shards
        problems.append(
            f"--eval.num-envs {config.eval.num_envs} does not divide over {shards} devices: "
            f"use {fits}."
        )
    problems += _host_problems(config, shards) if env_names.is_hosted(config.env) else []
    length = config.task.episode_length
    if length is not None and length < config.task.action_repeat:
        problems.append(
            f"--task.episode-length {length} is shorter than --task.action-repeat "
            f"{config.task.action_repeat}."
        )
    if config.env in env_names.MOTION and config.task.action_repeat != 1:
        problems.append(
            f"--task.action-repeat must be 1 for {config.env}: every frame of a clip is judged."
        )
    return problems


def _host_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check what environments on the host cannot do."""
    problems, task = [], config.task
    if config.num_envs % task.async_factor:
        fits = near(config.num_envs, task.async_factor)
        problems.append(
            f"--num-envs {config.num_envs} cannot be split into --task.async-factor "
            f"{task.async_factor} groups: use {fits}."
        )
    if shards > 1:
        problems.append(f"--env {config.env} runs on one device: use --devices 1.")
    for path in ("task.randomize", "task.reset_pool"):
        if get(config, path) is not None:
            problems.append(f"{flag(path)} has no meaning for {config.env}: leave it out.")
    if task.action_repeat != 1:
        problems.append(f"--task.action-repeat must be 1 for {config.env}.")
    if not task.fresh_resets:
        problems.append(f"--task.fresh-resets is always so for {config.env}: it resets itself.")
    if task.episodic_reward:
        problems.append(f"--task.episodic-reward is not for {config.env}: use no-episodic-reward.")
    return problems


def _segment_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check that rollouts cut into segments, and segments into minibatches, without a rest."""
    ppo = config.ppo
    horizon = ppo.horizon
    if ppo.rollout_length % horizon:
        return [
            f"--ppo.bptt-horizon {horizon} must divide --ppo.rollout-length "
            f"{ppo.rollout_length}: use a rollout length of {near(ppo.rollout_length, horizon)}."
        ]
    # Each row of environments gives so many segments; they are shared out on every device.
    per_row, parts = ppo.rollout_length // horizon, shards * ppo.num_minibatches * ppo.accumulate
    per_row *= env_names.AGENTS.get(config.env, 1)
    unit = math.lcm(shards, parts // math.gcd(parts, per_row))
    if config.num_envs % unit == 0:
        return []
    taken = f" of --ppo.accumulate {ppo.accumulate} parts" if ppo.accumulate > 1 else ""
    return [
        f"--num-envs {config.num_envs} cannot be split into --ppo.num-minibatches "
        f"{ppo.num_minibatches}{taken} on {shards} device(s): use {near(config.num_envs, unit)}"
        + (", or fewer --devices." if shards > 1 else ".")
    ]


def check(config: TrainConfig, device_count: int | None = None) -> None:
    """Raise one UserError that lists every problem, or return."""
    problems = validate(config, device_count)
    if problems:
        raise UserError(
            "The configuration cannot be run:\n" + "\n".join(f"  {p}" for p in problems)
        )
