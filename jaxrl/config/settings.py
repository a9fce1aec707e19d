"""What the declarations in `schema` and `algorithms` say of a run's settings, by dotted path."""

import json
import typing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jaxrl.config import env_names, metadata, serialization
from jaxrl.config.metadata import Setting, flag
from jaxrl.config.schema import TrainConfig

SETTINGS: dict[str, Setting] = metadata.walk(TrainConfig)
SECTIONS: dict[str, Setting] = metadata.sections(TrainConfig)


def hint(path: str) -> Any:
    """Return the type of the setting at a dotted path."""
    found: Any = TrainConfig
    for part in path.split("."):
        found = typing.get_type_hints(found)[part]
    return found


def choices(path: str) -> tuple[str, ...]:
    """Return the words that may be given to the setting at a dotted path, if they are a few."""
    return metadata.choices(SETTINGS[path], hint(path))


def get(config: Any, path: str) -> Any:
    """Return the value at a dotted path."""
    for part in path.split("."):
        config = getattr(config, part)
    return config


def values(config: TrainConfig) -> dict[str, Any]:
    """Return every value by its dotted path."""
    return serialization.flatten(asdict(config))


def compiled(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that compiled programs depend on."""
    return {path: x for path, x in values(config).items() if SETTINGS[path].compiled}


def fixed_on_resume(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that a resumed run must keep, as JSON values."""
    fixed = {path: x for path, x in values(config).items() if not SETTINGS[path].free_on_resume}
    return json.loads(json.dumps(fixed, default=str))


def traced(config: TrainConfig) -> tuple[str, ...]:
    """Return the paths of the settings that are arrays of the training state."""
    return tuple(f"{config.algo_section}.{name}" for name in metadata.traced(config.learning))


def static(config: TrainConfig) -> dict[str, Any]:
    """Return what members of one program must have in common.

    Of some traced settings that is whether they are 0, which leaves a part of the program out.
    """
    names, shared = traced(config), {}
    for path, value in values(config).items():
        if path not in names and not SETTINGS[path].identity:
            shared[path] = value
        elif SETTINGS[path].zero_is_static:
            shared[path] = value == 0
    return shared


# Flags of code that only training imports.
TRAINING_CODE = tuple(flag(p) for p, each in SETTINGS.items() if each.code and not each.plays)


def own_code(config: TrainConfig) -> dict[str, str]:
    """Return the names of the user's own code that a run imports, by the settings' paths."""
    named = {path: (each.code, get(config, path)) for path, each in SETTINGS.items()}
    return {
        path: name
        for path, (code, name) in named.items()
        if code is not None and name is not None and code.is_own(name)
    }


def imported_code(config: TrainConfig) -> dict[str, str]:
    """Return the same by the flags of the command line."""
    return {flag(path): name for path, name in own_code(config).items()}


def named_files(config: TrainConfig) -> dict[str, Path]:
    """Return the files and folders that settings name, by their dotted paths."""
    return {p: x for p, x in values(config).items() if SETTINGS[p].is_path and x is not None}


def compiles_own(config: TrainConfig) -> bool:
    """Tell whether compiled programs follow from code or files of the user's own."""
    return any(SETTINGS[path].compiled for path in (*own_code(config), *named_files(config)))


def weights_of(network: str) -> tuple[str, ...]:
    """Return the paths of the settings without which an actor's or critic's weights are useless."""
    return tuple(path for path, each in SETTINGS.items() if each.weights_of == network)


def applies(config: TrainConfig, condition: tuple[str, ...], own: bool = True) -> bool:
    """Tell whether a condition of `only_if` or `unless` holds in this run.

    `own` is the answer for code of the user's own, which may read any setting.
    """
    if not condition:
        return True
    path, *choices = condition
    value = get(config, path)
    if path in ("env", "algo") and env_names.is_custom(value):
        return own
    if path == "env":
        return any(env_names.matches(value, choice) for choice in choices)
    return value in choices if choices else bool(value)


def reads(config: TrainConfig, path: str) -> bool:
    """Tell whether a run reads a setting."""
    section, each = SECTIONS.get(path.partition(".")[0]), SETTINGS[path]
    return (
        (section is None or applies(config, section.only_if))
        and applies(config, each.only_if)
        and not (each.unless and applies(config, each.unless, own=False))
        and not (each.continuous and config.env in env_names.DISCRETE)
    )


def tables() -> str:
    """Return every setting as Markdown, one table per section."""
    parts = [_table(TrainConfig, "")]
    for name, section in SECTIONS.items():
        needs = f" Needs {metadata.condition_text(section.only_if)}." if section.only_if else ""
        cls = typing.get_type_hints(TrainConfig)[name]
        parts += [f"## {name}", section.help + needs, _table(cls, f"{name}.")]
    return "\n\n".join(parts)


def _table(cls: type, prefix: str) -> str:
    lines = ["| flag | default | values | on resume | |", "|---|---|---|---|---|"]
    for name, hint in typing.get_type_hints(cls).items():
        path = prefix + name
        if path in SECTIONS or path == "preset":  # which is no flag
            continue
        each, default = SETTINGS[path], getattr(cls, name)
        default = " ".join(map(str, default)) if isinstance(default, tuple) else default
        values = ", ".join(metadata.choices(each, hint)) or each.range
        resume = "may change" if each.free_on_resume else ""
        text = each.full_help.replace("<", "&lt;")
        lines.append(f"| `{flag(path)}` | {default} | {values} | {resume} | {text} |")
    return "\n".join(lines)
