"""What a set of played episodes tells: how sure the means are, and what failures have in common.

Episodes are known by the seed and their number: number i of a seed starts alike however many are
played with it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.envs.vector_env import EnvState, VectorEnv
from jaxrl.evaluation.episodes import Episodes
from jaxrl.types import PyTree
from jaxrl.utils import streams, xla_options

_RESAMPLES = 1000
_LISTED = 20  # failed episodes printed; the file has all


class Table(NamedTuple):
    """One row per episode."""

    number: np.ndarray  # of the episode, given its seed
    reward: np.ndarray
    length: np.ndarray
    success: np.ndarray | None  # bool
    timed_out: np.ndarray  # bool: it was truncated, and did not terminate
    happened: dict[str, np.ndarray]  # bool: was a metric of zeros and ones ever one?
    total: dict[str, np.ndarray]  # sums of all other metrics
    start: np.ndarray | None = None  # [episodes, 2]


def recorder(env: Any) -> Callable[[EnvState], PyTree] | None:
    """Return what notes the metrics of every step, where there are failures to be told apart."""
    if not isinstance(env, VectorEnv) or "success" not in env.template.state_shapes.metrics:
        return None
    return lambda state: dict(state.packed.metrics)


def table(result: Episodes, env: Any, start: np.ndarray | None = None) -> Table:
    """Sum up each episode; `result.trace` holds the metrics of every step, if there are any."""
    lengths = np.asarray(result.lengths)
    repeat = getattr(env, "action_repeat", 1)
    happened, total = {}, {}
    for name, values in (result.trace or {}).items():
        turns = np.arange(len(values))[:, None] * repeat
        played = np.where(turns < lengths[None], np.asarray(values, np.float64), 0.0)
        if name != "success" and np.isin(played, (0.0, 1.0)).all():
            happened[name] = played.any(axis=0)
        elif name != "success":
            total[name] = played.sum(axis=0)
    success = None if result.successes is None else np.asarray(result.successes) > 0.5
    timed_out = np.asarray(result.truncated)
    number, reward = np.arange(len(lengths)), np.asarray(result.returns, np.float64)
    return Table(number, reward, lengths, success, timed_out, happened, total, start)


def only(rows: Any, chosen: tuple[int, ...]) -> Any:
    """Return some of the episodes, of a Table or of Episodes."""
    picked = list(chosen)
    return jax.tree.map(lambda column: column[picked], rows)


def start_positions(env: Any, seed: int) -> np.ndarray | None:
    """Return [episodes, 2]: where each starts, if the environment has start_position(state)."""
    locate: Callable | None = None
    if isinstance(env, VectorEnv) and not env.trials:
        locate = getattr(env.env, "start_position", None)
    if locate is None:
        return None
    whole = replace(env, cached_template=env.full_template)

    def starts(key: Any) -> Any:
        state = whole.reset(jax.random.split(key)[0], stagger=False)  # as evaluation draws them
        return jax.vmap(locate)(whole.brax_state(state.packed))

    # Whatever its physics: a program that runs once gains nothing from being split over threads.
    play = jax.jit(starts, compiler_options=xla_options.options(loops=True))
    return np.asarray(play(streams.key(seed, streams.COMMAND)))[:, :2]


def bootstrap(values: np.ndarray, share: float = 0.95) -> tuple[float, float]:
    """Return an interval of the mean, from means of the values drawn anew. Efron, 1979."""
    rng, edge = np.random.default_rng(0), 50 * (1 - share)
    count = len(values)
    means = [values[rng.integers(0, count, count)].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [edge, 100 - edge])
    return float(low), float(high)


def wilson(successes: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Return an interval of a rate. Wilson, 1927.

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n); drawing anew what always succeeded would
    give no width at all.
    """
    p, n = successes / number, number
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return float((middle - half) / scale), float((middle + half) / scale)


