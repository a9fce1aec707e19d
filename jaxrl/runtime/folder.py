"""The run folder: its name, its lock, and what is written into it once."""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from jaxrl import config_json
from jaxrl.config import TrainConfig
from jaxrl.envs import names
from jaxrl.errors import UserError
from jaxrl.runtime import files

PACKAGES = ("jaxrl", "jax", "jaxlib", "flax", "optax", "brax", "mujoco-mjx", "orbax-checkpoint")


def create(config: TrainConfig) -> Path:
    """Make a new, empty run folder; never reuse one that holds a run."""
    if config.run_dir is not None:
        path = Path(config.run_dir)
        if (path / "config.json").exists():
            raise UserError(
                f"--run-dir: '{path}' already holds a run. Continue it with --resume {path}, "
                "or choose another folder."
            )
    else:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = _unused(Path("runs") / f"{config.preset}-s{config.seed}-{stamp}")
    try:
        path.mkdir(parents=True, exist_ok=config.run_dir is not None)
    except OSError as error:
        raise UserError(f"--run-dir: cannot create '{path}': {error.strerror}.") from error
    return path


def _unused(path: Path) -> Path:
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second process out of the folder; the lock goes with the process, even if killed."""
    try:
        file = open(path / ".lock", "w")  # noqa: SIM115 - held open for the whole run
    except OSError as error:
        raise UserError(f"The run folder '{path}' is not writable: {error.strerror}.") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise UserError(f"Another process is training in '{path}'; wait for it to end.") from error
    try:
        yield
    finally:
        file.close()


def describe(path: Path, config: TrainConfig) -> None:
    """Record what is run: settings, command, versions, devices, git state."""
    files.write_text(path / "config.json", config_json.to_json(config))
    files.write_text(path / "command.txt", command_line() + "\n")
    files.write_text(path / "provenance.json", json.dumps(_provenance(), indent=2))


def command_line() -> str:
    """Return the command as a person would type it again."""
    program = Path(sys.argv[0])
    ours = (program.parent.name, program.name) == ("jaxrl", "train.py")
    start = "python -m jaxrl.train" if ours else f"python {shlex.quote(str(program))}"
    return " ".join([start, *(shlex.quote(a) for a in sys.argv[1:])])


def _provenance() -> dict:
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.local_devices()],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "git": _git_state(),
    }


def _git_state() -> dict:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "changed": git("status", "--short").split("\n")}
    except (OSError, subprocess.SubprocessError):
        return {}


def read_config(path: Path, allowed_env: str | None = None) -> TrainConfig:
    """Read the settings of an existing run.

    A file must not decide which code is imported: a user's own environment has to be named again.
    """
    if not path.exists():
        raise UserError(f"'{path}' does not exist.")
    if not path.is_dir():
        raise UserError(f"'{path}' is not a run folder but a file.")
    file = path / "config.json"
    if not file.is_file():
        raise UserError(f"'{path}' is not a run folder: it has no config.json.")
    try:
        config = config_json.from_json(file.read_text(), str(file))
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a text file: {error}") from error
    if names.imports_code(config.env) and allowed_env != config.env:
        raise UserError(
            "This run uses an environment of your own; allow its code to be imported by adding "
            f"--env {config.env}"
        )
    return config
