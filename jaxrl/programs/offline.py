"""Learning from recorded episodes: a program without environments.

Data that does not fit goes through the device piece by piece, another one in every cycle; while
one is learnt from, the next is read.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich import progress

from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.algorithms.offline_reward import RewardLearning
from jaxrl.config import TrainConfig, validate
from jaxrl.data import dataset
from jaxrl.data.dataset import Dataset
from jaxrl.data.hdf5 import EpisodeRef
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers import sinks
from jaxrl.policies import reward_files
from jaxrl.programs.program import Program, run_iterations
from jaxrl.types import EnvSpec, Metrics, PyTree, TrainState
from jaxrl.utils import sharding, streams
from jaxrl.utils.xla_options import compile_for_devices


def _bar(places: list[EpisodeRef]) -> Iterable[EpisodeRef]:
    return progress.track(places, "reading episodes", transient=True)


@dataclass(frozen=True, kw_only=True)
class OfflineProgram(Program):
    """A reward is learnt from recorded episodes."""

    data: Dataset
    algorithm: RewardLearning

    @property
    def spec(self) -> EnvSpec:
        """What networks must know of observations and actions."""
        return self.data.spec

    @property
    def output(self) -> Literal["rewards"]:
        """What is learnt, and the name of the folder that it is saved in."""
        return "rewards"

    @property
    def loss_window(self) -> int:
        """Return an epoch, in whole passes over the data.

        By an epoch alone the best reward would be the one that saw the easiest piece.
        """
        return _whole_rounds(self.config.cycles, len(self.data.chunks))

    def abstract_state(self) -> TrainState:
        """Return shapes, types and shardings of the training state."""
        state = jax.eval_shape(self.algorithm.init, jax.eval_shape(jax.random.key, 0))
        return sharding.abstract(self.mesh, state)

    def policy_params(self, learner: Any) -> PyTree:
        """Return the learnt reward."""
        return self.algorithm.policy_params(learner)

    def start(self, cycles: int = 0) -> "OfflineExecutor":
        """Begin to read the data."""
        del cycles
        return OfflineExecutor(self)

    def write_report(self, folder: Path) -> Sequence[str]:
        """Compare the learnt reward with the recorded one, on episodes that were held out."""
        if not self.data.held_out:
            return ()
        found = reward_files.report(folder, self.data)
        return (f"held-out episodes: correlation of rewards {found['pearson']:.3f}",)


def build(config: TrainConfig) -> OfflineProgram:
    """Look through the data, and compose what learns from it."""
    validate.check(config, device_count=len(jax.local_devices()))
    sinks.check_extras(config)
    if config.data.path is None:
        raise UserError("--data.path: which file or folder of recorded episodes?")
    data = dataset.scan(
        config.data.path,
        keys=config.data.obs_keys,
        part=config.data.part,
        holdout=config.data.holdout,
        chunk_size=config.offpolicy.buffer_size,
        progress=_bar,
    )
    print("\n".join([*_described(data), *_unread(config, data)]), flush=True)
    algorithm = algorithms.make_reward(config, data.spec, data.obs_stats, data.longest)
    return OfflineProgram(config, sharding.make_mesh(1), data=data, algorithm=algorithm)


def _described(data: Dataset) -> list[str]:
    values = [data.returns[place] for place in data.training]
    lines = [
        f"{len(data.training):,} episodes, {data.steps:,} steps, in {len(data.chunks)} chunk(s); "
        f"{len(data.held_out):,} held out; returns {min(values):.4g} to {max(values):.4g}"
    ]
    if not data.returns_vary():
        lines.append(
            "warning: every episode has the same return: any reward that adds up to it fits, and "
            "nothing can be learnt about single steps. Add episodes that went worse or better."
        )
    return lines


def _unread(config: TrainConfig, data: Dataset) -> list[str]:
    """Warn where some pieces are never read, or not as often as others in an epoch."""
    pieces, cycles, total = len(data.chunks), config.cycles, config.total_cycles
    start = f"warning: the data comes in {pieces} pieces, another one in every cycle"
    if total < pieces:
        steps = pieces * config.iterations * config.steps_per_iteration
        more = f"--total-steps {steps}" if config.total_steps else f"--cycles {pieces}"
        return [
            f"{start}, but there are {total} cycles: {pieces - total} pieces are never read. Use "
            f"{more} or more, or a larger --offpolicy.buffer-size."
        ]
    if cycles % pieces:
        return [
            f"{start}: epochs of {cycles} cycles read some more often than others, and their "
            f"losses differ by that. Use --cycles {_whole_rounds(cycles, pieces)}."
        ]
    return []


def _whole_rounds(cycles: int, pieces: int) -> int:
    return -(-cycles // pieces) * pieces


class OfflineExecutor:
    """Learns from one piece of the data in each cycle, and reads the next one meanwhile."""

    def __init__(self, program: OfflineProgram):
        self.program, self._data = program, program.data
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._next = self._threads.submit(self._piece, 0)
        self._loaded: tuple[int, ReplayState] | None = None
        self._compiled = None

    def _piece(self, number: int) -> tuple[int, ReplayState]:
        return number, ReplayState(*self._data.chunk(number))

    def _stored(self, number: int) -> ReplayState:
        """Return piece `number` on the device, and begin to read the one after it."""
        if self._loaded is None or self._loaded[0] != number:
            read = self._next.result()
            if read[0] != number:
                read = self._piece(number)
            self._loaded = None  # there may not be room for two
            self._loaded = number, jax.device_put(read[1])
            if (count := len(self._data.chunks)) > 1:
                self._next = self._threads.submit(self._piece, (number + 1) % count)
        return self._loaded[1]

    def init_state(self) -> TrainState:
        """Return the state a new run begins with."""
        key = streams.key(self.program.config.seed, streams.INIT, 1)
        return jax.jit(self.program.algorithm.init)(key)

    def wait(self) -> None:
        """Return when training can begin."""
        step, iterations = self.program.algorithm.train_step, self.program.config.iterations
        run = jax.jit(lambda s, d, n: run_iterations(step, iterations, n, s, d), donate_argnums=0)
        shapes = jax.eval_shape(lambda d: d, self._stored(0))
        lowered = run.lower(self.program.abstract_state(), shapes, np.uint32(iterations))
        self._compiled = compile_for_devices(lowered)

    def run_cycle(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is donated."""
        stored = self._stored(number % len(self._data.chunks))
        iterations = np.uint32(self.program.config.iterations)
        return self._compiled(state, stored, iterations)  # type: ignore[misc]

    def evaluate(self, params: PyTree, number: int) -> Episodes:
        """Recorded episodes cannot be played."""
        raise NotImplementedError("there is no environment to evaluate in")

    def evaluate_trials(self, params: PyTree, number: int) -> Episodes:
        """Recorded episodes cannot be played."""
        raise NotImplementedError("there is no environment to evaluate in")

    def close(self) -> None:
        """Stop reading ahead."""
        self._threads.shutdown(cancel_futures=True)
