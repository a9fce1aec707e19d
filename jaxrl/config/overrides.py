"""Configurations that differ in a few settings, which are given by their dotted names."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from jaxrl.config import TrainConfig, env_names, serialization, validate
from jaxrl.errors import UserError, nearest


def changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return a configuration with settings replaced."""
    for path, value in changes.items():
        config = _replaced(config, path.split("."), value, path)
    return config


def _replaced(part: Any, steps: list[str], value: Any, path: str) -> Any:
    known = [f.name for f in fields(part)] if hasattr(part, "__dataclass_fields__") else []
    if steps[0] not in known:
        prefix = path.removesuffix(".".join(steps))
        raise UserError(f"There is no setting '{path}'.{nearest(steps[0], known, prefix)}")
    inner = value if len(steps) == 1 else _replaced(getattr(part, steps[0]), steps[1:], value, path)
    return replace(part, **{steps[0]: inner})


# Which runs read a section: those of some algorithms, or of some environments.
_READERS = {
    "ppo": ("algo", ("ppo",)),
    "offpolicy": ("algo", ("sac", "td3", "dqn")),
    "motion": ("env", env_names.MOTION),
    "pick": ("env", env_names.ARM),
}


def refuse_unread(config: TrainConfig, preset: TrainConfig) -> None:
    """Raise a UserError for changes of a preset that no part of a run would read."""
    problems = []
    for path in _changes(config, preset):
        kind, readers = _READERS.get(path.partition(".")[0], ("algo", (config.algo,)))
        ours = getattr(config, kind)
        # An environment of one's own with trials goes by --motion.resample-interval.
        if ours not in readers and not env_names.is_custom(ours):
            theirs = f"--{kind} {' or '.join(readers)}, not of {ours}"
            problems.append(f"  {validate.flag(path)} is a setting of {theirs}: leave it out.")
    if problems:
        raise UserError("\n".join(["Nothing would read what was given:", *problems]))


_ANY = None  # in place of a value: whichever is given, but none or 0
# Which choices read a setting of a section that is read.
_CHOICES: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("ppo.schedule", "adaptive_kl"): ("desired_kl", "min_learning_rate", "max_learning_rate"),
    ("ppo.sampling", "prioritized"): ("prio_alpha", "prio_beta0"),
    ("ppo.advantage", "vtrace"): ("rho_clip", "c_clip"),
    ("ppo.teacher", _ANY): ("teacher_coef", "teacher_coef_end"),
    ("ppo.entropy_coef", _ANY): ("entropy_coef_end",),
    ("ppo.l2_init_coef", _ANY): ("l2_init_coef_end",),
    ("algo", "sac"): ("alpha_init", "alpha_lr", "target_entropy"),
    ("algo", "td3"): ("exploration_noise", "policy_delay", "target_noise", "target_noise_clip"),
    ("algo", "dqn"): ("double", "epsilon_end", "epsilon_share"),
    ("offpolicy.critic", "c51"): ("num_atoms", "v_min", "v_max"),
    ("offpolicy.reward", "rrd"): (
        *("r_lr", "rrd_batch_size", "rrd_sample_size"),
        *("rrd_bias_correction", "rrd_features", "rrd_whole_return"),
    ),
}


def unread_choices(config: TrainConfig, preset: TrainConfig, varied: Sequence[str]) -> list[str]:
    """Return a remark for every change of a preset that waits for another choice.

    They are no errors: commands that differ in that choice alone may give the same settings. What
    is `varied` between the members of a run counts as given.
    """
    changed = set(_changes(config, preset))
    remarks = []
    for (choice, value), names_read in _CHOICES.items():
        given = validate.get(config, choice)
        if choice == "algo" and env_names.is_custom(given):  # it may read any of them
            continue
        if choice in varied or (bool(given) if value is _ANY else given == value):
            continue
        missing = validate.flag(choice) + ("" if value is _ANY else f" {value}")
        remarks += [
            f"{validate.flag(path)} changes nothing without {missing}."
            for path in waiting(choice, names_read)
            if path in changed
        ]
    return remarks


def waiting(choice: str, names_read: Sequence[str]) -> list[str]:
    """Return the dotted names of what a choice reads: settings of PPO, or of all others."""
    section = "ppo" if choice.startswith("ppo.") else "offpolicy"
    return [f"{section}.{name}" for name in names_read]


def _changes(config: TrainConfig, preset: TrainConfig) -> list[str]:
    """Return the dotted names of settings that are not as in a preset."""
    now, before = (serialization.flatten(asdict(each)) for each in (config, preset))
    return [path for path in now if now[path] != before[path]]


def combinations(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the changes of every combination of values, the last name varying fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


_WORDS = {"true": True, "false": False}
_MOST_MEMBERS = 2**16  # each has a folder and a configuration of its own


def setting(text: str) -> str:
    """Return the name before the values in `ppo.learning-rate=1e-4,3e-4`."""
    return text.partition("=")[0].removeprefix("--").replace("-", "_")


def axis(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `ppo.learning-rate=1e-4,3e-4`: the name of a setting, and its values."""
    listed = text.partition("=")[2]
    try:
        values = tuple(_WORDS[v] if v in _WORDS else float(v) for v in listed.lower().split(","))
    except ValueError:
        raise UserError(
            f"--vary {text}: write a setting and its values, as ppo.learning-rate=1e-4,3e-4 or "
            "ppo.bootstrap-truncated=True,False."
        ) from None
    return setting(text), values


def _of_kind(config: TrainConfig, name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return values as a setting takes them: numbers, or True and False (0 and 1 will do)."""
    changed(config, {name: 0.0})  # or there is no such setting
    kind = type(validate.get(config, name))
    if kind not in (float, bool):
        raise UserError(f"--vary {name}: only what --help marks as (traced) can vary.")
    if kind is bool and not set(values) <= {False, True}:
        raise UserError(f"--vary {name}: its values are True and False.")
    if kind is float and any(isinstance(value, bool) for value in values):
        raise UserError(f"--vary {name}: its values are numbers.")
    return tuple(map(kind, values))


def members(config: TrainConfig, num_seeds: int, vary: Sequence[str] = ()) -> list[TrainConfig]:
    """Return every combination of what is varied, each with `num_seeds` seeds."""
    if not 1 <= num_seeds <= _MOST_MEMBERS:
        raise UserError(f"--num-seeds must lie between 1 and {_MOST_MEMBERS:,}, not {num_seeds}.")
    axes = dict(map(axis, vary))
    if len(axes) < len(vary):
        raise UserError("--vary: name every setting once, with all of its values.")
    axes = {name: _of_kind(config, name, values) for name, values in axes.items()}
    number = num_seeds * math.prod(map(len, axes.values()))
    if number > _MOST_MEMBERS:
        raise UserError(
            f"--num-seeds and --vary make {number:,} members; at most {_MOST_MEMBERS:,} can be "
            "trained at once."
        )
    return [
        replace(changed(config, changes), seed=seed)
        for changes in combinations(axes)
        for seed in range(config.seed, config.seed + num_seeds)
    ]


def check(members: Sequence[TrainConfig]) -> None:
    """Raise a UserError for what cannot be run; of several, each is built for one device."""
    for member in members:
        one = member.devices and min(member.devices, 1)  # less than one is no number of devices
        validate.check(replace(member, devices=one) if len(members) > 1 else member)
