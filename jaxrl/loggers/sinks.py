"""Metric sinks: functions of (environment steps, flat dict of metrics).

Most get a row for each cycle. Those of single iterations get the loss of a learnt reward.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

from jaxrl.config import TrainConfig, settings
from jaxrl.errors import UserError, install
from jaxrl.loggers import metrics_log
from jaxrl.loggers.tensorboard import EventFile
from jaxrl.utils import atomic_io, user_code

Sink = Callable[[int, dict[str, float]], None]
_MLFLOW_BATCH = 100  # parameters in one request
ITERATIONS = "iterations.jsonl"  # rows are numbered by iterations, not by steps


class Sinks(NamedTuple):
    """Where a run writes its metrics."""

    cycle: list[Sink]  # (environment steps, row of a cycle)
    iteration: list[Sink]  # (number of the iteration, its metrics)
    uploads: Sequence[Callable[[Path], None]] = ()  # of a file with the final policy


class JsonLines:
    """Append one JSON object per point; on resume, first drop the points that will be repeated.

    The file is opened at the first point, or by `open`.
    """

    def __init__(
        self,
        path: Path,
        stack: contextlib.ExitStack,
        resumed_at: int | None,
        stride: int | None = None,  # steps between two points, if none may be missing
    ) -> None:
        self.path, self._stack = path, stack
        self._resumed_at, self._stride = resumed_at, stride
        self._file: IO[str] | None = None
        self.remarks: list[str] = []  # problems of the log of a resumed run

    def open(self) -> IO[str]:
        """Open the file if it is not, and return it."""
        if self._file is None:
            if self._resumed_at is not None:
                self.remarks = _truncate_log(self.path, self._resumed_at, self._stride)
            self._file = self._stack.enter_context(atomic_io.appending(self.path))
        return self._file

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        """Write one point."""
        file = self.open()
        try:
            file.write(_line({"step": step} | metrics))
            file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):  # its buffer cannot be written either
                file.close()
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def contents(self) -> str:
        """Return all that was written, even if the file was deleted since."""
        if self._file is None:
            return ""
        self._file.seek(0)
        return self._file.read()


def jsonl(
    path: Path,
    stack: contextlib.ExitStack,
    resumed_at: int | None,
    stride: int | None = None,
) -> JsonLines:
    """Open a log with one JSON object per point."""
    sink = JsonLines(path, stack, resumed_at, stride)
    sink.open()
    return sink


def _line(row: dict[str, float]) -> str:
    """Return a point as a line; non-finite values are null, since JSON has no NaN."""
    return json.dumps({k: v if math.isfinite(v) else None for k, v in row.items()}) + "\n"


def by_iteration(sink: Sink, steps: int) -> Sink:
    """Return a sink of iterations, of `steps` each, that writes to one of cycles."""

    def write(iteration: int, metrics: dict[str, float]) -> None:
        sink(iteration * steps, {iteration_name(name): metrics[name] for name in metrics})

    return write


def iteration_name(name: str) -> str:
    """Return the name of a metric of single iterations where others are logged: iterations/..."""
    return f"iterations/{name.rpartition('/')[2]}"


def _truncate_log(path: Path, step: int, stride: int | None) -> list[str]:
    """Drop rows after a step and damaged ones, of which a copy stays; return its problems."""
    data = path.read_bytes() if path.exists() else b""
    log = metrics_log.parse(data)
    if log.damaged:
        with atomic_io.replacing(backup_path(path)) as file:
            file.write(data)
    rows = [row for row in log.rows if row["step"] <= step]
    if data:
        atomic_io.write_text(path, "".join(map(_line, rows)))
    return metrics_log.remarks(log, stride, step, path)


def backup_path(path: Path) -> Path:
    """Return an unused path for a copy of a damaged file."""
    number = 1
    while (backup := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return backup


def read_jsonl(path: Path) -> list[dict[str, float]]:
    """Read the points of a run, without rows that are damaged or cut off by a crash."""
    return metrics_log.read(path).rows


def tensorboard(path: Path, stack: contextlib.ExitStack, resumed_at: int | None) -> Sink:
    """Write TensorBoard scalars; after a resume the repeated steps replace the old ones."""
    purge, suffix = (None, "") if resumed_at is None else (resumed_at + 1, f".{resumed_at}")
    events = EventFile(path, suffix, purge)
    stack.callback(events.close)
    return lambda step, metrics: events.scalars(step, _only_finite(metrics))


def _only_finite(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def hyperparameters(path: Path, config: dict[str, object], result: dict[str, float]) -> None:
    """Write TensorBoard's HPARAMS tab: settings and results."""
    with contextlib.closing(EventFile(path, ".hparams")) as events:
        from tensorboardX.summary import hparams

        plain = {
            k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in config.items()
        }
        # Separate names: TensorBoard also draws them, as one point at step 0.
        results = {f"hparam/{name.partition('/')[2]}": value for name, value in result.items()}
        for part in hparams(plain, results):
            events.summary(part)
        events.scalars(0, results)


