"""What a run reached, and what can be done next."""

import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from jaxrl.config import TrainConfig, distributed, env_names, settings
from jaxrl.reports import pages
from jaxrl.utils import command_line, processes, stats, user_code
from jaxrl.utils.formatting import short


@dataclass(frozen=True)
class Result:
    """What a run reached."""

    folder: Path
    env_steps: int
    best_reward: float | None
    last_evaluation: dict[str, float]
    stopped_by: int | None = None  # signal number, when asked to stop
    stopped_because: str = ""  # what a callback said, when one asked to stop
    members: tuple["Result", ...] = ()  # of a population
    number: str = ""  # how many of them, in words
    nonfinite_steps: int = 0  # in which an environment was non-finite
    iqm: tuple[str, ...] = ()  # interquartile means of each variant, in words


def text(result: Result, config: TrainConfig) -> str:
    """Return the closing lines of a run, with the exact commands to go on."""
    unit = "gradient" if config.offline else "environment"
    each = f" of each of {result.number}" if result.members else ""
    lines = ["", f"{result.env_steps:,} {unit} steps{each}"]
    if result.members:
        lines += _members(result)
    elif result.last_evaluation:
        std = result.last_evaluation.get("eval/std_reward", 0.0)
        last = stats.format_aggregate(_last(result), lambda mean: f"{short(mean)} ± {short(std)}")
        best = "" if result.best_reward is None else f"   best {short(result.best_reward)}"
        lines.append(f"last evaluation  {last}{best}{_details(result.last_evaluation)}")
    if result.nonfinite_steps:
        steps = result.env_steps // config.task.action_repeat * max(len(result.members), 1)
        lines.append(
            f"warning          environments produced non-finite values in "
            f"{result.nonfinite_steps:,} of {steps:,} steps (rollout/diverged; "
            "--task.on-nan stop shows where)"
        )
    if result.stopped_because:
        lines.append(f"stopped          {result.stopped_because}")
    path, own = shlex.quote(str(result.folder)), _own(config, *settings.TRAINING_CODE)
    if result.stopped_by:
        longer = ""
    elif config.total_steps is None:
        longer = f" --epochs {config.epochs * 2}"
    else:
        longer = f" --total-steps {config.total_steps * 2}"
    first = shlex.quote(str((result.members or (result,))[0].folder))
    next_steps = []
    if not config.rrd.reward_only:
        where = " --env ENV" if config.env == env_names.OFFLINE else ""
        next_steps.append(
            f"evaluate         {command_line.prog('evaluate')} {first} --episodes 100{own}{where}"
        )
    if config.offline and config.offpolicy.reward == "rrd":
        plot = result.folder / "plots" / "rewards.png"
        next_steps.append(f"rewards          {plot if plot.exists() else 'nothing was held out'}")
    page, curve = result.folder / pages.NAME, result.folder / "plots" / "learning_curve.png"
    return "\n".join(
        [
            *lines,
            f"run folder       {result.folder}",
            *([f"report           {page}"] if page.exists() else []),
            *([f"learning curve   {curve}"] if curve.exists() else []),
            *next_steps,
            f"resume           {resume_command(result.folder, config, longer)}",
            f"watch            tensorboard --logdir {path}",
        ]
    )


def _details(evaluation: dict[str, float]) -> str:
    """Return success rate and length of an evaluation's episodes, where they are known."""
    text = ""
    if (success := evaluation.get("eval/success_rate")) is not None:
        text += f"   success {success:.1%}"
    if (length := evaluation.get("eval/mean_ep_length")) is not None:
        text += f"   length {short(length)}"
    return text


def resume_command(folder: Path, config: TrainConfig, longer: str = "") -> str:
    """Return the command that resumes a run, on as many processes."""
    if user_code.is_unnamed(config.env):
        return f"jaxrl.resume({str(folder)!r}, env=...)"
    flags = f"--resume {shlex.quote(str(folder))}{longer}{_own(config)}"
    if launcher := os.environ.get(distributed.LAUNCHER):
        return f"{launcher} {flags}"
    number = processes.count()
    everywhere = f" (the same command in all {number} processes)" if number > 1 else ""
    return f"{command_line.prog('train')} {flags}{everywhere}"


def _own(config: TrainConfig, *unused: str) -> str:
    """Return the flags without which code of the user's own is not imported, but for `unused`."""
    named = settings.imported_code(config)
    flags = {flag: name for flag, name in named.items() if flag not in unused}
    return "".join(f" {flag} {shlex.quote(name)}" for flag, name in flags.items())


def _members(result: Result) -> list[str]:
    """Return the interquartile mean of each variant, then a line for every member."""
    lines = [f"last evaluation  {line}" for line in result.iqm]
    width = max(len(member.folder.name) for member in result.members)
    for member in result.members:
        if member.last_evaluation:
            last = stats.format_aggregate(_last(member), short)
            reward = member.best_reward
            best = "no finite evaluation" if reward is None else f"best {short(reward)}"
            lines.append(f"  {member.folder.name:<{width}}  {last:>10}   {best}")
    return lines


def _last(result: Result) -> float:
    """Return the return of the last evaluation; NaN where that is no number."""
    return result.last_evaluation.get("eval/mean_reward", math.nan)
