"""Sums over running and finished episodes, on the device beside the environments."""

import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array, Mean, Metrics

# The names that users of Stable-Baselines3 know.
_NAMES = {"return": "ep_rew_mean", "length": "ep_len_mean", "success": "success_rate"}


class EpisodeStats(struct.PyTreeNode):
    """One row per environment."""

    complete: Array  # bool [N], was the running episode observed from its first step?
    running: dict[str, Array]  # sums over the current episode, [N] each
    finished: dict[str, Array]  # sums over episodes that ended since the last `pop`, [N] each


def init(complete: Array, metrics: dict[str, Array]) -> EpisodeStats:
    """Return empty statistics; `metrics` are those of the environment."""
    names = ["return", "length", *metrics]

    def zeros(names: list[str]) -> dict[str, Array]:
        return {name: jnp.zeros(complete.shape, jnp.float32) for name in names}

    return EpisodeStats(complete, zeros(names), zeros([*names, "count", "diverged"]))


def update(
    statistics: EpisodeStats,
    metrics: dict[str, Array],
    reward: Array,
    steps: Array,
    ended: Array,
    finite: Array,
) -> EpisodeStats:
    """Add a step to the running episodes, and ended episodes to the finished sums."""
    running = {
        "return": statistics.running["return"] + reward,
        "length": statistics.running["length"] + steps,
    }
    for name, value in metrics.items():
        value = jnp.nan_to_num(value.astype(jnp.float32), posinf=0.0, neginf=0.0)
        # Success is the value at the end; every other metric is summed like the reward.
        running[name] = value if name == "success" else statistics.running[name] + value
    counted = ended & statistics.complete
    before = statistics.finished
    finished = {name: before[name] + jnp.where(counted, running[name], 0.0) for name in running}
    finished["count"] = before["count"] + counted
    finished["diverged"] = before["diverged"] + ~finite
    return statistics.replace(running=running, finished=finished)


def finished_episodes(statistics: EpisodeStats, ended: Array) -> dict[str, Array]:
    """Return return and length of each episode that ends in this step, [N]; NaN elsewhere."""
    counted = ended & statistics.complete
    return {
        name: jnp.where(counted, statistics.running[name], jnp.nan) for name in ("return", "length")
    }


def restart(statistics: EpisodeStats, ended: Array) -> EpisodeStats:
    """Clear the running sums of ended episodes; the next ones are observed from their start."""
    running = {k: jnp.where(ended, 0.0, v) for k, v in statistics.running.items()}
    return statistics.replace(running=running, complete=statistics.complete | ended)


def pop(statistics: EpisodeStats) -> tuple[EpisodeStats, Metrics]:
    """Return the means over finished episodes, and the statistics without them."""
    total = {name: jnp.sum(value) for name, value in statistics.finished.items()}
    number = total.pop("count")
    metrics = {"rollout/diverged": Mean(total.pop("diverged"), jnp.ones((), jnp.float32))}
    for name, value in total.items():
        metrics["rollout/" + _NAMES.get(name, f"ep_{name}")] = Mean(value, number)
    cleared = {name: jnp.zeros_like(value) for name, value in statistics.finished.items()}
    return statistics.replace(finished=cleared), metrics
