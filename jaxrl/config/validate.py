"""Can this configuration be run? Every problem is named at once, with its fix.

The range of a single setting is part of its declaration (`schema`, `algorithms`); what several
settings must have to do with each other is checked here.
"""

import math
from collections.abc import Iterable
from pathlib import Path

from jaxrl.config import OnPolicyConfig, TrainConfig, algorithm_names, clip_split, env_names
from jaxrl.config.algorithm_names import AlgorithmInfo
from jaxrl.config.metadata import INT32_MAX, INT64_MAX
from jaxrl.config.settings import SETTINGS, flag, get, own_code
from jaxrl.config.values import format_value, type_problems
from jaxrl.errors import UserError, nearest
from jaxrl.utils.formatting import plural

_OWN = AlgorithmInfo(sde=True)  # one of the user's own may do anything


def check(config: TrainConfig, device_count: int | None = None) -> None:
    """Raise one UserError that lists every problem, or return."""
    if problems := validate(config, device_count):
        raise UserError(_listed("The configuration cannot be run", problems))


def check_ranges(config: TrainConfig, where: str) -> None:
    """Raise a UserError for values that no run can have been trained with."""
    if problems := _type_problems(config) or _range_problems(config):
        raise UserError(_listed(f"{where} has settings that cannot be used", problems))