def wandb(
    config: TrainConfig, path: Path, stack: contextlib.ExitStack
) -> tuple[Sink, Callable[[Path], None]]:
    """Open a run of Weights & Biases, the same one after a resume.

    Returns a sink, and a function that uploads a policy as an artifact.
    """
    import wandb as client  # pyright: ignore[reportMissingImports]

    run = client.init(
        project=config.log.wandb_project,
        id=_identity(path),
        name=path.name,
        dir=str(path),
        config=dataclasses.asdict(config),
        resume="allow",
    )
    stack.callback(run.finish)

    def upload(file: Path) -> None:
        name = "-".join([path.name, *file.relative_to(path).parent.parent.parts, "policy"])
        artifact = client.Artifact(name, type="model")
        artifact.add_file(str(file))
        run.log_artifact(artifact)

    return lambda step, metrics: run.log(metrics, step=step), upload


def _identity(path: Path) -> str:
    """Return a name of a run that a resume keeps, even if its folder was moved."""
    return hashlib.blake2b((path / "provenance.json").read_bytes(), digest_size=6).hexdigest()


def mlflow(
    config: TrainConfig, path: Path, stack: contextlib.ExitStack
) -> tuple[Sink, Callable[[Path], None]]:
    """Open a run of MLflow, the same one after a resume.

    Returns a sink, and a function that uploads a policy.
    """
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
    from mlflow.entities import Metric, Param  # pyright: ignore[reportMissingImports]

    client, name, tag = MlflowClient(), config.log.mlflow_experiment, "jaxrl.run"
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    found = client.search_runs([experiment], f"tags.`{tag}` = '{_identity(path)}'")
    run = found[0] if found else client.create_run(experiment, run_name=path.name)
    number = run.info.run_id
    if not found:
        client.set_tag(number, tag, _identity(path))
        values = settings.values(config)
        params = [Param(path, str(value)) for path, value in values.items()]
        for first in range(0, len(params), _MLFLOW_BATCH):
            client.log_batch(number, params=params[first : first + _MLFLOW_BATCH])
    stack.callback(client.set_terminated, number)

    def log(step: int, metrics: dict[str, float]) -> None:
        now = round(1000 * time.time())
        rows = [Metric(name, value, now, step) for name, value in _only_finite(metrics).items()]
        client.log_batch(number, metrics=rows)

    return log, lambda file: client.log_artifact(number, str(file))


def custom(config: TrainConfig, path: Path, stack: contextlib.ExitStack) -> Sink:
    """Open the sink of --log.sink; its `close`, if it has one, is called at the end."""
    sink = user_code.load("--log.sink", config.log.sink or "")(config, path)
    if not callable(sink):
        raise UserError(
            f"--log.sink: '{config.log.sink}' returned {type(sink).__name__}: return a function of "
            "(environment steps, row of the log)."
        )
    if close := getattr(sink, "close", None):
        stack.callback(close)
    return cast(Sink, sink)


def check_extras(config: TrainConfig) -> None:
    """Raise a UserError for a missing package or sink, before anything is compiled."""
    if config.log.sink:
        user_code.load("--log.sink", config.log.sink)
    if config.log.wandb and importlib.util.find_spec("wandb") is None:
        raise UserError(f"--log.wandb needs the package wandb: {install('wandb')}.")
    if config.log.mlflow and importlib.util.find_spec("mlflow") is None:
        raise UserError(f"--log.mlflow needs the package mlflow: {install('mlflow')}.")


def open_sinks(
    config: TrainConfig, folder: Path, stack: contextlib.ExitStack, resumed_at: int | None
) -> Sinks:
    """Open every sink that writes to disk or network."""
    steps = config.steps_per_iteration
    others: list[Sink] = []
    if config.log.tensorboard:
        others.append(tensorboard(folder / "tensorboard", stack, resumed_at))
    uploads = []
    services = {wandb: config.log.wandb, mlflow: config.log.mlflow}
    for open_service in (service for service, chosen in services.items() if chosen):
        sink, upload = open_service(config, folder, stack)
        others.append(sink)
        uploads.append(upload)
    resumed_iterations = None if resumed_at is None else resumed_at // steps
    return Sinks(
        cycle=[
            jsonl(folder / "metrics.jsonl", stack, resumed_at, config.iterations * steps),
            *others,
            *([custom(config, folder, stack)] if config.log.sink else []),
        ],
        iteration=[
            JsonLines(folder / ITERATIONS, stack, resumed_iterations),  # created at its first point
            *(by_iteration(sink, steps) for sink in others),
        ],
        uploads=uploads,
    )
