"""Sums over running and finished episodes, kept on the device beside the environments."""

import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array, Mean, Metrics

# The names that users of Stable-Baselines3 know.
_NAMES = {"return": "ep_rew_mean", "length": "ep_len_mean", "success": "success_rate"}


class EpisodeStats(struct.PyTreeNode):
    """One row per environment."""

    whole: Array  # bool [N], was the running episode seen from its first step?
    running: dict[str, Array]  # sums over the current episode, [N] each
    finished: dict[str, Array]  # sums over the episodes that ended since last asked, [N] each


def begin(whole: Array, metrics: dict[str, Array]) -> EpisodeStats:
    """Start with nothing seen; `metrics` are the environment's own."""
    names = ["return", "length", *metrics]

    def zeros(names: list[str]) -> dict[str, Array]:
        return {name: jnp.zeros(whole.shape, jnp.float32) for name in names}

    return EpisodeStats(whole, zeros(names), zeros([*names, "count", "diverged"]))


def count(
    statistics: EpisodeStats,
    metrics: dict[str, Array],
    reward: Array,
    taken: Array,
    ended: Array,
    healthy: Array,
) -> EpisodeStats:
    """Add a step to the running episodes, and ended episodes to the finished sums."""
    running = {
        "return": statistics.running["return"] + reward,
        "length": statistics.running["length"] + taken,
    }
    for name, value in metrics.items():
        value = jnp.nan_to_num(value.astype(jnp.float32), posinf=0.0, neginf=0.0)
        # Success is what holds at the end; every other metric is summed like the reward.
        running[name] = value if name == "success" else statistics.running[name] + value
    complete = ended & statistics.whole
    before = statistics.finished
    finished = {name: before[name] + jnp.where(complete, running[name], 0.0) for name in running}
    finished["count"] = before["count"] + complete
    finished["diverged"] = before["diverged"] + ~healthy
    return statistics.replace(running=running, finished=finished)


def restart(statistics: EpisodeStats, ended: Array) -> EpisodeStats:
    """Forget the running sums of ended episodes; the next ones are seen from their start."""
    running = {k: jnp.where(ended, 0.0, v) for k, v in statistics.running.items()}
    return statistics.replace(running=running, whole=statistics.whole | ended)


def take(statistics: EpisodeStats) -> tuple[EpisodeStats, Metrics]:
    """Return the means over finished episodes and forget them."""
    total = {name: jnp.sum(value) for name, value in statistics.finished.items()}
    number = total.pop("count")
    metrics = {"rollout/diverged": Mean(total.pop("diverged"), jnp.ones((), jnp.float32))}
    for name, value in total.items():
        metrics["rollout/" + _NAMES.get(name, f"ep_{name}")] = Mean(value, number)
    cleared = {name: jnp.zeros_like(value) for name, value in statistics.finished.items()}
    return statistics.replace(finished=cleared), metrics
