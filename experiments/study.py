"""A study: one preset, some changes to it, some seeds.

    STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, seeds=5)

Every variant is a name and the settings it changes, by their dotted names; "as it is" is added.
What can be an array of the training state is trained in one program for all variants and seeds.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments import tiny
from jaxrl import config_checks, config_json, presets
from jaxrl.config import TrainConfig
from jaxrl.config_changes import changed, combinations
from jaxrl.errors import UserError, nearest

HERE = Path(__file__).parent
PLAIN = "as it is"
Cell = tuple[str, int]  # variant, seed


class Between(NamedTuple):
    """A range that a setting is searched in; on a logarithmic scale where its size is not known."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Study:
    """What is run, what is changed, and what it is judged by."""

    preset: str
    variants: Mapping[str, Mapping[str, Any]]
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)  # for all variants
    metric: str = "eval/mean_reward"  # any that an evaluation logs
    lower_is_better: bool = False
    # Settings to search, each a Between or a tuple of choices; see experiments/search.py.
    search: Mapping[str, Between | tuple[Any, ...]] = field(default_factory=dict)
    tiny: Mapping[str, Any] = field(default_factory=dict)  # what `shrunk` sets, if not the usual
    is_shrunk: bool = False

    def shrunk(self) -> "Study":
        """Return some of it in next to nothing, which can be run but not be learnt from."""
        plain = {"metric": "eval/mean_reward", "lower_is_better": False}
        names = list(self.variants)
        few = {name: self.variants[name] for name in (*names[:1], *names[-1:])}
        return replace(self, variants=few, seeds=min(self.seeds, 2), is_shrunk=True, **plain)

    def config(self, changes: Mapping[str, Any]) -> TrainConfig:
        """Return the preset with changes.

        What shrinks comes last: variants that it makes alike are one program less to compile.
        """
        config = changed(changed(presets.get(self.preset), self.settings), changes)
        config = changed(config, self._tiny(config) if self.is_shrunk else {})
        # There and back: values of a wrong type do not pass.
        config = config_json.from_json(config_json.to_json(config), "the study")
        config_checks.check(config)
        return config

    def _tiny(self, config: TrainConfig) -> Mapping[str, Any]:
        return self.tiny or (tiny.PPO if config.algo == "ppo" else tiny.REPLAY)

    def cells(self) -> dict[Cell, TrainConfig]:
        """Return the configuration of every variant and seed."""
        found = {}
        for name, changes in {PLAIN: {}, **self.variants}.items():
            config = self.config(changes)
            for seed in range(self.seeds):
                found[name, seed] = replace(config, seed=seed)
        return found


def load(name: str) -> Study:
    """Return the study of a file in experiments/studies."""
    known = sorted(p.stem for p in (HERE / "studies").glob("*.py") if p.stem != "__init__")
    if name not in known:
        hint = nearest(name, known)
        raise UserError(f"Unknown study '{name}'.{hint} Known: {', '.join(known)}.")
    return importlib.import_module(f"experiments.studies.{name}").STUDY


def folder(name: str, given: Path | None, *, tiny: bool) -> Path:
    """Return where a study's results go, and make it; those of --tiny go beside the real ones."""
    out = given or HERE / "results" / (f"{name}-tiny" if tiny else name)
    out.mkdir(parents=True, exist_ok=True)
    return out


def grid(axes: Mapping[str, tuple]) -> dict[str, dict[str, Any]]:
    """Return a variant for every combination of values."""
    return {
        ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in changes.items()): changes
        for changes in combinations(axes)
    }
