"""What happens between two compiled cycles, in order. Every member of the run has one row.

reduce_metrics    sums of the compiled cycle -> means
finish_metrics    curriculum, counters, times; stop what has diverged
evaluate_and_emit evaluation where due, trials, callbacks
log_and_save      metrics.jsonl, TensorBoard, console; a checkpoint where due
"""

import math
import time

import numpy as np

from jaxrl.errors import first_line
from jaxrl.evaluation.episodes import Episodes
from jaxrl.programs import Executor
from jaxrl.programs.program import PER_ITERATION
from jaxrl.training import curriculum, nan_guard, overview, recovery
from jaxrl.training.run import Member, Row, Run
from jaxrl.types import RECORDS, Metrics, TrainState, mean_values
from jaxrl.utils import device_memory, processes, stats
from jaxrl.utils.formatting import plural
from jaxrl.utils.xla_options import CompilerBusyError


def reduce_metrics(run: Run, metrics: Metrics, cycles: int) -> list[Row]:
    """Count episodes, log the metrics of single iterations, and return the cycle's means."""
    parts = run.program.split(metrics)
    losses = [_log_iterations(*each, cycles) for each in zip(run.members, parts, strict=True)]
    if losses[0]:
        numbers = list(losses[0])
        means = np.mean([[each.get(n, math.nan) for n in numbers] for each in losses], axis=0)
        run.console.iterations(numbers[0], means.tolist())
    for member, part in zip(run.members, parts, strict=True):
        _record_episodes(run, member, part, cycles)
    return [_reduce(*each) for each in zip(run.members, parts, strict=True)]


def _record_episodes(run: Run, member: Member, metrics: Metrics, cycles: int) -> None:
    """Write every episode of the cycle, where that is asked for."""
    if member.monitor is None:
        return
    names = [name for name in metrics if name.startswith(RECORDS)]
    records = {name.removeprefix(RECORDS): np.asarray(metrics[name]) for name in names}
    iterations, length = records["return"].shape[:2]
    per_step = member.config.steps_per_iteration // length
    first = member.env_steps(cycles - 1)
    steps = first + per_step * np.arange(1, iterations * length + 1).reshape(iterations, length)
    member.monitor.add(steps, records, run.elapsed)


def _reduce(member: Member, metrics: Metrics) -> Row:
    if "rollout/ep_rew_mean" in metrics:
        member.episodes += int(metrics["rollout/ep_rew_mean"].count)
    if "rollout/diverged" in metrics:
        member.nonfinite_steps = int(metrics["rollout/diverged"].total)
        member.all_nonfinite_steps += member.nonfinite_steps
    arrays = (PER_ITERATION, RECORDS)
    row = mean_values({n: mean for n, mean in metrics.items() if not n.startswith(arrays)})
    return row | (member.monitor.means() if member.monitor else {})


def _log_iterations(member: Member, metrics: Metrics, cycles: int) -> dict[int, float]:
    """Log the loss of each iteration of the cycle that has just ended, and return it by number."""
    means = metrics.get(f"{PER_ITERATION}train/R_loss")
    if means is None:
        return {}
    first = (cycles - 1) * member.config.iterations + 1
    losses = {
        first + i: float(total / count)
        for i, (total, count) in enumerate(zip(means.total, means.count, strict=True))
        if count > 0
    }
    for number, loss in losses.items():
        for write in member.sinks.iteration:
            write(number, {"train/R_loss": loss})
    return losses


def finish_metrics(
    run: Run, state: TrainState, cycles: int, rows: list[Row], seconds: float
) -> TrainState:
    """Add curriculum, counters and times to the rows; stop what has diverged."""
    state, curriculum_rows = curriculum.after_cycle(run.program, state, rows)
    nan_guard.check_environments(run, state, cycles)
    names = ("updates", "skipped_updates", "nonfinite_streak")
    counted = {n: getattr(state.learner, n) for n in names if hasattr(state.learner, n)}
    counters = run.program.split(processes.fetch(counted))
    times = _times(run, cycles, seconds)
    for member, row, new, counter in zip(run.members, rows, curriculum_rows, counters, strict=True):
        row |= new
        member.nonfinite_streak = int(counter["nonfinite_streak"])
        nan_guard.warn_of_skipped(run, member, int(counter["skipped_updates"]))
        row["train/n_skipped"] = int(counter["skipped_updates"])
        # Learners that wait for enough to learn from count their own.
        planned = cycles * run.config.iterations * run.config.learning.updates
        row["train/n_updates"] = int(counter.get("updates", planned))
        row |= run.program.data_counts or {"rollout/episodes": member.episodes}
        row |= times
    nan_guard.check_updates(run, rows, cycles)
    _score_losses(run, state, cycles, rows)
    return state


def _times(run: Run, cycles: int, seconds: float) -> Row:
    """Return clocks, counters and memory, which are the same for all members."""
    config, agents = run.config, run.program.agents
    fps = config.iterations * config.steps_per_iteration / seconds
    return {
        "time/fps": fps,
        **({"time/agent_fps": agents * fps} if agents > 1 else {}),
        "time/cycle_seconds": seconds,
        "time/compile_seconds": run.compile_seconds,
        "time/epoch": math.ceil(cycles / config.cycles),
        "time/cycle": cycles,
        run.program.step_metric: run.env_steps(cycles),
        "time/iterations": cycles * config.iterations,
        **device_memory.in_use(),
        **run.utilization.read(),
    }


