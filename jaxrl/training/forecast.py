"""How long a run will take and what it will store, by earlier runs; mostly for --dry-run."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config import TrainConfig, env_names, settings
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir
from jaxrl.programs import Program
from jaxrl.programs.memory_estimate import megabytes, num_bytes
from jaxrl.reports import load_runs
from jaxrl.reports.load_runs import Record
from jaxrl.training import resume
from jaxrl.utils.formatting import duration, plural

# May differ in a run that resumes, and change its time.
_TIMED = ("devices", "eval.num_envs", "eval.every", "eval.every_steps", "eval.randomize")
_SEARCHED = 20  # earlier runs that are read before compiling


def report(program: Program, folder: Path = Path("runs")) -> str:
    """Return the lines of a forecast; `folder` holds earlier runs."""
    rows = [("disk", disk(program)), ("time", time(program, folder))]
    return "\n".join(f"  {name:<31} {value}" for name, value in rows)


def disk(program: Program) -> str:
    """Return what checkpoints and policies take; logs are small beside them."""
    config, state = program.config, program.abstract_state()
    each = num_bytes(resume.checkpointed_part(config, state))
    networks = num_bytes(program.networks(state.learner))
    epochs = math.ceil(config.total_cycles / config.cycles)
    saved = -(-epochs // config.checkpoint.save_freq)
    if every := config.checkpoint.every_steps:
        saved += config.total_iterations * config.steps_per_iteration // every
    keep = config.checkpoint.keep
    kept = saved if keep == "all" else min(saved, keep + 1)  # and the best one
    total = kept * each + (kept + 2) * networks
    return (
        f"{megabytes(total)}: {plural(kept, 'checkpoint')} of {megabytes(each)}, and their policies"
    )


def time(program: Program, folder: Path) -> str:
    """Return how long the same settings will take, by the newest run that had them."""
    earlier = _newest(program, folder)
    if earlier is None:
        return "not known: no earlier run of these settings (--epochs 1 measures it)"
    config, cycles = program.config, float(np.mean(earlier.finite("time/cycle_seconds")))
    evaluated = earlier.finite("time/eval_seconds")
    evaluations = len(evaluated) / len(earlier.rows) * config.total_cycles
    seconds = earlier.last("time/compile_seconds") or 0.0
    seconds += cycles * config.total_cycles
    seconds += float(np.mean(evaluated)) * evaluations if len(evaluated) else 0.0
    return f"about {duration(seconds)}, at the rate of {earlier.folder}"


def compilation(program: Program, folder: Path) -> str:
    """Return how long compiling took the last time, in words; `folder` holds earlier runs."""
    earlier = _newest(program, folder, most=_SEARCHED)
    seconds = earlier and earlier.last("time/compile_seconds")
    if not seconds:
        return env_names.compile_time(program.config.env, program.config.backend)
    return f"took {duration(seconds)} last time"


def _newest(program: Program, folder: Path, most: int | None = None) -> Record | None:
    """Return the newest run of the same program on the same devices, if there is one.

    `most` is the number of runs to read.
    """
    ours, devices = _comparable(program.config), run_dir.device_names()
    logs = sorted(folder.glob("*/metrics.jsonl"), key=lambda log: -log.stat().st_mtime)
    for log in logs[:most]:
        try:
            run = load_runs.read(log.parent)
        except UserError:
            continue
        same = _comparable(run.config) == ours and run.provenance.get("devices") == devices
        members = len(run_dir.member_names(log.parent))
        if same and members == len(program.members) and len(run.finite("time/cycle_seconds")):
            return run
    return None


def _comparable(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that change the time of a cycle or an evaluation.

    A run that resumes may have others of some that change neither: its length, its output.
    """
    chosen = settings.fixed_on_resume(config)
    chosen |= {path: settings.get(config, path) for path in _TIMED}
    return {path: x for path, x in chosen.items() if not settings.SETTINGS[path].identity}
