"""What several processes check before they train together. A single one has nothing to check."""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxrl.config import settings
from jaxrl.config.settings import SETTINGS
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir as folders
from jaxrl.programs import Program
from jaxrl.utils import atomic_io, processes


def check_alike(program: Program) -> None:
    """Refuse processes with different settings, code or packages, naming the field and ranks."""
    if processes.count() == 1:
        return
    error = "" if program.supports_processes else _RECORDED
    processes.raise_together(error or _too_few_devices(program))
    every = [json.loads(text) for text in processes.gather(json.dumps(_identity(program)))]
    if not all(each[_COMMIT] for each in every):  # git did not answer everywhere
        every = [each | {_COMMIT: ""} for each in every]
    for name in sorted({name for each in every for name in each}):
        values = [json.dumps(each.get(name)) for each in every]
        if len(set(values)) > 1:
            raise UserError(
                f"Processes differ in {name}: {_who_has_what(values)}. Start all with the same "
                "command and the same installation."
            )


def _who_has_what(values: list[str]) -> str:
    """Return every value with the processes that have it: "process 0 has 3; processes 1, 2 ..."."""
    ranks = {value: [i for i, other in enumerate(values) if other == value] for value in values}
    verbs = {value: "have" if len(who) > 1 else "has" for value, who in ranks.items()}
    return "; ".join(f"{_named(who)} {verbs[value]} {value}" for value, who in ranks.items())


_COMMIT = "the commit of jaxrl"
_RECORDED = "--data.path: several processes cannot share recorded data yet: use --distributed off."


def _too_few_devices(program: Program) -> str:
    """Every device of every process must take part."""
    import jax

    used, present = program.mesh.size, len(jax.devices())
    if used == present:
        return ""
    if program.members:
        number = len(program.members)
        rule = f"{number} members are not divisible by that: give a multiple of {present}."
    else:
        rule = f"give --devices {present}, not {used}, or leave it out."
    return f"Several processes use all of their {present} devices: {rule}"


def _identity(program: Program) -> dict[str, object]:
    """Return what must be the same everywhere, by name."""
    made, found = folders.provenance(), {}
    for place, config in enumerate((program.config, *program.members)):
        prefix = f"member {place - 1}: " if place else ""
        for path, value in settings.values(config).items():
            if SETTINGS[path].local or (place and path in found and found[path] == value):
                continue
            found[prefix + settings.flag(path)] = value
    found |= {f"the version of {name}": number for name, number in made["versions"].items()}
    found["the version of Python"] = made["python"].rpartition(".")[0]
    found[_COMMIT] = made["git"].get("commit", "")
    return json.loads(json.dumps(found, default=str))


def create_folder(program: Program) -> Path:
    """Make the run folder once, and check that all processes see it."""
    path = by_main(lambda: folders.create(program.config, program.members))
    check_shared(path)
    return path


def holds_a_run(folder: Path) -> bool:
    """Tell whether there is a run in a folder.

    Only process 0 looks: hosts that look before it makes the folder may not see it for a minute.
    """
    found = processes.is_main() and (folder / "config.json").exists()
    return bool(processes.of_main("there" if found else ""))


def by_main(make: Callable[[], Path]) -> Path:
    """Return the path that process 0 makes; its error is raised on all."""
    path, error = None, ""
    if processes.is_main():
        try:
            path = make()
        except (UserError, OSError) as failure:
            error = str(failure)
    processes.raise_together(error)
    shared = processes.of_main(str(path.absolute()) if path else "")
    return path or Path(shared)


_VISIBLE = 60.0  # seconds after which every host sees a new file: NFS caches what is missing


def check_shared(folder: Path) -> None:
    """Refuse a folder that not all processes see, before an hour of training is lost.

    Process 0 writes a file with a random name, and all read it.
    """
    if processes.count() == 1:
        return
    if not processes.of_main("there" if processes.is_main() and folder.is_dir() else ""):
        return  # what is missing is named where it is read
    token = processes.of_main(uuid.uuid4().hex)
    file = folder / f".shared-{token}"
    error = ""
    if processes.is_main():
        try:
            atomic_io.write_text(file, token)
        except OSError as failure:
            error = f"The run folder '{folder}' is not writable: {failure}"
    processes.raise_together(error)
    everywhere = processes.gather("" if _appears(file, token) else "missing")
    if processes.is_main():
        file.unlink(missing_ok=True)
    if blind := [rank for rank, text in enumerate(everywhere) if text]:
        raise UserError(
            f"{_named(blind).capitalize()} cannot see the run folder '{folder}' of process 0: "
            "several processes need a folder on a disk that all of them share (--run-dir)."
        )


def _appears(file: Path, token: str) -> bool:
    """Tell whether this process comes to see a file with this text."""
    until = time.monotonic() + _VISIBLE
    while True:
        with contextlib.suppress(OSError, UserError):
            return atomic_io.read_text(file) == token
        if time.monotonic() > until:
            return False
        time.sleep(min(0.5, _VISIBLE / 10))


def _named(ranks: Sequence[int]) -> str:
    """Return "process 1", or "processes 1, 2, 3"."""
    return f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
