"""A program: what a run computes, built from its settings, before anything is compiled.

    build(config) -> Program            environments or data, networks, algorithm
    program.start(cycles) -> Executor   begins to compile, then runs cycle by cycle

There are three kinds: `device` (environments are part of the compiled program), `gymnasium` (they
step on the CPU) and `offline` (recorded episodes). The host loop sees this interface only.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl.algorithms.off_policy.offline import OfflineAlgorithm
from jaxrl.config import TrainConfig
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.hooks import Hooks
from jaxrl.envs.nan_capture import NonFiniteCapture
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation.episodes import Episodes
from jaxrl.types import RECORDS, Algorithm, Array, EnvSpec, Learner, Metrics, PyTree, TrainState
from jaxrl.utils import sharding

if TYPE_CHECKING:
    from jaxrl.programs.executor import Executor

PER_ITERATION = "iterations/"  # prefix of metrics that are logged for every iteration
_PER_ITERATION = ("train/R_loss",)


@dataclass(frozen=True)
class Program(abc.ABC):
    """One run, or a population of runs that are trained together."""

    config: TrainConfig
    mesh: Mesh
    env: VectorEnv | GymnasiumEnv | None = field(kw_only=True)  # to train or evaluate in
    algorithm: Algorithm | OfflineAlgorithm = field(kw_only=True)
    members: tuple[TrainConfig, ...] = ()  # of a population; () for a single run: no such axis

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """What networks must know of observations and actions."""

    @abc.abstractmethod
    def abstract_state(self) -> TrainState:
        """Return shapes, types and shardings of the training state."""

    def policy_params(self, learner: Learner) -> PyTree:
        """Return the part of a learner that is evaluated; None where only a reward is learnt."""
        return self.algorithm.policy_params and self.algorithm.policy_params(learner)

    def reward_params(self, learner: Learner) -> PyTree:
        """Return the reward that a learner has learnt; None where it learns none."""
        return self.algorithm.reward_params and self.algorithm.reward_params(learner)

    @property
    def info(self) -> dict[str, Any]:
        """What files of networks say of their origin, as JSON values, besides the environment."""
        return {}

    @property
    def data_counts(self) -> dict[str, float]:
        """Episodes and steps of recorded data, as metrics; none where environments are stepped."""
        return {}

    def networks(self, learner: Learner) -> dict[str, PyTree]:
        """Return the networks that are saved, by the folders that they are saved in."""
        found = {"policies": self.policy_params(learner), "rewards": self.reward_params(learner)}
        return {folder: params for folder, params in found.items() if params is not None}

    @abc.abstractmethod
    def start(self, cycles: int = 0) -> "Executor":
        """Begin to compile; `cycles` have been trained before."""

    @property
    def step_metric(self) -> str:
        """Name under which the steps of training are logged."""
        return "time/total_timesteps"

    @property
    def records_episodes(self) -> bool:
        """Whether training steps environments, whose episodes can be recorded."""
        return True

    @property
    def supports_processes(self) -> bool:
        """Whether several processes can train it together."""
        return True

    @property
    def alone(self) -> Self:
        """The program of a single member."""
        return self

    @property
    def agents(self) -> int:
        """Agents in each environment."""
        return 1

    @property
    def loss_window(self) -> int:
        """Number of cycles whose mean loss scores what is learnt; 0: evaluations score it."""
        return 0

    @property
    def hooks(self) -> Hooks:
        """The optional methods of the environment that is trained in."""
        return Hooks()

    @property
    def trials_equal_evaluations(self) -> bool:
        """Whether evaluations play exactly the trials that the curriculum follows."""
        return False

    def nan_captures(self, state: TrainState) -> list[NonFiniteCapture]:
        """Return what was captured of non-finite environments, one for each member."""
        del state
        return []

    def unpack_env_state(self, packed: Any) -> PyTree:
        """Return a captured state as the environment's own structure."""
        return packed

    def summarize(self, result: Episodes) -> dict[str, float]:
        """Return the metrics of an evaluation, with those of the environment's trials."""
        return evaluation.summarize(result, self.env)

    def write_report(self, folder: Path) -> Sequence[str]:
        """Write what this kind of run adds to its folder at the end; return lines to print."""
        del folder
        return ()

    def split(self, tree: PyTree) -> list[PyTree]:
        """Return every member's part of a tree of arrays."""
        if not self.members:
            return [tree]
        return [jax.tree.map(itemgetter(i), tree) for i in range(len(self.members))]

    def stack(self, parts: list[PyTree]) -> PyTree:
        """Join the parts of all members on the CPU."""
        return jax.tree.map(lambda *x: np.stack(x), *parts) if self.members else parts[0]


def run_iterations(
    train_step: Callable[..., tuple[TrainState, Metrics]],
    iterations: int,
    count: Array,
    state: TrainState,
    data: PyTree,
) -> tuple[TrainState, Metrics]:
    """Run `count` train steps, at most `iterations`; their metrics are summed on the device.

    The count is an argument of the program so that a compiler cannot know it: one that unrolls
    loops of known length unrolls one iteration, not hundreds.
    """
    step = jax.jit(train_step)  # traced once, for its shapes and for the loop
    _, shapes = jax.eval_shape(step, state, data)
    records = {name for name in shapes if name.startswith(RECORDS)}  # arrays, which do not add up
    each = {
        name: _zeros(shapes[name], iterations)
        for name in (*_PER_ITERATION, *records)
        if name in shapes
    }
    summed = {name: shapes[name] for name in shapes if name not in records}

    def one(number: Array, carry: tuple[TrainState, Metrics, Metrics]):
        state, total, each = carry
        state, new = step(state, data)
        each = {
            name: jax.tree.map(lambda all, x: all.at[number].set(x), rows, new[name])
            for name, rows in each.items()
        }
        total = {name: jax.tree.map(jnp.add, total[name], new[name]) for name in total}
        return state, total, each

    start = (state, _zeros(summed), each)
    state, total, each = jax.lax.fori_loop(jnp.zeros_like(count), count, one, start)
    named = {n if n in records else f"{PER_ITERATION}{n}": rows for n, rows in each.items()}
    return state, total | named


def _zeros(shapes: PyTree, *axis: int) -> PyTree:
    return jax.tree.map(lambda s: jnp.zeros((*axis, *s.shape), s.dtype), shapes)


def with_settings(learner: Learner, members: tuple[TrainConfig, ...]) -> Learner:
    """Give every member the settings that are arrays of its own."""
    hparams = {
        name: sharding.put(
            np.asarray([getattr(member.learning, name) for member in members], old.dtype),
            old.sharding,
        )
        for name, old in learner.hparams.items()
    }
    if hasattr(learner, "learning_rate"):  # moves from there by its schedule
        learner = learner.replace(learning_rate=hparams["learning_rate"].copy())
    return learner.replace(hparams=hparams)
