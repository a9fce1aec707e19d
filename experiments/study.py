"""A study: one preset, some changes to it, some seeds.

    STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, seeds=5)

Every variant is a name and the settings it changes, by their dotted names; "as it is" is added.
What can be an array of the training state is trained in one program for all variants and seeds.
"""

import importlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments import smoke_configs
from jaxrl.config import TrainConfig, env_names, presets, serialization, settings, validate
from jaxrl.config.overrides import changed, combinations
from jaxrl.errors import UserError, exit_status, nearest

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

    def __post_init__(self) -> None:
        """Refuse what would be run as something else than it says."""
        if self.seeds < 1:
            raise UserError(f"A study's `seeds` must be at least 1, not {self.seeds}.")
        if PLAIN in self.variants:
            raise UserError(f"`variants`: '{PLAIN}' is what has no changes: rename yours.")
        for changes in (self.settings, self.search, *self.variants.values()):
            if "seed" in changes:
                raise UserError("'seed' cannot be set in a study: say by `seeds` how many to run.")
            if "preset" in changes:  # it is a label, and brings none of that preset's settings
                raise UserError("'preset' cannot be changed in a study: write one for the other.")

    def shrunk(self) -> "Study":
        """Return some of it in next to nothing, which can be run but not be learnt from.

        A task that stands in for another has not all of its figures, only those that any task has.
        """
        kept = [*self.variants]
        few = {name: self.variants[name] for name in (*kept[:1], *kept[-1:])}
        small = replace(self, variants=few, seeds=min(self.seeds, 2), is_shrunk=True)
        if "env" not in self.tiny:
            return small
        return replace(small, metric="eval/mean_reward", lower_is_better=False)

    @property
    def base(self) -> str:
        """What to call the variant without changes: settings for all make it another preset."""
        return "base" if self.settings else PLAIN

    def check_metric(self, figures: Iterable[str]) -> None:
        """Refuse to be judged by what evaluations do not give."""
        there = sorted(figures)
        # Nothing is said of successful episodes until there are some.
        if self.metric not in {*there, *(name.replace("_all", "_succ") for name in there)}:
            raise UserError(
                f"`metric`: evaluations give no '{self.metric}'.{nearest(self.metric, there)} "
                f"There are: {', '.join(there)}."
            )

    def config(self, changes: Mapping[str, Any]) -> TrainConfig:
        """Return the preset with changes.

        What shrinks comes last: variants that it makes alike are one program less to compile.
        """
        config = changed(changed(presets.get(self.preset), self.settings), changes)
        config = changed(config, self.shrinking(config))
        # There and back: values of a wrong type do not pass.
        config = serialization.from_json(serialization.to_json(config), "the study")
        validate.check(config)
        if env_names.is_hosted(config.env) or config.offline:
            raise UserError(
                f"Runs of '{config.env}' do not happen on the device alone, so they cannot share a "
                "program, as those of a study do: train them one after the other by "
                f"`python -m jaxrl.train {self.preset} --seed N`, and compare them by "
                "`python -m jaxrl.report`."
            )
        return config

    def shrinking(self, config: TrainConfig) -> Mapping[str, Any]:
        """Return what makes a configuration small, where the study is."""
        usual = smoke_configs.PPO if config.algo == "ppo" else smoke_configs.REPLAY
        return (self.tiny or usual) if self.is_shrunk else {}

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
    found = getattr(importlib.import_module(f"experiments.studies.{name}"), "STUDY", None)
    if not isinstance(found, Study):
        raise UserError(f"experiments/studies/{name}.py has no study: write STUDY = Study(...).")
    return found


def at_least_one(**numbers: int) -> None:
    """Refuse flags that ask for nothing."""
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1, not {number}.")


def status(work: Callable[[], None]) -> int:
    """Do the work of a command; one that is interrupted says how to go on."""

    def interruptible() -> int | None:
        try:
            return work()
        except KeyboardInterrupt as asked:
            print("\nStopped. What was done is kept: the same command goes on.", file=sys.stderr)
            return 128 + (asked.args or (signal.SIGINT,))[0]

    return exit_status(interruptible)


def flags(changes: Mapping[str, Any]) -> str:
    """Return settings as `jaxrl.train` is told them."""
    return " ".join(_flag(name, value) for name, value in changes.items())


def _flag(name: str, value: Any) -> str:
    flag = settings.flag(name)
    if isinstance(value, bool):
        section, dot, last = flag.removeprefix("--").rpartition(".")
        return flag if value else f"--{section}{dot}no-{last}"
    values = value if isinstance(value, tuple | list) else (value,)
    return shlex.join([flag, *map(str, values)])


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
