"""Learnt rewards as files, and their accuracy on held-out episodes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.algorithms.off_policy.reward_model import RewardParams
from jaxrl.data.dataset import Dataset
from jaxrl.errors import UserError
from jaxrl.learning import normalizer
from jaxrl.networks import reward_network
from jaxrl.policies import files as network_files
from jaxrl.types import Array, EnvSpec, PyTree, RewardFn
from jaxrl.utils import atomic_io

_PLOTTED = 4  # episodes


class LoadedReward(NamedTuple):
    """A learnt reward: call it with (obs, action, next_obs), any number of steps."""

    predict: Callable[..., Array]
    spec: EnvSpec
    info: dict[str, Any]

    def __call__(self, obs: Any, action: Any, next_obs: Any) -> np.ndarray:
        """Return the predicted reward of each step.

        Observations are dictionaries with the keys of the data, or the array of a single key.
        """
        before, after = (
            self._by_key(name, x) for name, x in [("obs", obs), ("next_obs", next_obs)]
        )
        return np.asarray(self.predict(before, action, after))

    def _by_key(self, name: str, obs: Any) -> Any:
        """Return an observation with the keys of the training data and no others."""
        is_dict = isinstance(self.spec.obs, dict)
        keys = list(self.spec.obs) if is_dict else self.info.get("obs_keys", [])
        if isinstance(obs, dict):
            problem = next((f"lacks '{key}'" for key in keys if key not in obs), None)
        else:
            problem = "is one array" if is_dict and len(keys) > 1 else None
            obs = dict.fromkeys(keys[:1], obs) or obs
        if problem:
            raise UserError(
                f"{name} {problem}: this reward was learnt from a dictionary of {', '.join(keys)}."
            )
        if not keys:
            return obs
        return {key: obs[key] for key in keys} if is_dict else obs[keys[0]]


def load_reward(path: str | Path, which: str = "best") -> LoadedReward:
    """Load a learnt reward from a run folder or a file."""
    if not isinstance(path, str | Path):
        raise UserError(f"load_reward: give a run folder or a reward's file, not {path!r}.")
    file = _find(Path(path), which)
    spec, config, arrays, info = network_files.read(file)
    quadratic = "reward/fit/weights" in arrays
    with network_files.building(file):
        network = reward_network.build(spec, config, quadratic=quadratic)
        shapes = RewardParams(
            jax.eval_shape(network.init, jax.random.key(0)),
            jax.eval_shape(lambda: normalizer.init(spec.obs, config.clip_obs)),
        )
    params = network_files.fill(shapes, arrays, file)

    @jax.jit
    def predict(obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        before, after = (normalizer.normalize(params.obs_stats, x) for x in (obs, next_obs))
        return network.apply(params.reward, before, action, after)

    return LoadedReward(predict, spec, info)


def reward_fn(path: Path, spec: EnvSpec) -> RewardFn:
    """Load the reward that --reward-from names, for observations and actions of `spec`."""
    reward = load_reward(path)
    shapes = [jax.tree.map(lambda s: s.shape, obs) for obs in (reward.spec.obs, spec.obs)]
    if shapes[0] != shapes[1] or reward.spec[1:] != spec[1:]:
        raise UserError(
            f"--reward-from: the reward of '{path}' was learnt from observations {shapes[0]} and "
            f"{reward.spec.action}; this run has {shapes[1]} and {spec.action}."
        )
    return reward.predict


def _find(path: Path, which: str) -> Path:
    """Return the reward file of a path; a run that was stopped early has no best."""
    names = dict.fromkeys([which, "final"] if which == "best" else [which])
    candidates = [path, *(path / "rewards" / f"{name}.npz" for name in names)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(f"No learnt reward at '{path}': give a run folder with rewards/{which}.npz.")


def report(folder: Path, data: Dataset) -> dict[str, float]:
    """Compare predicted with true rewards on held-out episodes: rewards.json and a plot."""
    reward = load_reward(folder)
    pairs = []
    for index in data.held_out:
        episode = data.read(index)
        pairs.append((reward(episode.obs, episode.action, episode.next_obs), episode.reward))
    predicted, true = (np.concatenate(side) for side in zip(*pairs, strict=True))
    report = {
        "episodes": len(pairs),
        "steps": len(true),
        "pearson": _pearson(predicted, true),
        # Good and bad episodes are easy to distinguish; this is about steps within an episode.
        "pearson_within_episodes": _pearson_within(pairs),
        "pearson_of_returns": _pearson(*np.array([(p.sum(), t.sum()) for p, t in pairs]).T),
    }
    atomic_io.write_text(folder / "rewards.json", json.dumps(report, indent=1) + "\n")
    _draw(folder / "plots" / "rewards.png", pairs[:_PLOTTED], report["pearson"])
    return report


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation; 0 if one side is constant."""
    if not np.ptp(a) or not np.ptp(b):  # rounding may give a constant a deviation
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _pearson_within(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the mean correlation within episodes whose reward is not constant."""
    each = [_pearson(predicted, true) for predicted, true in pairs if np.ptp(true)]
    return float(np.mean(each)) if each else 0.0


def _draw(path: Path, pairs: list[tuple[np.ndarray, np.ndarray]], pearson: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (7, 1.8 * len(pairs) + 0.6)
    figure, places = plt.subplots(len(pairs), 1, figsize=size, dpi=120, squeeze=False)
    for axes, (predicted, true) in zip(places.flat, pairs, strict=True):
        axes.plot(true, color="#9aa5b1", linewidth=2.2, label="true reward")
        axes.plot(predicted, color="#1f4e79", linewidth=1.2, label="learnt from returns")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    places.flat[-1].set_xlabel("step")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / size[1]))
    figure.suptitle(f"held-out episodes, correlation {pearson:.2f}", x=0.02, ha="left", fontsize=11)
    lines = places.flat[0].get_legend_handles_labels()
    figure.legend(*lines, loc="upper right", frameon=False, ncols=2)
    path.parent.mkdir(exist_ok=True)
    with atomic_io.replacing(path) as file:
        figure.savefig(file, format="png")
    plt.close(figure)
