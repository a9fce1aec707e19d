"""What a run is: frozen settings, checked together, stored as plain JSON.

This module imports no JAX, so that `--help` and every error about settings come at once.
Numbers marked (traced) are arrays in the training state: they can differ between members of a
population without compiling again. All other settings fix shapes or structure.
"""

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from jaxrl.envs import names
from jaxrl.errors import UserError, nearest

FORMAT = 1


@dataclass(frozen=True)
class TaskConfig:
    """How the environment is run."""

    episode_length: int | None = None
    """Time limit in environment steps; the environment's own (Brax: 1000) when not given."""
    action_repeat: int = 1
    """Environment steps per action; all counts and limits are in environment steps."""
    reset_pool: int | None = None
    """Fresh start states drawn per rollout; an eighth of the environments when not given."""
    random_first_age: bool = True
    """Start the first episodes at random ages, so that resets do not come in waves."""
    randomize: str | None = None
    """Domain randomisation: module:function with (sys, key) -> sys, drawn for every episode."""


@dataclass(frozen=True)
class NetworkConfig:
    """Actor and critic."""

    hidden: tuple[int, ...] = (64, 64, 64)
    """Widths of the actor's layers."""
    critic_hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of the critic's layers."""
    activation: Literal["swish", "relu", "tanh", "elu", "gelu"] = "swish"
    """Activation function."""
    layer_norm: bool = False
    """Normalise each layer."""
    init: Literal["lecun", "orthogonal"] = "lecun"
    """Weight initialisation."""
    distribution: Literal["tanh_normal", "normal"] = "tanh_normal"
    """Continuous actions: squashed into their range, or clipped at its ends."""
    state_dependent_std: bool = True
    """Let the network choose the spread of actions, or learn one number per action."""
    init_std: float = 0.7
    """Spread of actions at the start."""
    min_std: float = 0.001
    """Spread never falls below this."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation."""

    rollout_length: int = 16
    """Steps per environment and iteration."""
    update_epochs: int = 4
    """Passes over each rollout."""
    num_minibatches: int = 8
    """Minibatches per pass, each of whole environments."""
    learning_rate: float = 3e-4
    """Adam's step size (traced)."""
    schedule: Literal["constant", "linear", "cosine", "exponential", "adaptive_kl"] = "constant"
    """How the learning rate changes over the run; adaptive_kl steers by the KL divergence."""
    schedule_floor: float = 0.0
    """Where a falling schedule ends, as a share of the learning rate."""
    desired_kl: float = 0.01
    """adaptive_kl: the divergence aimed at (traced)."""
    min_learning_rate: float = 1e-5
    """adaptive_kl: lower bound (traced)."""
    max_learning_rate: float = 1e-2
    """adaptive_kl: upper bound (traced)."""
    gamma: float = 0.99
    """Discount per action (traced)."""
    lam: float = 0.95
    """GAE's lambda (traced)."""
    clip: float = 0.2
    """Range of the probability ratio (traced)."""
    value_clip: float = 0.0
    """Range of the clipped value loss; 0 means the plain loss (traced)."""
    value_coef: float = 0.5
    """Weight of the value loss (traced)."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus (traced)."""
    bound_coef: float = 0.0
    """Weight of the loss on action means beyond 1.1 (traced)."""
    l2_init_coef: float = 0.0
    """Weight of the squared distance to the initial parameters (traced)."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm; 0 switches it off."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    target_kl: float = 0.0
    """Skip an iteration's remaining updates once KL exceeds 1.5 × this; 0: never (traced)."""
    normalize_advantage: Literal["batch", "minibatch", "none"] = "minibatch"
    """Over which samples advantages get mean 0 and standard deviation 1."""
    normalize_obs: bool = True
    """Normalise observations by running statistics."""
    normalize_reward: bool = False
    """Divide rewards by the running deviation of the discounted return (as VecNormalize)."""
    normalize_value: bool = False
    """Let the critic predict normalised returns."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before learning (traced); logs show the plain ones."""


