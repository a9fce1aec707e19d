"""Learning from recorded episodes: a program without environments.

Data that does not fit goes through the device piece by piece, another one in every cycle; while
one is learnt from, the next is read.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from rich import progress

from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.config import TrainConfig, validate
from jaxrl.data import dataset
from jaxrl.data.dataset import DataSet
from jaxrl.data.hdf5 import Place
from jaxrl.errors import UserError
from jaxrl.loggers import sinks
from jaxrl.programs.program import Program, abstract_state, cycle
from jaxrl.types import Metrics, TrainState
from jaxrl.utils import sharding, streams
from jaxrl.utils.xla_options import compile_for_devices


def _bar(places: list[Place]) -> Iterable[Place]:
    return progress.track(places, "reading episodes", transient=True)


def build(config: TrainConfig) -> Program:
    """Look through the data, and compose what learns from it."""
    validate.check(config, device_count=len(jax.local_devices()))
    sinks.check_extras(config)
    if config.data.path is None:
        raise UserError("--data.path: which file or folder of recorded episodes?")
    data = dataset.look_through(
        config.data.path,
        keys=config.data.obs_keys,
        part=config.data.part,
        holdout=config.data.holdout,
        room=config.offpolicy.buffer_size,
        progress=_bar,
    )
    print("\n".join([*_described(data), *_unread(config, data)]), flush=True)
    algorithm = algorithms.make_reward(config, data.spec, data.moments, data.longest)
    return Program(config, sharding.make_mesh(1), data, algorithm)


def _described(data: DataSet) -> list[str]:
    values = [data.returns[place] for place in data.training]
    lines = [
        f"{len(data.training):,} episodes, {data.steps:,} steps, in {len(data.pieces)} piece(s); "
        f"{len(data.held_out):,} held out; returns {min(values):.4g} to {max(values):.4g}"
    ]
    if not data.varies():
        lines.append(
            "warning: every episode has the same return: any reward that adds up to it fits, and "
            "nothing can be learnt about single steps. Add episodes that went worse or better."
        )
    return lines


def _unread(config: TrainConfig, data: DataSet) -> list[str]:
    """Warn where some pieces are never read, or not as often as others in an epoch."""
    pieces, cycles, total = len(data.pieces), config.cycles, config.total_cycles
    told = f"warning: the data comes in {pieces} pieces, another one in every cycle"
    if total < pieces:
        steps = pieces * config.iterations * config.steps_per_iteration
        more = f"--total-steps {steps}" if config.total_steps else f"--cycles {pieces}"
        return [
            f"{told}, but there are {total} cycles: {pieces - total} pieces are never read. Use "
            f"{more} or more, or a larger --offpolicy.buffer-size."
        ]
    if cycles % pieces:
        return [
            f"{told}: epochs of {cycles} cycles read some more often than others, and their "
            f"losses differ by that. Use --cycles {_whole_rounds(cycles, pieces)}."
        ]
    return []


def cycles_to_judge_by(program: Program) -> int:
    """Return over how many of the last cycles a reward is judged: an epoch, in whole rounds.

    By an epoch alone the best reward would be the one that saw the easiest piece.
    """
    return _whole_rounds(program.config.cycles, len(_data(program).pieces))


def _whole_rounds(cycles: int, pieces: int) -> int:
    return -(-cycles // pieces) * pieces


class OfflineExecutor:
    """What `compiled.Programs` is to a run, for recorded episodes."""

    def __init__(self, program: Program):
        self.program, self._data = program, _data(program)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._next = self._threads.submit(self._piece, 0)
        self._loaded: tuple[int, ReplayState] | None = None
        self._compiled = None

    def _piece(self, number: int) -> tuple[int, ReplayState]:
        return number, ReplayState(*self._data.piece(number))

    def _stored(self, number: int) -> ReplayState:
        """Return piece `number` on the device, and begin to read the one after it."""
        if self._loaded is None or self._loaded[0] != number:
            read = self._next.result()
            if read[0] != number:
                read = self._piece(number)
            self._loaded = None  # there may not be room for two
            self._loaded = number, jax.device_put(read[1])
            if (count := len(self._data.pieces)) > 1:
                self._next = self._threads.submit(self._piece, (number + 1) % count)
        return self._loaded[1]

    def first_state(self) -> TrainState:
        """Return the state a fresh run begins with."""
        key = streams.key(self.program.config.seed, streams.INIT, 1)
        return jax.jit(self.program.algorithm.init)(key)

    def wait(self) -> None:
        """Return when training can begin."""
        algorithm, iterations = self.program.algorithm, self.program.config.iterations
        run = jax.jit(lambda s, d, n: cycle(algorithm, iterations, n, s, d), donate_argnums=0)
        shapes = jax.eval_shape(lambda d: d, self._stored(0))
        lowered = run.lower(abstract_state(self.program), shapes, np.uint32(iterations))
        self._compiled = compile_for_devices(lowered)

    def train(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is used up."""
        stored = self._stored(number % len(self._data.pieces))
        iterations = np.uint32(self.program.config.iterations)
        return self._compiled(state, stored, iterations)  # type: ignore[misc]

    def close(self) -> None:
        """Stop reading ahead."""
        self._threads.shutdown(cancel_futures=True)


def _data(program: Program) -> DataSet:
    return program.env