def details(rows: Table, seed: int) -> dict[str, Any]:
    """Return the analysis as JSON values."""
    finite = np.isfinite(rows.reward).all()
    report: dict[str, Any] = {"confidence": {"mean_ep_length": bootstrap(rows.length)}}
    report["confidence"]["mean_reward"] = bootstrap(rows.reward) if finite else None
    if rows.success is None:
        return report
    count = int(rows.success.sum())
    report["confidence"]["success_rate"] = wilson(count, len(rows.success))
    report["failures"] = [_failure(rows, int(i), seed) for i in np.flatnonzero(~rows.success)]
    report["by_outcome"] = by_outcome(rows)
    if rows.start is not None:
        report["starts"] = rows.start.tolist()
        report["successes"] = rows.success.tolist()
        report["success_by_region"] = by_region(rows.start, rows.success)
    return report


def _failure(rows: Table, i: int, seed: int) -> dict[str, Any]:
    """Describe one failed episode, with all that is needed to play it again."""
    found: dict[str, Any] = {
        "episode": int(rows.number[i]),
        "seed": seed,
        "reward": float(rows.reward[i]),
        "length": int(rows.length[i]),
        "timed_out": bool(rows.timed_out[i]),
    }
    found |= {name: bool(column[i]) for name, column in rows.happened.items()}
    found |= {name: float(column[i]) for name, column in rows.total.items()}
    return found | ({} if rows.start is None else {"start": rows.start[i].tolist()})


def by_outcome(rows: Table) -> dict[str, dict[str, float | None]]:
    """Return for each metric its mean over failed and over successful episodes.

    Of what happens or does not, that is the share of episodes in which it did.
    """
    won = np.asarray(rows.success, bool)
    columns = {"timed_out": rows.timed_out, **rows.happened, **rows.total}

    def mean(values: np.ndarray) -> float | None:
        return float(values.mean()) if len(values) else None

    return {n: {"failed": mean(c[~won]), "succeeded": mean(c[won])} for n, c in columns.items()}


def by_region(start: np.ndarray, success: np.ndarray) -> list[dict[str, Any]]:
    """Return the success rate in the four parts that the medians of the starts divide them into."""
    middle = np.median(start, axis=0)
    found = []
    for right in (False, True):
        for upper in (False, True):
            here = ((start[:, 0] > middle[0]) == right) & ((start[:, 1] > middle[1]) == upper)
            sides = f"x {'>' if right else '<='} {middle[0]:.3g}, y {'>' if upper else '<='} "
            where, count = f"{sides}{middle[1]:.3g}", int(here.sum())
            if count:
                rate = float(success[here].mean())
                found.append({"region": where, "episodes": count, "success_rate": rate})
    return found


def printed(report: dict[str, Any]) -> str:
    """Return the analysis as people read it."""
    lines = []
    for name, interval in report["confidence"].items():
        if interval and name in report:
            low, high = interval
            lines.append(f"{name:<16} {report[name]:>12,.3f}   (95%: {low:,.3f} to {high:,.3f})")
    failures = report.get("failures")
    if failures is None:
        return "\n".join(lines)
    lines += [f"{r['region']}: {_rate(r)}" for r in report.get("success_by_region", [])]
    lines.append(f"{len(failures)} of {report['episodes']} episodes failed")
    if not failures:
        return "\n".join(lines)
    numbers = " ".join(str(f["episode"]) for f in failures[:_LISTED])
    more = "" if len(failures) <= _LISTED else f" and {len(failures) - _LISTED} more"
    lines.append(f"play them again: --seed {failures[0]['seed']} --only {numbers}{more}")
    lines.append(f"{'':<16} {'failed':>12} {'succeeded':>12}")
    for name, means in report["by_outcome"].items():
        shown = ("-" if m is None else f"{m:,.3f}" for m in (means["failed"], means["succeeded"]))
        lines.append(" ".join([f"{name:<16}", *(f"{text:>12}" for text in shown)]))
    return "\n".join(lines)


def _rate(region: dict[str, Any]) -> str:
    return f"{region['success_rate']:.1%} of {region['episodes']}"
