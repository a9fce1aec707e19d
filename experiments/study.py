"""A study: one preset, some changes to it, some seeds.

    STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, seeds=5)

Every variant is a name and the settings it changes, by their dotted names; "as it is" is added.
What can be an array of the training state is trained in one program for all variants and seeds.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from jaxrl import config_checks, presets
from jaxrl.config import TrainConfig
from jaxrl.errors import UserError, nearest

PLAIN = "as it is"


@dataclass(frozen=True)
class Study:
    """What is run, and what is changed."""

    preset: str
    variants: Mapping[str, Mapping[str, Any]]
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)  # for all variants
    tiny: Mapping[str, Any] = field(default_factory=dict)  # what --tiny sets besides

    def cells(self, *, tiny: bool = False) -> dict[tuple[str, int], TrainConfig]:
        """Return the configuration of every variant and seed."""
        base = changed(presets.get(self.preset), self.settings)
        base = changed(base, self.tiny if tiny else {})
        seeds = min(self.seeds, 2) if tiny else self.seeds
        found = {}
        for name, changes in {PLAIN: {}, **self.variants}.items():
            config = changed(base, changes)
            config_checks.check(config)
            for seed in range(seeds):
                found[name, seed] = replace(config, seed=seed)
        return found


def grid(axes: Mapping[str, tuple]) -> dict[str, dict[str, Any]]:
    """Return a variant for every combination of values."""
    return {
        ", ".join(f"{n.rpartition('.')[2]} {v}" for n, v in zip(axes, values, strict=True)): dict(
            zip(axes, values, strict=True)
        )
        for values in itertools.product(*axes.values())
    }


def changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return a configuration with settings replaced by their dotted names."""
    for path, value in changes.items():
        config = _replaced(config, path.split("."), value, path)
    return config


def _replaced(part: Any, names: list[str], value: Any, path: str) -> Any:
    known = [f.name for f in fields(part)] if hasattr(part, "__dataclass_fields__") else []
    if names[0] not in known:
        raise UserError(f"A study changes '{path}', which no run has.{nearest(names[0], known)}")
    inner = value if len(names) == 1 else _replaced(getattr(part, names[0]), names[1:], value, path)
    return replace(part, **{names[0]: inner})
