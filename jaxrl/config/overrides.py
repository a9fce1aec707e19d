"""Configurations with some settings replaced, by their dotted paths."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import SequenceMatcher
from typing import Any

from jaxrl.config import TrainConfig, env_names, metadata, settings, validate
from jaxrl.config.settings import SECTIONS, SETTINGS
from jaxrl.errors import UserError, nearest


def changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return a configuration with settings replaced; lists may stand for tuples."""
    for path, value in changes.items():
        value = tuple(value) if isinstance(value, list) else value
        if isinstance(config, TrainConfig) and "." not in path and path not in _NAMES:
            raise UserError(f"There is no setting '{path}'.{_paths_like(path, config)}")
        config = _replaced(config, path.split("."), value, path)
    return config


_NAMES = {f.name for f in fields(TrainConfig)}


def _paths_like(name: str, config: TrainConfig) -> str:
    """Return a hint at settings of a similar name, also in groups, as changes name them."""
    similar = _similar(settings.flag(name), *_used_and_unused(config))
    paths = [flag.removeprefix("--").replace("-", "_") for flag in similar]
    named = ", or ".join(f"**{{'{p}': ...}}" if "." in p else f"'{p}'" for p in paths)
    return f" Did you mean {named}?" if paths else nearest(name, _NAMES)


def _replaced(part: Any, steps: list[str], value: Any, path: str) -> Any:
    names = [f.name for f in fields(part)] if hasattr(part, "__dataclass_fields__") else []
    if steps[0] not in names:
        prefix = path.removesuffix(".".join(steps))
        raise UserError(f"There is no setting '{path}'.{nearest(steps[0], names, prefix)}")
    section = hasattr(getattr(part, steps[0]), "__dataclass_fields__")
    if section and len(steps) == 1 and not isinstance(value, type(getattr(part, steps[0]))):
        raise UserError(f"'{path}' is a group of settings: name one of them, as '{path}.name'.")
    inner = value if len(steps) == 1 else _replaced(getattr(part, steps[0]), steps[1:], value, path)
    return replace(part, **{steps[0]: inner})


def refuse_unknown(arguments: Sequence[str], config: TrainConfig, others: Sequence[str]) -> None:
    """Raise a UserError for a flag that does not exist, with the most similar ones.

    Those of the chosen algorithm and environment come first. `others` are flags of the command.
    """
    known = {settings.flag(path): path for path in SETTINGS if path != "preset"}
    for word in arguments:
        name = word.partition("=")[0].replace("_", "-")
        positive = name.replace("--no-", "--").replace(".no-", ".")
        if (
            not name.startswith("--")
            or name.startswith("--tyro-")
            or {name, positive} & {*known, *others}
        ):
            continue
        used, unused = _used_and_unused(config)
        similar = _similar(name, [*used, *others], unused)
        hint = f" Did you mean {', or '.join(similar)}?" if similar else ""
        raise UserError(f"Unknown flag {name}.{hint} --help-all lists all flags.")


def _used_and_unused(config: TrainConfig) -> tuple[list[str], list[str]]:
    """Return the flags of the settings that a run reads, and of the others."""
    used = {settings.flag(p): settings.reads(config, p) for p in SETTINGS if p != "preset"}
    return [flag for flag in used if used[flag]], [flag for flag in used if not used[flag]]


_SUGGESTIONS = 4
# What Stable-Baselines3, brax and CleanRL call settings whose names here are not like theirs.
_OTHER_NAMES = {
    "clip-coef": "clip",
    "clip-range": "clip",
    "clipping-epsilon": "clip",
    "discounting": "gamma",
    "ent-coef": "entropy-coef",
    "entropy-cost": "entropy-coef",
    "gae-lambda": "lam",
    "gradient-steps": "train-batches",
    "lambda": "lam",
    "learning-starts": "warmup",
    "n-epochs": "update-epochs",
    "n-steps": "rollout-length",
    "net-arch": "hidden",
    "normalize-observations": "normalize-obs",
    "num-evals": "epochs",
    "num-steps": "rollout-length",
    "num-timesteps": "total-steps",
    "num-updates-per-batch": "update-epochs",
    "randomization-fn": "randomize",
    "tau": "polyak",
    "total-timesteps": "total-steps",
    "train-freq": "rollout-length",
    "unroll-length": "rollout-length",
    "use-sde": "sde",
    "vf-coef": "value-coef",
}


def _similar(flag: str, *groups: Iterable[str]) -> list[str]:
    """Return the flags whose name is most like that of another, the best of each group first."""
    return [each for flags in groups for each in _most_like(flag, flags)][:_SUGGESTIONS]


def _most_like(flag: str, flags: Iterable[str]) -> list[str]:
    """Return the flags whose name is like that of another, the best first."""

    def name(flag: str) -> str:
        last = flag.removeprefix("--").rpartition(".")[2]
        return re.sub(r"\blr\b", "learning-rate", last)

    wanted = _OTHER_NAMES.get(name(flag), name(flag))
    scores = {
        each: SequenceMatcher(None, wanted, name(each)).ratio()
        + (wanted in name(each).split("-"))  # --steps is a part of --total-steps
        for each in flags
    }
    return sorted((f for f, score in scores.items() if score > 0.7), key=lambda f: -scores[f])


