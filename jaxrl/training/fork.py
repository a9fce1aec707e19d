"""A new run that continues another one from one of its earlier checkpoints."""

import shutil
from dataclasses import replace
from pathlib import Path

from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import TrainConfig, serialization
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir as folders
from jaxrl.utils import atomic_io

# What a continuation reads; rows after the checkpoint are dropped when it is resumed.
_LOGS = ("metrics.jsonl", "iterations.jsonl", "monitor.csv", "evaluations.npz")


def fork(run: Path, step: int, run_dir: Path | None, config: TrainConfig) -> Path:
    """Return a new run folder with the logs and the checkpoint of step `step` of a run.

    The run itself stays as it is. Of its newest checkpoint the run folder itself is returned: it
    can be continued there, unless `run_dir` names another.
    """
    with CheckpointManager(run / "checkpoints", read_only=True) as checkpoints:
        steps = checkpoints.steps()
    if step not in steps:
        raise UserError(
            f"--resume: '{run}' has no checkpoint of step {step}: there are "
            f"{', '.join(map(str, steps)) or 'none'}."
        )
    if step == steps[-1] and run_dir is None:
        return run
    atomic_io.check_folder(run)
    new = folders.create(replace(config, run_dir=run_dir))
    members = folders.member_names(run)
    for name in ("config.json", folders.MEMBERS, "command.txt", "provenance.json"):
        if (run / name).is_file():
            shutil.copyfile(run / name, new / name)
    for place in ("", *members):
        (new / place).mkdir(exist_ok=True)
        names = _LOGS if not place else ("config.json", *_LOGS)
        for name in names:
            if (run / place / name).is_file():
                shutil.copyfile(run / place / name, new / place / name)
    shutil.copytree(run / "checkpoints" / str(step), new / "checkpoints" / str(step))
    if not members:  # the folder that the settings name is the new one
        settings = replace(serialization.from_json((new / "config.json").read_text()), run_dir=new)
        atomic_io.write_text(new / "config.json", serialization.to_json(settings))
    return new
