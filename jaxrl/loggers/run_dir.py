"""The run folder: its name, its lock, and its settings and provenance."""

import contextlib
import errno
import fcntl
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxrl.config import TrainConfig, env_names, serialization, settings, validate, variants, zoo
from jaxrl.errors import UserError
from jaxrl.loggers import lock_file
from jaxrl.utils import atomic_io, user_code

PACKAGES = ("jaxrl", "jax", "jaxlib", "flax", "optax", "brax", "mujoco-mjx", "orbax-checkpoint")
_NO_FLOCK = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.ENOSYS)
MEMBERS = "members.json"  # of a population: the names of its members' folders


def create(config: TrainConfig, members: Sequence[TrainConfig] = ()) -> Path:
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
        last = f"-{members[-1].seed}" if members else ""
        name = config.preset.replace(":", "-")  # as in playground:CheetahRun
        path = Path("runs") / f"{name}-s{config.seed}{last}-{stamp}"
    try:
        str(path.absolute()).encode()
        if config.run_dir is None:
            return make_unique(path)
        path.mkdir(parents=True, exist_ok=True)
    except UnicodeEncodeError as error:
        raise UserError(
            f"--run-dir: '{path}' is not readable as {sys.getfilesystemencoding()}: set "
            "PYTHONUTF8=1, or choose a name of ASCII characters."
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"--run-dir: cannot create '{path}': {why}.") from error
    return path


def make_unique(path: Path) -> Path:
    """Make a folder of this name, or with a number appended: runs may start in the same second."""
    candidate, number = path, 2
    while True:
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError:
            candidate, number = path.with_name(f"{path.name}-{number}"), number + 1


