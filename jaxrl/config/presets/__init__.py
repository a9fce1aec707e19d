"""Named configurations: values, not flags. Any field can be overridden on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxrl.config import TrainConfig, env_names, overrides
from jaxrl.config.presets import motion, off_policy, pick_place, playground, ppo, pqn, reppo
from jaxrl.config.settings import flag
from jaxrl.config.values import type_problems
from jaxrl.errors import UserError, nearest

PRESETS: dict[str, TrainConfig] = {
    name: replace(config, preset=name)
    for presets in (ppo, off_policy, motion, pick_place, playground, reppo, pqn)
    for name, config in presets.PRESETS.items()
}
_CUSTOM = {"custom", "reppo-custom"}


def get(name: str, **changes: Any) -> TrainConfig:
    """Return a preset by name, with settings changed.

    Args:
      name: one of `names()`; with a change of `algo`, its preset for that algorithm, if any.
      changes: settings by name, `num_envs=64`, or by path, `**{"ppo.lam": 0.9}`.
    """
    if not isinstance(name, str):
        raise UserError(f"presets.get: give the name of a preset, as 'ant', not {name!r}.")
    if name not in PRESETS:
        raise UserError(f"Unknown preset '{name}'.{_known(name)}")
    config = overrides.changed(PRESETS[of_algorithm(name, changes.get("algo"))], changes)
    if problems := type_problems(config):
        raise UserError("\n".join(f"{flag(path)} {problem}." for path, problem in problems))
    return config


def _known(name: str) -> str:
    """Return what the message about an unknown preset ends with."""
    playground = "python -m jaxrl.presets playground lists them."
    if env_names.is_playground(name):
        return f"{nearest(name, PRESETS)} {playground}"
    if like := nearest(name, PRESETS):
        return f"{like} python -m jaxrl.presets lists all."
    return f" Known: {', '.join(own_names())}, and those of MuJoCo Playground: {playground}"


def of_algorithm(name: str, algo: str | None) -> str:
    """Return ALGO-NAME if there is such a preset, so that `ant --algo sac` is tuned for SAC."""
    return f"{algo}-{name}" if f"{algo}-{name}" in PRESETS else name


def is_custom(name: str) -> bool:
    """Tell whether a preset is what an environment without one begins with."""
    return name in _CUSTOM


def names() -> list[str]:
    """Return the names of all presets but those that `--env module:Class` begins with."""
    return sorted(PRESETS.keys() - _CUSTOM)


def own_names() -> list[str]:
    """Return the names of all but tasks of MuJoCo Playground."""
    return [name for name in names() if not env_names.is_playground(PRESETS[name].env)]


def playground_names() -> list[str]:
    """Return the names of MuJoCo Playground's tasks."""
    return [name for name in names() if env_names.is_playground(name)]


def table(chosen: Sequence[str] = ()) -> str:
    """Return presets as a Markdown table; unless some are named, all but Playground's."""
    lines = ["| preset | environment | backend | environments | steps |", "|---|---|---|---:|---:|"]
    for name in chosen or own_names():
        c = PRESETS[name]
        steps = c.total_iterations * c.steps_per_iteration
        millions = f"{steps / 1e6:.0f}" if steps >= 1e7 else f"{steps / 1e6:.2g}"
        number = "-" if c.offline else f"{c.num_envs:,}"
        row = (f"`{name}`", c.env, c.backend or "-", number, f"{millions} M")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)