def _score_losses(run: Run, state: TrainState, cycles: int, rows: list[Row]) -> None:
    """Average the losses of a learnt reward; without an environment, they choose the best one."""
    epoch_ends, window = run.config.is_epoch_end(cycles), run.program.loss_window
    for i, (member, row) in enumerate(zip(run.members, rows, strict=True)):
        member.average_losses(row, epoch_ends=epoch_ends)
        loss = member.windowed_loss(row, window) if window else None
        if loss is not None and epoch_ends:
            member.save_if_best(run.networks(state)[i], cycles, -loss)


def evaluate_and_emit(
    run: Run, executor: Executor, state: TrainState, cycles: int, rows: list[Row]
) -> tuple[TrainState, Row]:
    """Evaluate where that is due or requested, and call the callbacks.

    Returns the state after, and the row of the whole run: that of its only member, if it has one.
    """
    whole = overview.joined(rows) if run.overview else rows[0]
    run.callbacks.new_cycle()
    run.emit("cycle", cycles, whole)
    evaluates = run.is_due_for_evaluation(cycles) or processes.any_of(run.callbacks.evaluate)
    results = _evaluate(run, executor, state, cycles, rows, whole) if evaluates else None
    if evaluates == (results is not None):
        state, trials = curriculum.resample(run.program, executor, state, cycles, results)
        _add(run, rows, whole, trials)
    evaluates = results is not None
    if evaluates and run.exchange:
        state, exchanged = run.exchange(state, cycles, rows)
        _add(run, rows, whole, exchanged)
    if evaluates:
        run.emit("evaluation", cycles, whole)
    if run.top.best_at == cycles:
        run.emit("new_best", cycles, whole)
    if run.config.is_epoch_end(cycles):
        run.emit("epoch", cycles, whole)
    for row in (*rows, whole):
        row["time/time_elapsed"] = run.elapsed
    run.emit("log", cycles, whole)
    whole |= run.callbacks.log
    return state, whole


def _add(run: Run, rows: list[Row], whole: Row, new: list[Row]) -> None:
    """Add metrics to each member's row, and their means to that of the whole run."""
    for row, more in zip(rows, new, strict=True):
        row |= more
    if run.overview:
        whole |= overview.joined(new)


def _evaluate(
    run: Run, executor: Executor, state: TrainState, cycles: int, rows: list[Row], whole: Row
) -> list[Episodes] | None:
    """Evaluate all members, and add the metrics to their rows.

    An evaluation changes no state: where a busy machine cannot compile it, training goes on
    without it (None), and the next one tries again. Several processes would wait for each other.
    """
    began = time.monotonic()
    try:
        results, found = run.evaluate(executor, state, cycles)
    except CompilerBusyError as error:
        if processes.count() > 1:
            raise
        run.console.warn(f"this evaluation could not be compiled: {first_line(error)}")
        return None
    _warn_of_nonfinite(run, found)
    _add(run, rows, whole, found)
    if run.overview:
        whole |= _evaluate_together(run, run.overview, cycles, found)
    for row in (*rows, whole):
        row["time/eval_seconds"] = time.monotonic() - began
    return results


def _warn_of_nonfinite(run: Run, rows: list[Row]) -> None:
    """Warn of evaluated episodes that ended in non-finite values, or whose returns are."""
    for member, row in zip(run.members, rows, strict=True):
        who = run.label(member)
        if number := int(row.get("eval/diverged", 0)):
            run.console.warn(
                f"{who}{plural(number, 'episode')} of the evaluation ended in non-finite "
                "values (eval/diverged)"
            )
        if not math.isfinite(row["eval/mean_reward"]):
            run.console.warn(f"{who}the mean return of the evaluation is not finite")


def _evaluate_together(run: Run, top: Member, cycles: int, rows: list[Row]) -> Row:
    """Log an evaluation of all members, print it, and return its metrics."""
    members = run.program.members
    if top.eval_log:
        top.eval_log.add(top.env_steps(cycles), overview.as_episodes(rows))
    top.last_evaluation = overview.figures(members, rows)
    returns = [row["eval/mean_reward"] for row in rows]
    top.set_score(float(stats.interquartile_mean(np.array(returns))), cycles)
    for line in overview.lines(members, returns):
        run.console.say(line)
    return top.last_evaluation


def log_and_save(run: Run, state: TrainState, cycles: int, rows: list[Row], whole: Row) -> None:
    """Write the rows of a cycle, and a checkpoint where one is due."""
    for member, row in zip(run.members, rows, strict=True):
        member.log(cycles, row)
    if run.overview:
        run.overview.log(cycles, whole)
    run.logged_at = cycles
    recovery.check(run, state, cycles)
    if run.is_due_for_saving(cycles) or processes.any_of(run.callbacks.save):
        if run.is_diverging:  # good checkpoints must not be pushed out
            run.console.warn("no checkpoint was saved: the last updates were non-finite")
        else:
            run.save(state, cycles)
