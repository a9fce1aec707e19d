"""Search the settings of a study's preset: `jaxrl search STUDY --trials 32`.

Several trials are members of one program. Finished trials are stored line by line, and the same
command continues an interrupted search. Needs optuna: pip install -e '.[search]'.

With `--pbt N` settings change during training instead, see `jaxrl.studies.pbt`.
"""

import contextlib
import hashlib
import importlib
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from jaxrl.config import TrainConfig, serialization, settings, validate
from jaxrl.errors import UserError, first_line, install
from jaxrl.studies import study
from jaxrl.studies.study import Between, Study
from jaxrl.utils import command_line, stats
from jaxrl.utils.formatting import plural

_WAIT = 5.0  # seconds before looking again, while others run the last trials
_BEAT = 20  # seconds between heartbeats in a database
_LOST = 120  # seconds without one, after which a trial has failed
_PATIENCE = 600.0  # seconds without a finished trial, after which those of others are repeated
_DEFAULTS = {"trials": 32, "at_once": 8, "seeds": 1}


@dataclass(frozen=True)
class SearchArgs:
    """Search the settings of a study's preset by trials, or by population-based training."""

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """Python file, or its name in studies/."""
    trials: int | None = None
    """Total number of trials; 32 if not given."""
    at_once: int | None = None
    """Trials before the next are chosen; 8 if not given."""
    seeds: int | None = None
    """Runs of each trial; 1 if not given."""
    storage: str | None = None
    """Trials shared by several searches: a file on a shared disk, or a URL of optuna."""
    pbt: int | None = None
    """Population-based training of this many members, instead of trials."""
    smoke: bool = False
    """Smoke test: very small runs."""
    out: Path | None = None
    """Folder; results/STUDY beside studies/ if not given."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return study.status(
        lambda: _command(command_line.parse(SearchArgs, arguments, "studies.search"))
    )


def _command(args: SearchArgs) -> None:
    numbers = {name: getattr(args, name) for name in _DEFAULTS}
    given = {name: number for name, number in numbers.items() if number is not None}
    if args.pbt is not None and given:
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise UserError(f"{flag} belongs to trials, which --pbt replaces: leave one of them out.")
    study.at_least_one(**given)
    numbers = _DEFAULTS | given
    chosen = study.load(args.study)
    if not chosen.search:
        raise UserError(f"The study '{args.study}' has no `search`: add settings to search.")
    chosen = replace(chosen.smoke_test() if args.smoke else chosen, seeds=numbers["seeds"])
    out, name = (
        study.folder(args.study, args.out, smoke=args.smoke),
        Path(args.study).stem,
    )
    if args.pbt is None:
        sizes = numbers["trials"], numbers["at_once"]
        return execute(name, chosen, out, *sizes, storage=args.storage)
    if args.storage:
        raise UserError("--storage belongs to trials, which --pbt replaces: leave one of them out.")
    from jaxrl.studies import pbt

    check_ranges(chosen)
    pbt.execute(name, chosen, out, args.pbt)


def execute(
    name: str, chosen: Study, out: Path, trials: int, at_once: int, storage: str | None = None
) -> None:
    """Run trials until there are `trials` of them, then write their results.

    With a `storage`, other processes may do the same: trials that they run are not repeated.
    """
    check_ranges(chosen)
    optuna = _optuna()
    searched = _opened(optuna, chosen, out / "search.jsonl", storage)
    before, since, waiting = -1, time.monotonic(), False
    # Processes may try the same settings at the same time.
    runs = out / "runs" / (f"{socket.gethostname()}-{os.getpid()}" if storage else "")
    while (finished := len(_finished(searched))) < trials:
        before, since = finished, since if finished == before else time.monotonic()
        _fail_lost(optuna, searched)
        others = _running(searched) if storage and time.monotonic() - since < _PATIENCE else 0
        number = min(at_once, trials - finished - others)
        if number < 1:
            if not waiting:
                print(f"waiting for {plural(others, 'trial')} of other processes", flush=True)
            waiting = True
            time.sleep(_WAIT)
            continue
        waiting = False
        last = f" to {finished + number}" if number > 1 else ""
        print(f"trial {finished + 1}{last} of {trials}", flush=True)
        with _asked(optuna, searched, number) as asked:
            values = _tried(chosen, asked, runs)
        for trial, value in zip(asked, values, strict=True):
            usable = np.isfinite(value)
            # A trial that is invalid or diverged counts as finished.
            state = optuna.trial.TrialState
            searched.tell(trial, value if usable else None, None if usable else state.PRUNED)
    (out / "search.md").write_text(_table(name, chosen, _finished(searched)), encoding="utf-8")
    print(f"written to {out / 'search.md'}")


@contextlib.contextmanager
def _asked(optuna: Any, searched: Any, number: int) -> Iterator[list[Any]]:
    """Yield new trials, which fail if the block does: other searches must not wait for them."""
    asked: list[Any] = []
    try:
        asked.extend(searched.ask() for _ in range(number))
        with _heartbeats(searched._storage, [trial._trial_id for trial in asked]):
            yield asked
    except BaseException:
        for trial in asked:
            with contextlib.suppress(Exception):  # the error above is the one to show
                searched.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise


@contextlib.contextmanager
def _heartbeats(storage: Any, trials: list[int]) -> Iterator[None]:
    """Record heartbeats of trials, where the storage is a database: files have none."""
    if not getattr(storage, "get_heartbeat_interval", lambda: None)():
        yield
        return
    ended = threading.Event()

    def beat() -> None:
        while True:
            for trial in trials:
                with contextlib.suppress(Exception):  # a database that is away for a moment
                    storage.record_heartbeat(trial)
            if ended.wait(_BEAT):
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _fail_lost(optuna: Any, searched: Any) -> None:
    """Let trials of dead processes fail, where the storage has heartbeats."""
    optuna.storages.fail_stale_trials(searched)


def check_ranges(chosen: Study) -> None:
    """Raise a UserError for empty ranges and invalid choices."""
    base = chosen.config({})
    for name, choices in chosen.search.items():
        if isinstance(choices, Between):
            if not choices.low < choices.high or (choices.log and choices.low <= 0):
                rule = "0 < low < high" if choices.log else "low < high"
                raise UserError(f"`search`: {rule} must hold for '{name}', not {choices}.")
            choices = (choices.low, choices.high)
        if not isinstance(choices, tuple) or not choices:
            raise UserError(f"`search`: '{name}' needs a Between or a tuple of choices.")
        for value in choices:
            serialization.from_json(
                serialization.to_json(study.changed(base, {name: value})), "search"
            )


def _optuna() -> Any:
    try:
        optuna: Any = importlib.import_module("optuna")
        importlib.import_module("optuna.storages.journal")
    except ImportError as error:
        raise UserError(f"Searching needs optuna: {install('search')}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Filters for the whole process: `catch_warnings` in one thread undoes those of another.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # It is meant for `optimize`; here `_heartbeats` records them.
    warnings.filterwarnings("ignore", "Heartbeat of storage", UserWarning)
    return optuna


def _opened(optuna: Any, chosen: Study, journal: Path, shared: str | None = None) -> Any:
    """Open the search of these settings, and drop the trials that were interrupted.

    Its name is a hash of settings, ranges and number of seeds: other trials do not count.
    """
    key = serialization.to_json(chosen.config({})), chosen.metric, chosen.seeds, chosen.search
    searched = optuna.create_study(
        study_name=hashlib.sha256(repr(key).encode()).hexdigest(),
        storage=_storage(optuna, shared or str(journal)),
        direction="minimize" if chosen.lower_is_better else "maximize",
        load_if_exists=True,
    )
    # No repeated samples: a new seed after an interruption, and the constant liar for
    # concurrent trials.
    seed = len(searched.trials) if not shared else int.from_bytes(os.urandom(4), "big")
    searched.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    for trial in searched.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        if shared:  # another process may run it
            break
        searched.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return searched


def _storage(optuna: Any, name: str) -> Any:
    """Return where trials are stored: a database by its URL, or a file."""
    try:
        if "://" in name:
            return _database(optuna, name)
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(name)
        return optuna.storages.JournalStorage(backend)
    except Exception as error:
        raise UserError(f"--storage {name}: {first_line(error)}") from error


def _database(optuna: Any, url: str, attempts: int = 3) -> Any:
    """Open a database; searches that start together may all try to make its tables."""
    try:
        return optuna.storages.RDBStorage(url, heartbeat_interval=_BEAT, grace_period=_LOST)
    except Exception:
        if attempts == 1:
            raise
        time.sleep(0.5)
        return _database(optuna, url, attempts - 1)


def _running(searched: Any) -> int:
    """Return how many trials other processes are running."""
    return sum(trial.state.name == "RUNNING" for trial in searched.trials)


def _finished(searched: Any) -> list[Any]:
    """Return all trials that were not interrupted."""
    return [trial for trial in searched.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def _suggest(trial: Any, chosen: Study) -> dict[str, Any]:
    base, suggested = chosen.config({}), {}
    for name, choices in chosen.search.items():
        if isinstance(choices, Between):
            is_int = type(settings.get(base, name)) is int
            suggest = trial.suggest_int if is_int else trial.suggest_float
            suggested[name] = suggest(name, choices.low, choices.high, log=choices.log)
        else:
            suggested[name] = trial.suggest_categorical(name, choices)
    return suggested


def _tried(chosen: Study, asked: list[Any], folder: Path) -> list[float]:
    """Run all trials; return the interquartile mean of each over its seeds, NaN if invalid."""
    from jaxrl.studies import training
    from jaxrl.training import population

    runs: list[tuple[int, TrainConfig]] = []
    for place, trial in enumerate(asked):
        config = study.changed(chosen.config({}), _suggest(trial, chosen))
        if not validate.validate(config):
            runs += [(place, replace(config, seed=seed)) for seed in range(chosen.seeds)]
    reached: dict[int, list[float]] = {}
    for group in population.groups([config for _, config in runs]):
        started = training.start([runs[i][1] for i in group])
        curves = training.train(started, folder, chosen.check_metric)
        for i, curve in zip(group, curves, strict=True):
            last = curve.metrics.get(chosen.metric, [np.nan])[-1]
            reached.setdefault(runs[i][0], []).append(last)
    seeds = [np.array(reached.get(place, [np.nan])) for place in range(len(asked))]
    lower = chosen.lower_is_better
    return [float(stats.interquartile_mean(x, lower_is_better=lower)) for x in seeds]


def _table(name: str, chosen: Study, trials: list[Any]) -> str:
    """Return all trials as a table in Markdown, the best ones first."""
    from jaxrl.studies import report  # and matplotlib

    sign = 1.0 if chosen.lower_is_better else -1.0
    ordered = sorted(trials, key=lambda t: np.inf if t.value is None else sign * t.value)
    names = list(chosen.search)
    lines = [
        f"# Search of {name}",
        "",
        f"{plural(len(trials), 'trial')} of the preset `{chosen.preset}`, compared by the last "
        f"`{chosen.metric}`. {_best(chosen, ordered[0])}",
        "",
        f"| {chosen.metric} | {' | '.join(names)} |",
        "|---:" * (len(names) + 1) + "|",
    ]
    for trial in ordered:
        value = "-" if trial.value is None else report.short(trial.value)
        lines.append(f"| {value} | {' | '.join(_text(trial.params[n]) for n in names)} |")
    return "\n".join(lines) + "\n"


def _best(chosen: Study, trial: Any) -> str:
    """Return the command that trains with the best settings and those of all trials."""
    if trial.value is None:
        return "None of them finished."
    best = {n: float(_text(v)) if isinstance(v, float) else v for n, v in trial.params.items()}
    smoke = chosen.smoke_settings(chosen.config({}))
    flags = study.flags({**chosen.settings, **best, **smoke})
    return f"The best: `python -m jaxrl.train {chosen.preset} {flags}`"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
