"""A study: one preset, some changes to it, some seeds.

    STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, seeds=5)

Every variant is a name and the settings it changes, by their dotted names; "as it is" is added.
What can be an array of the training state is trained in one program for all variants and seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jaxrl import config_checks, presets
from jaxrl.config import TrainConfig
from jaxrl.config_changes import changed, combinations

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
        ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in changes.items()): changes
        for changes in combinations(axes)
    }
