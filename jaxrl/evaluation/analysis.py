"""Analysis of played episodes: confidence intervals, and what failures have in common.

An episode is identified by the seed and its number: episode i of a seed has the same start,
however many are played.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import EnvState, VectorEnv
from jaxrl.evaluation.episodes import Episodes
from jaxrl.types import Array, Key, PyTree
from jaxrl.utils import stats, streams, xla_options
from jaxrl.utils.formatting import short

_LISTED = 20  # failed episodes printed; the file has all


class Table(NamedTuple):
    """One row per episode."""

    number: np.ndarray  # index of the episode
    reward: np.ndarray
    length: np.ndarray
    success: np.ndarray | None  # bool
    timed_out: np.ndarray  # bool: truncated, not terminated
    events: dict[str, np.ndarray]  # bool: whether a metric of zeros and ones was ever one
    sums: dict[str, np.ndarray]  # sums of all other metrics
    start: np.ndarray | None = None  # [episodes, 2]


def recorder(env: VectorEnv | GymnasiumEnv) -> Callable[[EnvState], PyTree] | None:
    """Return a function that records the metrics of a state; None without a success flag."""
    if not isinstance(env, VectorEnv) or "success" not in env.template.state_shapes.metrics:
        return None
    return lambda state: dict(state.packed.metrics)


def table(
    result: Episodes, env: VectorEnv | GymnasiumEnv, start: np.ndarray | None = None
) -> Table:
    """Return one row per episode; `result.trace` holds the metrics of every step, if any."""
    lengths = np.asarray(result.lengths)
    repeat = getattr(env, "action_repeat", 1)
    events, sums = {}, {}
    for name, values in (result.trace or {}).items():
        steps = np.arange(len(values))[:, None] * repeat
        played = np.where(steps < lengths[None], np.asarray(values, np.float64), 0.0)
        if name != "success" and np.isin(played, (0.0, 1.0)).all():
            events[name] = played.any(axis=0)
        elif name != "success":
            sums[name] = played.sum(axis=0)
    success = None if result.successes is None else np.asarray(result.successes) > 0.5
    timed_out = np.asarray(result.truncated)
    number, reward = np.arange(len(lengths)), np.asarray(result.returns, np.float64)
    return Table(number, reward, lengths, success, timed_out, events, sums, start)


_Rows = TypeVar("_Rows", "Table", Episodes)


def select(rows: _Rows, chosen: tuple[int, ...]) -> _Rows:
    """Return the chosen episodes of a Table or of Episodes."""
    indices = list(chosen)
    return jax.tree.map(lambda column: column[indices], rows)


def start_positions(env: VectorEnv | GymnasiumEnv, seed: int) -> np.ndarray | None:
    """Return start positions [episodes, 2], if the environment has start_position(state)."""
    if not isinstance(env, VectorEnv) or (locate := env.hooks.start_position) is None:
        return None
    whole = replace(env, cached_template=env.full_template)

    def starts(key: Key) -> Array:
        state = whole.reset(jax.random.split(key)[0], stagger=False)  # as evaluation samples them
        return jax.vmap(locate)(whole.brax_state(state.packed))

    # Options for loops, whatever the physics: one call gains nothing from many threads.
    play = jax.jit(starts, compiler_options=xla_options.options(loops=True))
    return np.asarray(play(streams.key(seed, streams.COMMAND)))[:, :2]


def details(rows: Table, seed: int) -> dict[str, Any]:
    """Return the analysis as JSON values."""
    finite = np.isfinite(rows.reward).all()
    mean_reward = stats.mean_interval(rows.reward) if finite else None
    lengths = stats.mean_interval(rows.length)
    report: dict[str, Any] = {"confidence": {"mean_reward": mean_reward, "mean_ep_length": lengths}}
    if rows.success is None:
        return report
    count = int(rows.success.sum())
    report["confidence"]["success_rate"] = stats.wilson_interval(count, len(rows.success))
    report["failures"] = [_failure(rows, int(i), seed) for i in np.flatnonzero(~rows.success)]
    report["by_outcome"] = by_outcome(rows)
    if rows.start is not None:
        report["starts"] = rows.start.tolist()
        report["successes"] = rows.success.tolist()
        report["success_by_region"] = by_region(rows.start, rows.success)
    return report


def _failure(rows: Table, i: int, seed: int) -> dict[str, Any]:
    """Return one failed episode as JSON, with the seed and number that repeat it."""
    failure: dict[str, Any] = {
        "episode": int(rows.number[i]),
        "seed": seed,
        "reward": float(rows.reward[i]),
        "length": int(rows.length[i]),
        "timed_out": bool(rows.timed_out[i]),
    }
    failure |= {name: bool(column[i]) for name, column in rows.events.items()}
    failure |= {name: float(column[i]) for name, column in rows.sums.items()}
    return failure | ({} if rows.start is None else {"start": rows.start[i].tolist()})


def by_outcome(rows: Table) -> dict[str, dict[str, float | None]]:
    """Return for each metric its mean over failed and over successful episodes.

    The mean of an event is the fraction of episodes in which it happened.
    """
    succeeded = np.asarray(rows.success, bool)
    columns = {"timed_out": rows.timed_out, **rows.events, **rows.sums}

    def mean(values: np.ndarray) -> float | None:
        return float(values.mean()) if len(values) else None

    return {
        n: {"failed": mean(c[~succeeded]), "succeeded": mean(c[succeeded])}
        for n, c in columns.items()
    }


def by_region(start: np.ndarray, success: np.ndarray) -> list[dict[str, Any]]:
    """Return the success rate in the four quadrants around the median start position."""
    median = np.median(start, axis=0)
    regions = []
    for right in (False, True):
        for upper in (False, True):
            here = ((start[:, 0] > median[0]) == right) & ((start[:, 1] > median[1]) == upper)
            sides = f"x {'>' if right else '<='} {median[0]:.3g}, y {'>' if upper else '<='} "
            where, count = f"{sides}{median[1]:.3g}", int(here.sum())
            if count:
                rate = float(success[here].mean())
                regions.append({"region": where, "episodes": count, "success_rate": rate})
    return regions


def format_intervals(report: dict[str, Any]) -> str:
    """Return the metrics that have a confidence interval as text."""
    lines = []
    for name, interval in report["confidence"].items():
        if name in report:
            ends = f"   (95%: {' to '.join(map(short, interval))})" if interval else ""
            lines.append(f"{name:<16} {short(report[name]):>12}{ends}")
    return "\n".join(lines)


def format_failures(report: dict[str, Any]) -> str:
    """Return what failed episodes have in common as text; "" where success is not reported."""
    failures = report.get("failures")
    if failures is None:
        return ""
    lines = [f"{r['region']}: {_rate(r)}" for r in report.get("success_by_region", [])]
    lines.append(f"{len(failures)} of {report['episodes']} episodes failed")
    if not failures:
        return "\n".join(lines)
    numbers = " ".join(str(f["episode"]) for f in failures[:_LISTED])
    more = "" if len(failures) <= _LISTED else f" and {len(failures) - _LISTED} more"
    lines.append(f"play them again: --seed {failures[0]['seed']} --only {numbers}{more}")
    lines.append(f"{'':<16} {'failed':>12} {'succeeded':>12}")
    for name, means in report["by_outcome"].items():
        cells = ("-" if m is None else short(m) for m in (means["failed"], means["succeeded"]))
        lines.append(" ".join([f"{name:<16}", *(f"{text:>12}" for text in cells)]))
    return "\n".join(lines)


def _rate(region: dict[str, Any]) -> str:
    return f"{region['success_rate']:.1%} of {region['episodes']}"