@dataclass(frozen=True)
class EvalConfig:
    """Measuring the policy, beside training and without touching it."""

    num_envs: int = 128
    """Episodes per evaluation, one in each environment; 0 switches evaluation off."""
    every: int = 0
    """Also evaluate every this many cycles; the end of each epoch always is."""
    deterministic: bool = True
    """Act by the distribution's mode."""


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept on disk."""

    save_freq: int = 1
    """Save the full state every this many epochs; the end of a run always is."""
    keep_last: int = 3
    """Newest checkpoints kept, besides the best one."""


@dataclass(frozen=True)
class LogConfig:
    """Where metrics go besides metrics.jsonl."""

    tensorboard: bool = True
    """Write TensorBoard files."""
    wandb: bool = False
    """Send metrics to Weights & Biases (needs the extra jaxrl[wandb])."""
    wandb_project: str = "jaxrl"
    """Its project."""
    max_bad_updates: int = 50
    """Stop after this many non-finite gradient steps in a row."""


@dataclass(frozen=True)
class TrainConfig:
    """One training run: epochs × cycles × iterations, each iteration one rollout and learning."""

    env: str = "inverted_pendulum"
    """A Brax environment, cartpole, pendulum, or your own as module:Class."""
    backend: str | None = None
    """Brax physics: generalized, mjx, positional or spring; the environment's own if not given."""
    algo: Literal["ppo"] = "ppo"
    """Learning algorithm."""
    num_envs: int = 2048
    """Environments run side by side."""
    seed: int = 0
    """Seed of everything random."""
    epochs: int = 10
    """Epochs; each ends with an evaluation and a checkpoint."""
    cycles: int = 5
    """Cycles per epoch; each is one compiled call and one row of the log."""
    iterations: int = 10
    """Iterations per cycle; each collects one rollout and learns from it."""
    total_steps: int | None = None
    """Environment steps to train for, in whole cycles; takes the place of --epochs."""
    run_dir: Path | None = None
    """Run folder; runs/<preset>-<seed>-<stamp> when not given."""
    devices: int | None = None
    """Number of local devices to spread the environments over; all when not given."""
    task: TaskConfig = field(default_factory=TaskConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    preset: tyro.conf.Suppress[str] = "custom"
    """Name of the preset this started from."""

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps in one iteration."""
        return self.num_envs * self.ppo.rollout_length * self.task.action_repeat

    @property
    def total_cycles(self) -> int:
        """Cycles in the whole run."""
        if self.total_steps is None:
            return self.epochs * self.cycles
        return math.ceil(self.total_steps / (self.steps_per_iteration * self.iterations))

    @property
    def total_iterations(self) -> int:
        """Iterations in the whole run."""
        return self.total_cycles * self.iterations


# Field paths by the rule they must obey; everything numeric is named here.
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
    "ppo.rollout_length",
    "ppo.update_epochs",
    "ppo.num_minibatches",
    "checkpoint.save_freq",
    "checkpoint.keep_last",
    "log.max_bad_updates",
)
_NOT_NEGATIVE = (
    "seed",
    "eval.num_envs",
    "eval.every",
    "ppo.value_clip",
    "ppo.value_coef",
    "ppo.entropy_coef",
    "ppo.bound_coef",
    "ppo.l2_init_coef",
    "ppo.max_grad_norm",
    "ppo.target_kl",
    "ppo.learning_rate",
)
_POSITIVE = (
    "ppo.desired_kl",
    "ppo.min_learning_rate",
    "ppo.max_learning_rate",
    "ppo.clip",
    "ppo.adam_epsilon",
    "ppo.reward_scale",
    "network.init_std",
    "network.min_std",
)
_SHARE = ["ppo.gamma", "ppo.lam", "ppo.schedule_floor"]


def get(config: Any, path: str) -> Any:
    """Return the field at a dotted path."""
    for part in path.split("."):
        config = getattr(config, part)
    return config


def flag(path: str) -> str:
    """Return the command-line flag of a dotted path."""
    return "--" + path.replace("_", "-")


def validate(config: TrainConfig, device_count: int | None = None) -> list[str]:
    """Return every problem of a configuration, each with its field and its fix."""
    problems = [*_range_problems(config), *_name_problems(config)]
    if not problems:
        problems += _size_problems(config, device_count)
    return problems


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
            if value is not None and not (math.isfinite(value) and holds(value)):
                problems.append(f"{flag(path)} {text}, not {value}.")
    for path in ("network.hidden", "network.critic_hidden"):
        widths = get(config, path)
        if not widths or min(widths) < 1:
            problems.append(f"{flag(path)} needs one or more widths of at least 1, not {widths}.")
    if config.seed >= 2**32:
        problems.append(f"--seed must be below 2**32, not {config.seed}.")
    if config.ppo.min_learning_rate > config.ppo.max_learning_rate:
        problems.append("--ppo.min-learning-rate must not exceed --ppo.max-learning-rate.")
    return problems


def _name_problems(config: TrainConfig) -> list[str]:
    problems = []
    every = (*names.BRAX, *names.CLASSIC)
    if not names.known(config.env):
        problems.append(
            f"--env: unknown environment '{config.env}'.{nearest(config.env, every)} "
            f"Known: {', '.join(every)}, or your own as module:Class."
        )
    if config.backend is not None and config.backend not in names.BACKENDS:
        problems.append(
            f"--backend: unknown backend '{config.backend}'."
            f"{nearest(config.backend, names.BACKENDS)} Known: {', '.join(names.BACKENDS)}."
        )
    elif config.backend is not None and config.env in names.CLASSIC:
        problems.append(f"--backend: '{config.env}' has no physics backend: use --backend None.")
    return problems


def _size_problems(config: TrainConfig, device_count: int | None) -> list[str]:
    problems = []
    shards = config.devices or device_count or 1
    if device_count is not None and shards > device_count:
        problems.append(f"--devices {shards}: this machine has {device_count}.")
    unit = shards * config.ppo.num_minibatches
    if config.num_envs % unit:
        lower, upper = config.num_envs // unit * unit, -(-config.num_envs // unit) * unit
        fits = " or ".join(str(n) for n in (lower, upper) if n)
        problems.append(
            f"--num-envs {config.num_envs} cannot be split into --ppo.num-minibatches "
            f"{config.ppo.num_minibatches} on {shards} device(s): use {fits}."
        )
    if config.eval.num_envs and config.eval.num_envs % shards:
        fits = -(-config.eval.num_envs // shards) * shards
        problems.append(
            f"--eval.num-envs {config.eval.num_envs} does not divide over {shards} devices: "
            f"use {fits}."
        )
    length = config.task.episode_length
    if length is not None and length < config.task.action_repeat:
        problems.append(
            f"--task.episode-length {length} is shorter than --task.action-repeat "
            f"{config.task.action_repeat}."
        )
    return problems


def check(config: TrainConfig, device_count: int | None = None) -> None:
    """Raise one UserError that lists every problem, or return."""
    problems = validate(config, device_count)
    if problems:
        raise UserError(
            "The configuration cannot be run:\n" + "\n".join(f"  {p}" for p in problems)
        )


def to_json(config: TrainConfig) -> str:
    """Return the configuration as readable JSON."""
    data = {"format": FORMAT} | dataclasses.asdict(config)
    data["run_dir"] = None if config.run_dir is None else str(config.run_dir)
    return json.dumps(data, indent=2)


def from_json(text: str, where: str = "config.json") -> TrainConfig:
    """Read a configuration strictly: unknown, missing or mistyped fields are errors."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise UserError(f"{where} was not written by this version of jaxrl (format {FORMAT}).")
    return read(TrainConfig, data, where, "")


def read(cls: type, data: Any, where: str, prefix: str = "") -> Any:
    """Build dataclass `cls` from a dict."""
    if not isinstance(data, dict):
        raise UserError(f"{where}: '{prefix or 'top'}' must be an object.")
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise UserError(f"{where}: unknown field '{prefix}{unknown[0]}'.")
    values = {
        name: _value(hints[name], value, where, prefix + name) for name, value in data.items()
    }
    return cls(**values)


def _value(hint: Any, value: Any, where: str, path: str) -> Any:
    """Check one value against its type."""
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(option, type):
            return read(option, value, where, path + ".")
        if option is type(None) and value is None:
            return None
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if typing.get_origin(option) is tuple and isinstance(value, list):
            return tuple(_value(typing.get_args(option)[0], v, where, path) for v in value)
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if option is Path and isinstance(value, str):
            return Path(value)
        if option in (int, str, bool) and type(value) is option:
            return value
    raise UserError(f"{where}: field '{path}' has the unusable value {value!r}.")


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names."""
    flat = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
