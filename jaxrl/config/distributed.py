"""Several processes, by flags of `jaxrl.train` or by what a scheduler or launcher has set.

These are no settings of a run: the same run may continue on another number of processes.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxrl.errors import UserError, nearest

# Set by `python -m jaxrl.launch` for the processes it starts.
COORDINATOR, PROCESSES, PROCESS = "JAXRL_COORDINATOR", "JAXRL_PROCESSES", "JAXRL_PROCESS"
LAUNCHER = "JAXRL_LAUNCHER"  # its command, as far as --

HELP = """\
several processes (docs/scaling_out.md):
  --distributed auto|off        use the processes that a scheduler has started, or this one alone
                                (auto if there are several)
  --distributed.coordinator     HOST:PORT of process 0, where no scheduler names it
  --distributed.processes       number of processes
  --distributed.process         number of this process, from 0
  --distributed.heartbeat       seconds after which a silent process ends the others [60]
  --distributed.timeout         seconds to wait for all processes at the start [300]"""

# The variables of schedulers: number of tasks, and number of this one.
_SCHEDULERS = (
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("MPI", "PMI_SIZE", "PMI_RANK"),  # MPICH, Intel MPI
)
# The part after `--distributed.`
_FLAGS = ("coordinator", "processes", "process", "heartbeat", "timeout")


def flags() -> list[str]:
    """Return all flags."""
    return ["--distributed", *(f"--distributed.{name}" for name in _FLAGS)]


@dataclass(frozen=True)
class Distributed:
    """How this process finds the others."""

    coordinator: str | None = None  # None: JAX asks the scheduler
    processes: int | None = None
    process: int | None = None
    heartbeat: int = 60
    timeout: int = 300
    found_by: str = ""  # the scheduler that was detected, where no flag was given


def parse(
    words: list[str], environ: Mapping[str, str] = os.environ
) -> tuple[Distributed | None, list[str]]:
    """Return how to find other processes, None for a single one, and the other arguments."""
    given, rest = _split(words)
    mode = given.pop("", None)
    if mode not in (None, "auto", "off"):
        raise UserError(f"--distributed {mode}: use auto or off.")
    if mode == "off":
        if given:
            raise UserError(f"--distributed off: leave --distributed.{next(iter(given))} out.")
        return None, rest
    found = Distributed(
        heartbeat=_number("heartbeat", given.pop("heartbeat", "60")),
        timeout=_number("timeout", given.pop("timeout", "300")),
    )
    if not given and COORDINATOR in environ:
        named = zip(_FLAGS[:3], (COORDINATOR, PROCESSES, PROCESS), strict=True)
        given = {flag: environ.get(variable, "") for flag, variable in named}
    if given.keys() == {"coordinator"}:
        given |= _task(environ)
    if given:
        return _explicit(given, found), rest
    scheduler = detected(environ)
    if scheduler and _names_no_coordinator(environ):
        raise UserError(
            f"{scheduler}, but this MPI does not say where the first one is: give "
            "--distributed.coordinator HOST:PORT, its host and a free port, or --distributed off "
            "to train in each task alone."
        )
    if mode == "auto" or scheduler:
        return replace(found, found_by="" if mode == "auto" else scheduler), rest
    if words != rest:
        raise UserError(
            "--distributed.heartbeat and .timeout need several processes: add --distributed auto, "
            "or --distributed.coordinator, .processes and .process."
        )
    return None, rest


def detected(environ: Mapping[str, str]) -> str:
    """Return the scheduler that started several tasks, with their number; "" if none did."""
    for scheduler, name, _ in _SCHEDULERS:
        number = environ.get(name, "")
        if number.isdecimal() and int(number) > 1:
            return f"{scheduler} started {number} tasks"
    return ""


def _task(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the number of tasks and that of this one, where a scheduler has set them."""
    for _, processes, process in _SCHEDULERS:
        if processes in environ and process in environ:
            return {"processes": environ[processes], "process": environ[process]}
    return {}


def _names_no_coordinator(environ: Mapping[str, str]) -> bool:
    """Tell whether JAX cannot find the first task: Slurm names its host, and Open MPI 4 does."""
    return "SLURM_STEP_NUM_TASKS" not in environ and "OMPI_MCA_orte_hnp_uri" not in environ


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of the flags `--distributed*` by name, and the other words."""
    given: dict[str, str] = {}
    rest, remaining = [], iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        if flag != "--distributed" and not flag.startswith("--distributed."):
            rest.append(word)
            continue
        name = flag.removeprefix("--distributed").removeprefix(".")
        if name and name not in _FLAGS:
            raise UserError(f"Unknown flag {flag}.{nearest(flag, flags())}")
        if not equals:
            value = next(remaining, "")
        if not value or value.startswith("--"):
            raise UserError(f"{flag} needs a value.")
        given[name] = value
    return given, rest


def _explicit(given: dict[str, str], found: Distributed) -> Distributed:
    """Check coordinator, number of processes and number of this one, which belong together."""
    if missing := [name for name in _FLAGS[:3] if name not in given]:
        raise UserError(
            f"--distributed.{missing[0]} is missing: coordinator, processes and process belong "
            "together."
        )
    host, colon, port = given["coordinator"].rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 65536):
        raise UserError(
            f"--distributed.coordinator {given['coordinator']}: write HOST:PORT, as node0:8476."
        )
    processes = _number("processes", given["processes"])
    process = _number("process", given["process"], least=0)
    if process >= processes:
        raise UserError(
            f"--distributed.process {process}: of {processes} processes the last is "
            f"{processes - 1}."
        )
    return replace(found, coordinator=given["coordinator"], processes=processes, process=process)


def _number(name: str, text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise UserError(f"--distributed.{name} must be a number of at least {least}, not {text}.")
    return int(text)
