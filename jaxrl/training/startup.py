"""What several processes check before they train together. A single one has nothing to check."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

from jaxrl.config import settings
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir as folders
from jaxrl.programs import OfflineProgram, Program
from jaxrl.utils import atomic_io, processes


def check_alike(program: Program) -> None:
    """Refuse processes with different settings, code or packages, naming the field and ranks."""
    if processes.count() == 1:
        return
    error = _RECORDED if isinstance(program, OfflineProgram) else ""
    processes.raise_together(error or _too_few_devices(program))
    every = [json.loads(text) for text in processes.gather(json.dumps(_identity(program)))]
    if not all(each[_COMMIT] for each in every):  # git did not answer everywhere
        every = [each | {_COMMIT: ""} for each in every]
    for name in sorted({name for each in every for name in each}):
        values = [json.dumps(each.get(name)) for each in every]
        if len(set(values)) > 1:
            other = next(rank for rank, value in enumerate(values) if value != values[0])
            raise UserError(
                f"Processes differ in {name}: process 0 has {values[0]}, process {other} has "
                f"{values[other]}. Start all with the same command and the same installation."
            )


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
        rule = f"{number} members cannot be dealt to them: give a multiple of {present}."
    else:
        rule = f"give --devices {present}, not {used}, or leave it out."
    return f"Several processes use all of their {present} devices: {rule}"


_PLACES = ("run_dir", "task.assets")  # where files are, which machines may know by other names


def _identity(program: Program) -> dict[str, object]:
    """Return what must be the same everywhere, by name."""
    made, found = folders.provenance(), {}
    for place, config in enumerate((program.config, *program.members)):
        prefix = f"member {place - 1}: " if place else ""
        for path, value in settings.values(config).items():
            if path in _PLACES or (place and path in found and found[path] == value):
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


def check_shared(folder: Path) -> None:
    """Refuse a folder that not all processes see, before an hour of training is lost.

    Process 0 writes a file with a random name, and all read it.
    """
    if processes.count() == 1:
        return
    token = processes.of_main(uuid.uuid4().hex)
    file = folder / f".shared-{token}"
    error = ""
    if processes.is_main():
        try:
            atomic_io.write_text(file, token)
        except OSError as failure:
            error = f"The run folder '{folder}' is not writable: {failure}"
    processes.raise_together(error)
    try:
        seen = atomic_io.read_text(file) == token
    except (OSError, UserError):
        seen = False
    everywhere = processes.gather("" if seen else "missing")
    if processes.is_main():
        file.unlink(missing_ok=True)
    blind = [rank for rank, text in enumerate(everywhere) if text]
    if blind:
        raise UserError(
            f"The run folder '{folder}' of process 0 is not seen by process {blind[0]}: several "
            "processes need a folder on a disk that all of them share (--run-dir)."
        )
