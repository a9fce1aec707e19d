"""A study: one preset, some changes to it, some seeds.

    STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, seeds=5)

A variant is a name and the settings it changes, by their dotted names. The variant
without changes, `base`, is added. Variants that differ only in traced settings, and all seeds, are
trained in one program.
"""

import importlib.util
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.config import TrainConfig, env_names, presets, serialization, settings, validate
from jaxrl.config.overrides import changed, combinations
from jaxrl.errors import UserError, exit_status, nearest
from jaxrl.studies import smoke_configs

BASE = "base"  # the variant without changes
Cell = tuple[str, int]  # variant, seed


class Between(NamedTuple):
    """The range of a searched setting, on a linear or a logarithmic scale."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Study:
    """A preset, its variants and seeds, and the metric that compares them."""

    preset: str
    variants: Mapping[str, Mapping[str, Any]]
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)  # for all variants
    metric: str = "eval/mean_reward"  # any that an evaluation logs
    lower_is_better: bool = False
    # Settings to search, each a Between or a tuple of choices; see jaxrl/studies/search.py.
    search: Mapping[str, Between | tuple[Any, ...]] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)  # settings of a smoke test
    is_smoke_test: bool = False

    def __post_init__(self) -> None:
        """Raise a UserError for reserved names and for no seeds."""
        if self.seeds < 1:
            raise UserError(f"A study's `seeds` must be at least 1, not {self.seeds}.")
        if BASE in self.variants:
            raise UserError(f"`variants`: '{BASE}' is the variant without changes: rename yours.")
        for changes in (self.settings, self.search, *self.variants.values()):
            if "seed" in changes:
                raise UserError("'seed' cannot be set in a study: use `seeds`, their number.")
            if "preset" in changes:  # only a label: it changes no setting
                raise UserError("'preset' cannot be changed in a study: write another study.")

    def smoke_test(self) -> "Study":
        """Return a very small version, which only shows that the study runs.

        With a stand-in environment, it is compared by a metric that all environments have.
        """
        names = [*self.variants]
        few = {name: self.variants[name] for name in (*names[:1], *names[-1:])}
        small = replace(self, variants=few, seeds=min(self.seeds, 2), is_smoke_test=True)
        if "env" not in self.smoke:
            return small
        return replace(small, metric="eval/mean_reward", lower_is_better=False)

    def check_metric(self, metrics: Iterable[str]) -> None:
        """Raise a UserError if evaluations do not have the metric of the study."""
        names = sorted(metrics)
        # Metrics of successful episodes are missing until there is a success.
        if self.metric not in {*names, *(name.replace("_all", "_succ") for name in names)}:
            raise UserError(
                f"`metric`: evaluations have no '{self.metric}'.{nearest(self.metric, names)} "
                f"There are: {', '.join(names)}."
            )

    def config(self, changes: Mapping[str, Any]) -> TrainConfig:
        """Return the preset with changes.

        Settings of a smoke test come last: variants that they make equal share a program.
        """
        config = changed(changed(presets.get(self.preset), self.settings), changes)
        config = changed(config, self.smoke_settings(config))
        # A round trip through JSON checks the types of values.
        config = serialization.from_json(serialization.to_json(config), "the study")
        validate.check(config)
        if env_names.is_gymnasium(config.env) or (config.offline and not config.evaluates):
            raise UserError(
                f"'{config.env}' does not run on the device alone, so its runs cannot share a "
                "program, as a study requires. Train them one after another with "
                f"`python -m jaxrl.train {self.preset} --seed N`, and compare them with "
                "`python -m jaxrl.report`."
            )
        return config

    def smoke_settings(self, config: TrainConfig) -> Mapping[str, Any]:
        """Return the settings of a smoke test; none for the study itself."""
        default = smoke_configs.OF_SECTION[config.algo_section]
        return (self.smoke or default) if self.is_smoke_test else {}

    def cells(self) -> dict[Cell, TrainConfig]:
        """Return the configuration of every variant and seed."""
        cells = {}
        for name, changes in {BASE: {}, **self.variants}.items():
            config = self.config(changes)
            for seed in range(self.seeds):
                cells[name, seed] = replace(config, seed=seed)
        return cells


def find(name: str) -> Path:
    """Return the file of a study: a path to it, or its name in a folder `studies`.

    That folder is looked for, also under `experiments`, in the current folder and those above it.
    """
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise UserError(f"There is no file '{name}'.")
        return Path(name)
    known: dict[str, Path] = {}
    for folder in (Path.cwd(), *Path.cwd().parents):
        for place in (folder / "studies", folder / "experiments" / "studies"):
            known = {path.stem: path for path in place.glob("*.py")} | known
    known.pop("__init__", None)
    if name not in known:
        hint = nearest(name, known)
        found = f"Known: {', '.join(sorted(known))}." if known else "Name a file, as my_study.py."
        raise UserError(f"Unknown study '{name}'.{hint} {found}")
    return known[name]


def load(name: str) -> Study:
    """Return the study of a file: its path, or its name in a folder `studies`."""
    path = find(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise UserError(f"'{path}' has no study: write STUDY = Study(...).")
    return study


def results_folder(name: str) -> Path:
    """Return where the results of a study belong: beside its folder `studies`, or its file."""
    place = find(name).parent
    return (place.parent if place.name == "studies" else place) / "results" / Path(name).stem


def at_least_one(**numbers: int) -> None:
    """Raise a UserError for numbers below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1, not {number}.")


def status(work: Callable[[], None]) -> int:
    """Run a command and return its exit status; when interrupted, say how to continue."""

    def interruptible() -> int | None:
        try:
            return work()
        except KeyboardInterrupt as interrupt:
            print("\nStopped. The same command continues from here.", file=sys.stderr)
            return 128 + (interrupt.args or (signal.SIGINT,))[0]

    return exit_status(interruptible)


def flags(changes: Mapping[str, Any]) -> str:
    """Return settings as flags of `jaxrl.train`."""
    return " ".join(_flag(name, value) for name, value in changes.items())


def _flag(name: str, value: Any) -> str:
    flag = settings.flag(name)
    if isinstance(value, bool):
        section, dot, last = flag.removeprefix("--").rpartition(".")
        return flag if value else f"--{section}{dot}no-{last}"
    values = value if isinstance(value, tuple | list) else (value,)
    return shlex.join([flag, *map(str, values)])


def folder(name: str, out: Path | None, *, smoke: bool) -> Path:
    """Make and return the folder of results; those of a smoke test have their own."""
    if out is None:
        out = results_folder(name)
        out = out.with_name(f"{out.name}-smoke") if smoke else out
    out.mkdir(parents=True, exist_ok=True)
    return out


def grid(axes: Mapping[str, tuple]) -> dict[str, dict[str, Any]]:
    """Return one variant per combination of values."""
    return {
        ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in changes.items()): changes
        for changes in combinations(axes)
    }