def _listed(title: str, problems: list[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {problem}" for problem in problems)])


def validate(config: TrainConfig, device_count: int | None = None) -> list[str]:
    """Return every problem of a configuration, each with its flag and its fix."""
    if wrong := _type_problems(config):  # nothing can be compared with those
        return wrong
    out_of_range = _range_problems(config)
    # Sizes can only be compared once each of them is in range.
    sizes = [] if out_of_range else _size_problems(config, device_count)
    return [*out_of_range, *_name_problems(config), *_motion_problems(config), *sizes]


def _type_problems(config: TrainConfig) -> list[str]:
    return [f"{flag(path)} {problem}." for path, problem in type_problems(config)]


def _range_problems(config: TrainConfig) -> list[str]:
    """Check the declared ranges, and choices that exclude each other."""
    out_of_range = [
        f"{flag(path)} {problem}, not {format_value(get(config, path))}."
        for path, setting in SETTINGS.items()
        if (problem := setting.problem(get(config, path)))
    ]
    return out_of_range + _choice_problems(config)


def _choice_problems(config: TrainConfig) -> list[str]:
    problems, ppo = [], config.ppo
    problems += [
        f"{flag(path)} {value} is chosen by algorithms that need it: leave it out."
        for path, setting in SETTINGS.items()
        if setting.reserved and (value := get(config, path)) in setting.reserved
    ]
    changing = ppo.advantage == "vtrace" or ppo.sampling == "prioritized"
    if ppo.normalize_advantage == "batch" and changing:
        problems.append(
            "--ppo.normalize-advantage batch needs advantages that stay as they are: use minibatch "
            "with --ppo.advantage vtrace and with --ppo.sampling prioritized."
        )
    if config.network.sde and config.network.fixed_std:
        problems.append(
            "--network.sde learns the standard deviation of its noise: use --network.no-fixed-std."
        )
    if config.algo == "dqn" and config.offpolicy.critic_norm == "batch":
        problems.append(
            "--offpolicy.critic-norm batch: with --algo dqn this network acts too, where there is "
            "no batch: use layer or rms."
        )
    if 0 < config.network.rnn_timescale <= 2:
        problems.append("--network.rnn-timescale must be 0, or more than 2 steps.")
    if ppo.min_learning_rate > ppo.max_learning_rate:
        problems.append("--ppo.min-learning-rate must not exceed --ppo.max-learning-rate.")
    return problems


def _name_problems(config: TrainConfig) -> list[str]:
    problems = []
    every = (*env_names.BRAX, *env_names.CLASSIC, *env_names.MOTION, *env_names.ARM)
    if not env_names.exists(config.env):
        problems.append(
            f"--env: unknown environment '{config.env}'.{nearest(config.env, every)} "
            f"Known: {', '.join(every)}, MuJoCo Playground's as playground:<name>, Gymnasium's as "
            "gym:<id>, or your own as module:Class."
        )
    known = algorithm_names.ALGORITHMS
    if config.algo not in known and not env_names.is_custom(config.algo):
        problems.append(
            f"--algo: unknown algorithm '{config.algo}'.{nearest(config.algo, known)} Known: "
            f"{', '.join(known)}, or your own as module:make."
        )
    for path, name in own_code(config).items():
        code = SETTINGS[path].code
        if code and path != "env" and not env_names.is_custom(name):
            problems.append(f"{flag(path)}: '{name}' is no function: name it as {code.form}.")
    if config.env_args and (
        config.env in (*env_names.MOTION, *env_names.ARM) or env_names.is_gymnasium(config.env)
    ):
        problems.append(f"--env-args: '{config.env}' takes none.")
    if config.env_args and env_names.is_playground(config.env):
        problems.append(f"--env-args: '{config.env}' takes none: use --task.config.")
    own_number = config.env in env_names.AGENTS or env_names.is_custom(config.env)
    if config.task.num_agents is not None and not own_number:
        problems.append(
            f"--task.num-agents: '{config.env}' has one agent: leave the flag out, or use --env "
            "arena."
        )
    if config.backend is not None and config.backend not in env_names.BACKENDS:
        problems.append(
            f"--backend: unknown backend '{config.backend}'."
            f"{nearest(config.backend, env_names.BACKENDS)} Known: {', '.join(env_names.BACKENDS)}."
        )
    elif config.backend is not None and (
        config.env in (*env_names.CLASSIC, *env_names.MOTION, *env_names.ARM)
        or env_names.is_gymnasium(config.env)
        or env_names.is_playground(config.env)
    ):
        problems.append(
            f"--backend: '{config.env}' has no physics backend to choose: use --backend None."
        )
    return problems


def _motion_problems(config: TrainConfig) -> list[str]:
    """Check what motion clips and AMP need."""
    problems = []
    if config.algo != "ppo" and config.amp.weight:
        problems.append(f"--amp.weight is for --algo ppo, not {config.algo}.")
    if config.env not in env_names.MOTION:
        return problems
    where = f" {env_names.CLIP_SOURCES.rstrip()}"
    for path, advice in {"motion.clips": where, "motion.model": ""}.items():
        file = get(config, path)
        if file is not None and not Path(file).exists():
            problems.append(f"{flag(path)} '{file}': no such file or folder.{advice}")
    problems += _split_problems(config)
    low, high = config.motion.speeds
    if low > high:
        problems.append("--motion.speeds must be two numbers, the lower one first.")
    if config.motion.max_clips and config.amp.weight:
        problems.append("--motion.max-clips: AMP needs all clips on the device; leave it at 0.")
    if config.motion.speed and config.amp.weight:
        problems.append("--motion.speed: AMP's demonstrations keep their speed; leave it at 0.")
    if config.motion.max_clips and not config.motion.resample_interval:
        problems.append("--motion.max-clips needs --motion.resample-interval 1 or more.")
    if 0 < config.motion.crop_seconds < 1 / 30:
        problems.append("--motion.crop-seconds must be 0, or at least a frame: 1/30 of a second.")
    if config.task.action_repeat != 1:
        problems.append(
            f"--task.action-repeat must be 1 for {config.env}: every frame of a clip is compared."
        )
    return problems


def _split_problems(config: TrainConfig) -> list[str]:
    """Refuse to train on clips that are for testing."""
    motion = config.motion
    if motion.clips is None or motion.split == "train" or motion.allow_test_clips:
        return []
    if not (names := clip_split.test_clips(Path(motion.clips))):
        return []
    return [
        f"--motion.clips '{motion.clips}': {', '.join(names)} {'is' if len(names) == 1 else 'are'} "
        "for testing only (experiments/imitation/split.json). Use --motion.split train to leave "
        "such clips out, or --motion.allow-test-clips to train on them all the same."
    ]


def _size_problems(config: TrainConfig, device_count: int | None) -> list[str]:
    """Check that numbers fit each other, the counters and the devices."""
    problems = _count_problems(config)
    shards = config.devices or (1 if config.offline else device_count) or 1
    if device_count is not None and shards > device_count:
        problems.append(f"--devices {shards}: this machine has {device_count}.")
    of_section = {"ppo": _segment_problems, "offpolicy": _replay_problems}
    problems += of_section.get(config.algo_section, _on_policy_problems)(config, shards)
    problems += [*_data_problems(config, shards), *_sde_problems(config)]
    on_devices = not env_names.is_gymnasium(config.env)  # process 0 alone plays Gymnasium's
    if on_devices and config.eval.num_envs % shards:
        fits = -(-config.eval.num_envs // shards) * shards
        problems.append(
            f"--eval.num-envs {config.eval.num_envs} is not divisible by {shards} devices: "
            f"use {fits}."
        )
    problems += _gymnasium_problems(config, shards) if env_names.is_gymnasium(config.env) else []
    length = config.task.episode_length
    if length is not None and length < config.task.action_repeat:
        problems.append(
            f"--task.episode-length {length} is shorter than --task.action-repeat "
            f"{config.task.action_repeat}."
        )
    return problems


def _segment_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check that rollouts cut into segments, and segments into minibatches, without a remainder."""
    ppo, length = config.ppo, config.ppo.rollout_length
    if ppo.batch_size is not None and config.rows * length % ppo.batch_size:
        return [
            f"--ppo.batch-size {ppo.batch_size} must divide the {config.rows * length:,} steps of "
            f"a rollout (--num-envs × --ppo.rollout-length): use "
            f"{_either(_near_divisors(config.rows * length, ppo.batch_size))}."
        ]
    if length % ppo.horizon:
        return [
            f"--ppo.bptt-horizon {ppo.horizon} must divide --ppo.rollout-length {length}: use a "
            f"rollout length of {_near(length, ppo.horizon)}."
        ]
    # Each row of environments gives `per_row` segments; they are split on every device.
    parts, agents = shards * ppo.num_minibatches * ppo.accumulate, config.rows // config.num_envs

    def unit(horizon: int) -> int:
        """Return what --num-envs must be a multiple of."""
        per_row = length // horizon * agents
        return math.lcm(shards, parts // math.gcd(parts, per_row))

    if config.num_envs % unit(ppo.horizon) == 0:
        return []
    given = "batch_size" if ppo.batch_size is not None else "num_minibatches"
    taken = f" of --ppo.accumulate {ppo.accumulate} parts" if ppo.accumulate > 1 else ""
    ways, segments = [], config.rows * (length // ppo.horizon)
    if config.num_envs % shards == 0 and segments % (shards * ppo.accumulate) == 0:
        numbers = _near_divisors(segments // (shards * ppo.accumulate), ppo.num_minibatches)
        if given == "batch_size":
            numbers = [config.rows * length // number for number in reversed(numbers)]
        ways.append(f"{flag(f'ppo.{given}')} {_either(numbers)}")
    ways.append(f"--num-envs {_near(config.num_envs, unit(ppo.horizon))}")
    shorter = [h for h in range(1, ppo.horizon) if length % h == 0]
    fits = [h for h in shorter if config.num_envs % unit(h) == 0]
    if fits:
        ways.append(f"--ppo.bptt-horizon {max(fits)}")
    ways += ["fewer --devices"] if shards > 1 else []
    return [
        f"{flag(f'ppo.{given}')} {getattr(ppo, given)}{taken} cannot split the "
        f"{plural(segments, 'segment')} of {plural(ppo.horizon, 'step')} that --num-envs "
        f"{config.num_envs} gives on "
        f"{plural(shards, 'device')}: use {', or '.join(ways)}."
    ]


def _on_policy_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check that single steps divide into minibatches, and what else REPPO and PQN need."""
    c, problems = config.learning, []
    assert isinstance(c, OnPolicyConfig)
    steps = config.rows * c.rollout_length
    if config.num_envs % shards:
        problems.append(
            f"--num-envs {config.num_envs} is not divisible by {shards} devices: use "
            f"{_near(config.num_envs, shards)}."
        )
    elif steps % (shards * c.num_minibatches):
        problems.append(
            f"--{config.algo}.num-minibatches {c.num_minibatches} cannot split the {steps:,} steps "
            f"of a rollout (--num-envs × --{config.algo}.rollout-length), on "
            f"{plural(shards, 'device')}: use "
            f"{_either(_near_divisors(steps // shards, c.num_minibatches))}."
        )
    if config.algo == "reppo" and config.reppo.v_min >= config.reppo.v_max:
        problems.append("--reppo.v-min must be below --reppo.v-max.")
    if config.network.rnn != "none":
        problems.append(f"--network.rnn: --algo {config.algo} learns from single steps: use none.")
    return problems


def _near_divisors(number: int, near: int) -> list[int]:
    """Return the divisors of a number next to another."""
    divisors = {
        d for n in range(1, math.isqrt(number) + 1) if number % n == 0 for d in (n, number // n)
    }
    below, above = [d for d in divisors if d < near], [d for d in divisors if d > near]
    return [d for d in [max(below, default=0), min(above, default=0)] if d]


def _either(numbers: Iterable[int]) -> str:
    return " or ".join(map(str, numbers))


def _replay_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check that devices divide batches evenly, and that the replay buffer can hold them."""
    c, problems = config.offpolicy, []
    rows = config.rows
    if config.num_envs % shards or c.batch_size % shards:
        problems.append(
            f"--num-envs {config.num_envs} and "
            f"--offpolicy.batch-size {c.batch_size} must both be divisible by "
            f"{shards} devices: use {_near(config.num_envs, shards)} and "
            f"{_near(c.batch_size, shards)}, or fewer --devices."
        )
    if c.buffer_size < rows * c.rollout_length:
        problems.append(
            f"--offpolicy.buffer-size {c.buffer_size} is less than one rollout of --num-envs "
            f"{config.num_envs}: use at least {rows * c.rollout_length}, or fewer environments."
        )
    if c.warmup > c.buffer_size:
        problems.append(
            f"--offpolicy.warmup {c.warmup} is more than --offpolicy.buffer-size {c.buffer_size} "
            "can hold."
        )
    if config.rrd.batch_size < config.rrd.sample_size:
        problems.append(
            f"--rrd.batch-size {config.rrd.batch_size} is less than one episode's "
            f"--rrd.sample-size {config.rrd.sample_size}."
        )
    if config.rrd.bias_correction and config.rrd.sample_size < 2:
        problems.append("--rrd.bias-correction needs --rrd.sample-size 2 or more.")
    if c.critic == "c51" and c.v_min >= c.v_max:
        problems.append("--offpolicy.critic c51 needs --offpolicy.v-min below --offpolicy.v-max.")
    if c.critic == "c51" and config.algo not in ("sac", "td3"):
        problems.append(f"--offpolicy.critic c51 is for sac and td3: use mse with {config.algo}.")
    if c.reward == "rrd" and config.rrd.episodes % shards:
        problems.append(
            f"--rrd.batch-size {config.rrd.batch_size} // "
            f"--rrd.sample-size {config.rrd.sample_size} do not "
            f"divide over {shards} devices."
        )
    if config.network.rnn != "none":
        problems.append(f"--network.rnn: --algo {config.algo} learns from single steps: use none.")
    if config.offpolicy.n_step > 1 and (config.offpolicy.reward != "env" or config.reward_from):
        problems.append(
            "--offpolicy.n-step adds up rewards of the environment: with learnt ones use 1."
        )
    if config.offpolicy.normalize_reward and config.offpolicy.reward != "env":
        problems.append(
            "--offpolicy.normalize-reward scales rewards of the environment: with learnt ones use "
            "--offpolicy.no-normalize-reward."
        )
    return problems + _exploration_problems(config)


def _exploration_problems(config: TrainConfig) -> list[str]:
    """Check the noise that rollouts of SAC and TD3 hold or scale."""
    c, problems = config.offpolicy, []
    low = c.exploration_noise_min
    if low is not None and not low <= c.exploration_noise:
        problems.append(
            f"--offpolicy.exploration-noise-min {low} is more than --offpolicy.exploration-noise "
            f"{c.exploration_noise}: use a lower one."
        )
    if c.exploration_hold > 1 and config.network.sde:
        problems.append(
            "--offpolicy.exploration-hold: --network.sde holds its own noise: use 1, and "
            "--network.sde-sample-freq."
        )
    return problems


def _data_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check what learning from recorded episodes needs."""
    problems, algo, c = [], config.algo, config.offpolicy
    off_policy = algo not in algorithm_names.ON_POLICY
    if config.reward_from is not None and c.reward != "env" and off_policy:
        problems.append(
            f"--reward-from replaces the rewards that --offpolicy.reward {c.reward} would learn: "
            "use --offpolicy.reward env."
        )
    if config.reward_from is not None and config.rrd.reward_only:
        problems.append("--reward-from is of no use to --rrd.reward-only, which learns a reward.")
    if not config.offline:
        if algo in algorithm_names.names(lambda info: info.data_only):
            problems.append(
                f"--algo {algo} learns from recorded episodes: name them by --data.path."
            )
        if config.rrd.reward_only and off_policy:
            problems.append("--rrd.reward-only learns from recorded episodes: use --data.path.")
        return problems
    if algo not in algorithm_names.OFF_POLICY:
        problems.append(
            f"--data.path is for {', '.join(algorithm_names.OFF_POLICY)}, not for --algo {algo}."
        )
    if config.rrd.reward_only and c.reward != "rrd":
        problems.append("--rrd.reward-only needs --offpolicy.reward rrd.")
    if config.rrd.reward_only and config.env != env_names.OFFLINE:
        problems.append(
            f"--rrd.reward-only has no policy to evaluate: use --env {env_names.OFFLINE}."
        )
    if config.reward_from is not None and config.task.episodic_reward:
        problems.append(
            "--reward-from gives recorded steps a reward each: use --task.no-episodic-reward."
        )
    if algo == "bc" and c.reward != "env":
        problems.append("--algo bc reads no rewards: use --offpolicy.reward env.")
    if shards > 1:
        problems.append("--data.path runs on one device: use --devices 1.")
    return problems


def _sde_problems(config: TrainConfig) -> list[str]:
    """Check what state-dependent exploration needs, besides continuous actions."""
    problems, algo = [], config.algo
    if not config.network.sde:
        return problems
    if not algorithm_names.ALGORITHMS.get(algo, _OWN).sde:
        problems.append(f"--network.sde is for ppo and sac: leave it out with --algo {algo}.")
    if config.offline:
        problems.append("--network.sde explores in rollouts: leave it out with --data.path.")
    if config.network.module is not None:
        problems.append("--network.sde is for jaxrl's networks: leave out --network.module.")
    return problems


def _gymnasium_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check what Gymnasium environments cannot do."""
    problems, task = [], config.task
    if config.num_envs % (task.async_factor * shards):
        each = f" on each of {shards} devices" if shards > 1 else ""
        problems.append(
            f"--num-envs {config.num_envs} cannot be split into --task.async-factor "
            f"{task.async_factor} groups{each}: use "
            f"{_near(config.num_envs, task.async_factor * shards)}."
        )
    for path in ("task.randomize", "task.reset_pool"):
        if get(config, path) is not None:
            problems.append(f"{flag(path)} has no meaning for {config.env}: leave it out.")
    if task.action_repeat != 1:
        problems.append(f"--task.action-repeat must be 1 for {config.env}.")
    if task.frame_stack != 1:
        problems.append(
            f"--task.frame-stack must be 1 for {config.env}: use Gymnasium's FrameStackObservation."
        )
    if not task.fresh_resets:
        problems.append(f"--task.fresh-resets is always so for {config.env}: it resets itself.")
    if task.episodic_reward:
        problems.append(f"--task.episodic-reward is not for {config.env}: use no-episodic-reward.")
    return problems


def _count_problems(config: TrainConfig) -> list[str]:
    """Check that counters can hold every count of a run; name the flags to lower."""
    learning, total = config.learning, config.total_iterations
    rollout = f"--num-envs × --{config.algo_section}.rollout-length"
    end = "--epochs × --cycles × --iterations" if config.total_steps is None else "--total-steps"
    rows = config.rows
    group, off_policy = config.algo_section, config.algo not in algorithm_names.ON_POLICY
    counts = [
        (rollout, "steps in a rollout", rows * learning.rollout_length, INT32_MAX),
        (f"{rollout} × --task.action-repeat", "environment steps in an iteration")
        + (config.steps_per_iteration, INT32_MAX),
        (end, "iterations", total, INT32_MAX),
        (end, "environment steps", total * config.steps_per_iteration, INT64_MAX),
        (f"--{group}.update-epochs × --{group}.num-minibatches", "gradient steps in an iteration")
        + ((not off_policy) * learning.updates, INT32_MAX),
        ("--offpolicy.train-batches × --offpolicy.batch-size", "transitions in an iteration")
        + (off_policy * learning.updates * config.offpolicy.batch_size, INT32_MAX),
        (f"{end}, --offpolicy.train-batches", "gradient steps")
        + (off_policy * total * learning.updates, INT32_MAX),
        (f"{end}, --num-envs", "steps of each environment")
        + (off_policy * total * learning.rollout_length, INT32_MAX),
    ]
    return [
        f"{flags}: {count:,} {what} are more than the {most:,} that can be counted."
        for flags, what, count, most in counts
        if count > most
    ]


def _near(number: int, unit: int) -> str:
    """Name the multiples of `unit` next to a number."""
    multiples = {number // unit * unit, -(-number // unit) * unit} - {0}
    return _either(sorted(multiples))