@contextlib.contextmanager
def locked(path: Path) -> Iterator[lock_file.HeartbeatLock | None]:
    """Lock the folder for this process.

    The kernel releases its lock when the process ends, even if killed: yields None. On a file
    system without flock, a lock file with a heartbeat takes its place.
    """
    atomic_io.check_folder(path)
    try:
        descriptor = atomic_io.opened(path / ".lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UserError(f"The run folder '{path}' is not writable: {error.strerror}.") from error
    try:
        if _flock(path, descriptor):
            atomic_io.remove_drafts(path)
            yield None
        else:
            print(
                f"note: the file system of '{path}' has no flock: a lock file with a heartbeat "
                f"({lock_file.NAME}) takes its place",
                flush=True,
            )
            with lock_file.held(path) as lock:
                atomic_io.remove_drafts(path)
                yield lock
    finally:
        os.close(descriptor)


def _flock(path: Path, descriptor: int) -> bool:
    """Take the kernel's lock; return False if the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            text = f"Another process is training in '{path}'; wait for it to end."
            raise UserError(text) from error
        if error.errno in _NO_FLOCK:
            return False
        raise UserError(f"The run folder '{path}' cannot be locked: {error.strerror}.") from error
    return True


def describe(path: Path, config: TrainConfig, members: Sequence[TrainConfig] = ()) -> None:
    """Write settings, command, versions, devices and git state into the folder."""
    provenance_json = json.dumps(provenance(), indent=2)
    for folder in (path, *of_members(path, members)):
        folder.mkdir(exist_ok=True)
        atomic_io.write_text(folder / "provenance.json", provenance_json)
    add_command(path, members)
    write_settings(path, config, members)


def add_command(path: Path, members: Sequence[TrainConfig] = ()) -> None:
    """Add the command line of this process to those that a run was trained by."""
    for folder in (path, *of_members(path, members)):
        file = folder / "command.txt"
        earlier = ""
        with contextlib.suppress(UserError):  # a damaged one must not stop the run
            earlier = atomic_io.read_text(file) if file.is_file() else ""
        atomic_io.write_text(file, f"{earlier}{command_line()}\n")


def write_settings(path: Path, config: TrainConfig, members: Sequence[TrainConfig] = ()) -> None:
    """Write the settings of a run, and those of every member into its own folder."""
    for folder, member in zip(of_members(path, members), members, strict=True):
        atomic_io.write_text(folder / "config.json", serialization.to_json(member))
    if members:
        atomic_io.write_text(path / MEMBERS, json.dumps(variants.folder_names(members), indent=2))
    atomic_io.write_text(path / "config.json", serialization.to_json(config))


def of_members(path: Path, members: Sequence[TrainConfig]) -> list[Path]:
    """Return the folders of a population's members; each is that of an ordinary run."""
    return [path / name for name in variants.folder_names(members)] if members else []


def read_members(path: Path, **allowed: Any) -> list[TrainConfig]:
    """Return the settings of a population's members, as `read_config`; none of an ordinary run."""
    return [read_config(path / name, **allowed) for name in member_names(path)]


def member_names(path: Path) -> list[str]:
    """Return the names of a population's members, which are folders of it; [] of other runs."""
    file = path / MEMBERS
    if not file.is_file():
        return []
    try:
        names = json.loads(atomic_io.read_text(file))
        inside = [Path(name).name == name and name != ".." for name in names]
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{file} is not a list of folders: {error}") from error
    if not (names and all(inside)):
        raise UserError(f"{file} must name folders beside it, not {names}.")
    return names


def population_of(path: Path) -> Path | None:
    """Return the run that a folder is a member of, if it is one."""
    above = path.resolve().parent
    return above if path.resolve().name in member_names(above) else None


def command_line() -> str:
    """Return the command line that started this process."""
    program = Path(sys.argv[0])
    start = f"python {shlex.quote(str(program))}"
    if (program.parent.name, program.name) == ("jaxrl", "train.py"):
        start = "python -m jaxrl.train"
    elif program.name == "jaxrl" or (program.parent.name, program.name) == ("jaxrl", "__main__.py"):
        start = "jaxrl"
    typed = " ".join([start, *(shlex.quote(a) for a in sys.argv[1:])])
    return os.fsencode(typed).decode("utf-8", "replace")  # in an ASCII locale, Python escapes bytes


def device_names() -> list[str]:
    """Return the local devices, as provenance records them."""
    import jax  # only here: reading run folders needs no JAX

    return [f"{d.platform}: {d.device_kind}" for d in jax.local_devices()]


def provenance() -> dict:
    """Return versions, devices and the state of the code."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "devices": device_names(),
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
        ).stdout.rstrip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "changed": git("status", "--short").splitlines(),
        }
    except (OSError, subprocess.SubprocessError):
        return {}


def read_config(
    path: Path,
    env: str | None = None,
    randomize: str | None = None,
    network: str | None = None,
    training: Mapping[str, str | None] | None = None,
) -> TrainConfig:
    """Read the settings of an existing run.

    A file must not decide which code is imported. The user names such code again: `env`,
    `randomize` and `network` are the values of --env, --task.randomize and --network.module on the
    command line. `training` has those of the flags that only training reads, as --algo; a caller
    that does not train gives none. A run that learnt from recorded episodes alone may be given any
    environment.
    """
    if zoo.is_name(path):
        raise UserError(
            f"'{path}' is a policy, not a run to continue: train from it with --init-from {path}."
        )
    if not path.exists():
        raise UserError(f"'{path}' does not exist.")
    if not path.is_dir():
        raise UserError(f"'{path}' is not a run folder but a file.")
    file = path / "config.json"
    if not file.is_file():
        raise UserError(f"'{path}' is not a run folder: it has no config.json.")
    atomic_io.check_folder(path)
    config = serialization.from_json(atomic_io.read_text(file), str(file))
    validate.check_ranges(config, str(file))
    if config.env == env_names.OFFLINE and env is not None:  # a policy of recorded episodes
        config = replace(config, env=env)
    allowed = {"--env": env, "--task.randomize": randomize, "--network.module": network}
    _check_code(path, config, allowed | dict(training or {}))
    return config


def _check_code(path: Path, config: TrainConfig, allowed: dict[str, str | None]) -> None:
    """Raise a UserError unless the user named all code that a run imports, and no other."""
    named = settings.imported_code(config)
    refused = {f: name for f, name in named.items() if f in allowed and allowed[f] != name}
    if user_code.is_unnamed(refused.get("--env", "")):
        raise UserError(f"'{path}': {user_code.GIVE_AGAIN}")
    if refused:
        flags = " ".join(f"{flag} {shlex.quote(name)}" for flag, name in refused.items())
        raise UserError(f"'{path}' names code of your own. To allow its import, add {flags}")
    for flag, name in allowed.items():
        theirs = settings.get(config, flag.removeprefix("--").replace("-", "_"))
        if name not in (None, theirs):
            raise UserError(f"{flag} {name}: the run in '{path}' has {flag} {theirs}.")