def refuse_unused(config: TrainConfig, preset: TrainConfig) -> None:
    """Raise a UserError for changes of a preset that this run does not use."""
    problems = []
    for path in differences(config, preset):
        section, unless = SECTIONS.get(path.partition(".")[0]), SETTINGS[path].unless
        # What an environment does in place of such a setting is known to the validation.
        if unless and unless[0] != "env" and settings.applies(config, unless):
            without = metadata.condition_text(unless)
            problems.append(f"  {settings.flag(path)} has no effect with {without}: leave it out.")
        if section and not settings.applies(config, section.only_if):
            needs = metadata.condition_text(section.only_if)
            value = getattr(config, section.only_if[0])
            problems.append(
                f"  {settings.flag(path)} is a setting of {needs}, not of {value}: leave it out."
            )
    if problems:
        raise UserError("\n".join(["These flags have no effect in this run:", *problems]))


def unused_notes(config: TrainConfig, preset: TrainConfig, varied: Sequence[str]) -> list[str]:
    """Return a note for every change of a preset that has no effect without another setting.

    They are no errors, so that commands may differ in that setting alone. Settings that are
    `varied` between the members of a run count as set.
    """
    notes = []
    for path in differences(config, preset):
        needs = SETTINGS[path].only_if
        if needs and needs[0] not in varied and not settings.applies(config, needs):
            text = metadata.condition_text(needs)
            notes.append(f"{settings.flag(path)} has no effect without {text}.")
        elif SETTINGS[path].continuous and config.env in env_names.DISCRETE:
            notes.append(
                f"{settings.flag(path)} has no effect: {config.env}'s actions are discrete."
            )
    return notes


def differences(config: TrainConfig, preset: TrainConfig) -> list[str]:
    """Return the paths of settings that differ from a preset."""
    now, before = settings.values(config), settings.values(preset)
    return [path for path in now if now[path] != before[path]]


_EPOCHS = 10  # of a run that names its steps alone
_MAX_CYCLES = 5  # in each


def with_ten_epochs(config: TrainConfig) -> TrainConfig:
    """Divide --total-steps into about ten epochs, each of which ends with an evaluation."""
    if config.total_steps is None or min(config.total_steps, config.steps_per_iteration) < 1:
        return config
    iterations = -(-config.total_steps // config.steps_per_iteration)
    per_epoch = max(iterations // _EPOCHS, 1)
    if per_epoch > metadata.INT32_MAX:  # refused later, by the flag that was given
        return config
    cycles = max(n for n in range(1, _MAX_CYCLES + 1) if per_epoch % n == 0)
    return replace(config, cycles=cycles, iterations=per_epoch // cycles)


def combinations(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the changes of every combination of values, the last name varying fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


_WORDS = {"true": True, "false": False}
_MAX_MEMBERS = 2**16  # each has a folder and a configuration of its own


def axis_path(text: str) -> str:
    """Return the path before the values in `ppo.learning-rate=1e-4,3e-4`."""
    return text.partition("=")[0].removeprefix("--").replace("-", "_")


def parse_axis(text: str) -> tuple[str, tuple[float, ...]]:
    """Read `ppo.learning-rate=1e-4,3e-4`: the path of a setting, and its values."""
    listed = text.partition("=")[2]
    try:
        values = tuple(_WORDS[v] if v in _WORDS else float(v) for v in listed.lower().split(","))
    except ValueError:
        raise UserError(
            f"--vary {text}: write a setting and its values, as ppo.learning-rate=1e-4,3e-4 or "
            "ppo.bootstrap-truncated=True,False."
        ) from None
    return axis_path(text), values


def _typed(config: TrainConfig, path: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return values in the type of a traced setting: numbers, or True and False (also 0 and 1)."""
    changed(config, {path: 0.0})  # raises if there is no such setting
    kind = type(settings.get(config, path))
    if path not in SETTINGS or not SETTINGS[path].traced:
        raise UserError(f"--vary {path}: only settings that --help marks as (traced) can vary.")
    if kind is bool and not set(values) <= {False, True}:
        raise UserError(f"--vary {path}: its values are True and False.")
    if kind is float and any(isinstance(value, bool) for value in values):
        raise UserError(f"--vary {path}: its values are numbers.")
    return tuple(map(kind, values))


def members(config: TrainConfig, num_seeds: int, vary: Sequence[str] = ()) -> list[TrainConfig]:
    """Return every combination of the varied settings, each with `num_seeds` seeds."""
    if not 1 <= num_seeds <= _MAX_MEMBERS:
        raise UserError(f"--num-seeds must lie between 1 and {_MAX_MEMBERS:,}, not {num_seeds}.")
    axes = dict(map(parse_axis, vary))
    if len(axes) < len(vary):
        raise UserError("--vary: name every setting once, with all of its values.")
    axes = {path: _typed(config, path, values) for path, values in axes.items()}
    number = num_seeds * math.prod(map(len, axes.values()))
    if number > _MAX_MEMBERS:
        raise UserError(
            f"--num-seeds and --vary make {number:,} members; at most {_MAX_MEMBERS:,} can be "
            "trained at once."
        )
    return [
        replace(changed(config, changes), seed=seed)
        for changes in combinations(axes)
        for seed in range(config.seed, config.seed + num_seeds)
    ]


def check(members: Sequence[TrainConfig]) -> None:
    """Raise a UserError for members that cannot be run; of several, each uses one device."""
    for member in members:
        one = member.devices and min(member.devices, 1)  # less than one is no number of devices
        validate.check(replace(member, devices=one) if len(members) > 1 else member)
