"""What the host does between two compiled cycles: read, judge, evaluate, tell, write and save.

Everything comes as one row of values for each member of the run.
"""

import math
import time

import jax
import numpy as np

from jaxrl.evaluation.episodes import Episodes
from jaxrl.programs import offline
from jaxrl.programs.program import EACH
from jaxrl.training import curriculum, finalize, nan_guard, overview, recovery
from jaxrl.training.member import Member
from jaxrl.training.run import Run
from jaxrl.types import Mean, Metrics, TrainState, finished
from jaxrl.utils import device_memory, stats

Row = dict[str, float]


def note(run: Run, metrics: Metrics, cycles: int) -> list[Row]:
    """Count episodes, log what is known of single iterations, and return the cycle's means."""
    parts = run.program.each(metrics)
    return [_note(*each, cycles) for each in zip(run.members, parts, strict=True)]


def _note(member: Member, metrics: Metrics, cycles: int) -> Row:
    if "rollout/ep_rew_mean" in metrics:
        member.episodes += int(metrics["rollout/ep_rew_mean"].count)
    if "rollout/diverged" in metrics:
        member.nonfinite_steps = int(metrics["rollout/diverged"].total)
    each = {name for name in metrics if name.startswith(EACH)}
    for name in each:
        _log_iterations(member, name.removeprefix(EACH), metrics[name], cycles)
    return finished({name: mean for name, mean in metrics.items() if name not in each})


def _log_iterations(member: Member, name: str, means: Mean, cycles: int) -> None:
    """Write one line for each iteration of the cycle that has just ended."""
    first = (cycles - 1) * member.config.iterations + 1
    for i, (total, count) in enumerate(zip(means.total, means.count, strict=True)):
        if count > 0:
            member.iteration_log(first + i, {name: float(total / count)})


def complete(
    run: Run, state: TrainState, cycles: int, rows: list[Row], seconds: float
) -> TrainState:
    """Add what else is known of a cycle, and stop where it went wrong; return the state after."""
    state, changed = curriculum.after_cycle(run.program, state, rows)
    nan_guard.check(run, state, cycles)
    names = ("updates", "skipped_updates", "nonfinite_streak")
    counted = {n: getattr(state.learner, n) for n in names if hasattr(state.learner, n)}
    counters = run.program.each(jax.device_get(counted))
    for member, row, new, counter in zip(run.members, rows, changed, counters, strict=True):
        row |= new
        member.nonfinite_streak = int(counter["nonfinite_streak"])
        finalize.warn_of_skipped(run, member, int(counter["skipped_updates"]))
        row["train/n_skipped"] = int(counter["skipped_updates"])
        # Learners that wait for enough to learn from count their own.
        planned = cycles * run.config.iterations * run.config.learning.updates
        row["train/n_updates"] = int(counter.get("updates", planned))
        row["rollout/episodes"] = member.episodes
        row |= _times(run, cycles, seconds)
    finalize.stop_if_diverged(run, rows, cycles)
    _average_losses(run, state, cycles, rows)
    return state


def _times(run: Run, cycles: int, seconds: float) -> Row:
    """Return what clocks and counters say, which is the same for all members."""
    config = run.config
    fps = config.iterations * config.steps_per_iteration / seconds
    agents = run.program.env.rows // config.num_envs
    return {
        "time/fps": fps,
        **({"time/agent_fps": agents * fps} if agents > 1 else {}),
        "time/cycle_seconds": seconds,
        "time/compile_seconds": run.compile_seconds,
        "time/epoch": math.ceil(cycles / config.cycles),
        "time/cycle": cycles,
        "time/total_timesteps": run.env_steps(cycles),
        "time/iterations": cycles * config.iterations,
        **device_memory.in_use(),
    }


def _average_losses(run: Run, state: TrainState, cycles: int, rows: list[Row]) -> None:
    """Note what a learnt reward lost; without an environment, it says which one is best."""
    epoch_ends = run.is_epoch_end(cycles)
    for i, (member, row) in enumerate(zip(run.members, rows, strict=True)):
        member.average_losses(row, epoch_ends=epoch_ends)
        if not run.config.offline:
            continue
        loss = member.loss_of_cycles(row, offline.cycles_to_judge_by(run.program))
        if loss is not None and epoch_ends:
            member.keep_if_best(run.networks(state)[i], cycles, -loss)


def evaluate_and_tell(
    run: Run, state: TrainState, cycles: int, rows: list[Row]
) -> tuple[TrainState, Row]:
    """Evaluate where that is due or asked for, and tell callbacks what has happened.

    Returns the state after, and the row of the whole run: that of its only member, if it has one.
    """
    values = overview.joined(rows) if run.overview else rows[0]
    run.hooks.new_cycle()
    run.tell("cycle", cycles, values)
    played = None
    evaluates = run.is_due_for_evaluation(cycles) or run.hooks.evaluate
    if evaluates:
        played = _evaluate(run, state, cycles, rows, values)
    state = _resample(run, state, cycles, played, rows, values)
    if evaluates:
        run.tell("evaluation", cycles, values)
    if run.top.best_at == cycles:
        run.tell("new_best", cycles, values)
    if run.is_epoch_end(cycles):
        run.tell("epoch", cycles, values)
    for row in (*rows, values):
        row["time/time_elapsed"] = run.elapsed
    run.tell("log", cycles, values)
    values |= run.hooks.log
    return state, values


def _resample(
    run: Run,
    state: TrainState,
    cycles: int,
    played: list[Episodes] | None,
    rows: list[Row],
    values: Row,
) -> TrainState:
    """Change what start states are drawn by, where that is due, and log it."""
    state, changed = run.resample(state, cycles, played)
    for row, new in zip(rows, changed, strict=True):
        row |= new
    if run.overview:
        values |= overview.joined(changed)
    return state


def _evaluate(
    run: Run, state: TrainState, cycles: int, rows: list[Row], values: Row
) -> list[Episodes]:
    """Add to each row what an evaluation showed, and to that of the whole run if it is another."""
    began = time.monotonic()
    played, found = run.evaluate(state, cycles)
    for row, new in zip(rows, found, strict=True):
        row |= new
    if run.overview:
        values |= overview.joined(found) | _evaluated_together(run, run.overview, cycles, found)
    for row in (*rows, values):
        row["time/eval_seconds"] = time.monotonic() - began
    return played


def _evaluated_together(run: Run, top: Member, cycles: int, found: list[Row]) -> Row:
    """Note an evaluation of all members, show it, and return its figures."""
    members = run.program.members
    top.record.add(top.env_steps(cycles), overview.as_episodes(found))
    top.last_evaluation = overview.figures(members, found)
    returns = [values["eval/mean_reward"] for values in found]
    top.scores(float(stats.interquartile_mean(np.array(returns))), cycles)
    for line in overview.lines(members, returns):
        run.console.say(line)
    return top.last_evaluation


def log_and_save(run: Run, state: TrainState, cycles: int, rows: list[Row], values: Row) -> None:
    """Write what is known of a cycle, and at the right moments the state."""
    for member, row in zip(run.members, rows, strict=True):
        member.log(cycles, row)
    if run.overview:
        run.overview.log(cycles, values)
    run.logged_at = cycles
    recovery.check(run, state, cycles)
    if run.is_due_for_saving(cycles) or run.hooks.save:
        if run.in_trouble:  # good checkpoints must not be pushed out
            run.console.say("warning: no checkpoint was saved: the last updates were non-finite")
        else:
            run.save(state, cycles)
