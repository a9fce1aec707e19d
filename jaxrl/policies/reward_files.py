"""Learnt rewards as files, and how well they do on episodes they have not seen."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.algorithms.offline_reward import RewardParams
from jaxrl.data.dataset import DataSet
from jaxrl.errors import UserError
from jaxrl.learning import normalizer
from jaxrl.networks import reward_network
from jaxrl.policies import files as network_files
from jaxrl.types import EnvSpec
from jaxrl.utils import atomic_io

_SHOWN = 4  # episodes in the picture


class LoadedReward(NamedTuple):
    """A learnt reward: call it with (obs, action, next_obs), any number of steps."""

    guess: Callable[..., Any]
    spec: EnvSpec
    info: dict[str, Any]

    def __call__(self, obs: Any, action: Any, next_obs: Any) -> np.ndarray:
        """Return the guessed reward of each step.

        Observations are dictionaries with the keys of the data; of a single one, the bare array.
        """
        before, after = (
            self._by_key(name, x) for name, x in [("obs", obs), ("next_obs", next_obs)]
        )
        return np.asarray(self.guess(before, action, after))

    def _by_key(self, name: str, obs: Any) -> Any:
        """Return an observation as the network was taught: with the keys of the data, no others."""
        keys = list(self.spec.obs) if isinstance(self.spec.obs, dict) else []
        if not keys:
            return obs
        if isinstance(obs, dict):
            wrong = next((f"lacks '{key}'" for key in keys if key not in obs), None)
        else:
            obs, wrong = {keys[0]: obs}, "is one array" if len(keys) > 1 else None
        if wrong:
            raise UserError(
                f"{name} {wrong}: this reward was learnt from a dictionary of {', '.join(keys)}."
            )
        return {key: obs[key] for key in keys}


def load_reward(path: str | Path, which: str = "best") -> LoadedReward:
    """Load a learnt reward from a run folder or a file."""
    file = _find(Path(path), which)
    spec, config, arrays, info = network_files.read(file)
    quadratic = "reward/fit/weights" in arrays
    with network_files.building(file):
        network = reward_network.build(spec, config, quadratic=quadratic)
        shapes = RewardParams(
            jax.eval_shape(network.init, jax.random.key(0)),
            jax.eval_shape(lambda: normalizer.init(spec.obs)),
        )
    params = network_files.fill(shapes, arrays, file)

    @jax.jit
    def guess(obs: Any, action: Any, next_obs: Any) -> jax.Array:
        before, after = (normalizer.normalize(params.obs_stats, x) for x in (obs, next_obs))
        return network.apply(params.reward, before, action, after)

    return LoadedReward(guess, spec, info)


def _find(path: Path, which: str) -> Path:
    """Return the file meant by a file, or by a run folder: stopped early, it has no best."""
    names = dict.fromkeys([which, "final"] if which == "best" else [which])
    candidates = [path, *(path / "rewards" / f"{name}.npz" for name in names)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(f"No learnt reward at '{path}': give a run folder with rewards/{which}.npz.")


def report(folder: Path, data: DataSet) -> dict[str, float]:
    """Compare guessed with true rewards on held-out episodes: rewards.json and a picture."""
    reward = load_reward(folder)
    pairs = []
    for place in data.held_out:
        episode = data.read(place)
        pairs.append((reward(episode.obs, episode.action, episode.next_obs), episode.reward))
    guessed, true = (np.concatenate(side) for side in zip(*pairs, strict=True))
    found = {
        "episodes": len(pairs),
        "steps": len(true),
        "pearson": _pearson(guessed, true),
        # Telling good episodes from bad is the smaller part: steps within each are told apart here.
        "pearson_within_episodes": _pearson_within(pairs),
        "pearson_of_returns": _pearson(*np.array([(g.sum(), t.sum()) for g, t in pairs]).T),
    }
    atomic_io.write_text(folder / "rewards.json", json.dumps(found, indent=1) + "\n")
    _draw(folder / "plots" / "rewards.png", pairs[:_SHOWN], found["pearson"])
    return found


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation, 0 where one side never changes."""
    if not np.ptp(a) or not np.ptp(b):  # a deviation of what never changes may be rounded up
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _pearson_within(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the mean correlation within episodes, of those that have steps to tell apart."""
    found = [_pearson(guessed, true) for guessed, true in pairs if np.ptp(true)]
    return float(np.mean(found)) if found else 0.0


def _draw(path: Path, pairs: list[tuple[np.ndarray, np.ndarray]], pearson: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (7, 1.8 * len(pairs) + 0.6)
    figure, places = plt.subplots(len(pairs), 1, figsize=size, dpi=120, squeeze=False)
    for axes, (guessed, true) in zip(places.flat, pairs, strict=True):
        axes.plot(true, color="#9aa5b1", linewidth=2.2, label="true reward")
        axes.plot(guessed, color="#1f4e79", linewidth=1.2, label="learnt from returns")
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
