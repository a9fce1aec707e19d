"""The compiled programs of a run, as plain functions.

    start states -> first training state
    start states, training state -> training state after one cycle
    start states, policy -> episodes

Drawing start states is a program of its own, so that the physics of `reset` is compiled once and
serves all three. Random numbers follow from the seed and the number of the cycle: a resumed run
draws what it would have drawn. Programs take plain numbers, since the first use of every small
array function on an accelerator is a compilation too.

Several members can be one program: every array then has a first axis of members. A small network
keeps an accelerator as busy as a large one, so that many cost little more than one.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl.config import TrainConfig, env_names
from jaxrl.envs import factory as environments
from jaxrl.evaluation import episodes as evaluation
from jaxrl.programs.compiler import Builder
from jaxrl.programs.program import Program, abstract_state, cycle, goes_by_trials
from jaxrl.types import Array, Mean, Metrics, PyTree, TrainState
from jaxrl.utils import device_memory, sharding, streams

# Of a device, in bytes, for every step that is written out: ant's has 760 kernels of about 40 KB.
_ROOM_PER_STEP = 2**29


@dataclass(frozen=True)
class DeviceExecutor:
    """Every method waits until its program is compiled, then returns at once: devices run on."""

    program: Program
    _state: Any  # its structure: programs return plain tuples of arrays
    _draw: Future  # (seed, stream, number, curriculum) -> pool
    _init: Future  # (seed, pool) -> state
    _cycle: Future  # (state, pool, iterations) -> (state, metrics); the state is used up
    _evaluate: Future | None  # (policy params, pools, seed, stream, number) -> Episodes
    _trials: Future | None = None  # likewise, of the trials that resampling goes by

    def first_state(self) -> TrainState:
        """Return the state a fresh run begins with."""
        first = self._for_all(self.program.env.template.curriculum)
        pool = self._pool(streams.INIT, 0, first)
        state = jax.tree.unflatten(self._state, self._init.result()(self._seed, pool))
        members = self.program.members
        return state.replace(learner=_with_settings(state.learner, members)) if members else state

    def train(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is used up."""
        pool = self._pool(streams.TRAIN, number, state.curriculum)
        iterations = np.uint32(self.program.config.iterations)
        leaves, metrics = self._cycle.result()(state, pool, iterations)
        metrics = {name: Mean(*pair) for name, pair in metrics.items()}
        return jax.tree.unflatten(self._state, leaves), metrics

    def evaluate(self, params: PyTree, number: int) -> evaluation.Episodes:
        """Play whole episodes with the policy of cycle `number`."""
        if self._evaluate is None:
            raise ValueError("this run has no evaluation")
        enough = range(_pools_for_evaluation(self.program))
        last = self._for_all(self.program.env.template.last_curriculum)
        pools = [self._pool(streams.EVALUATE, number * len(enough) + i, last) for i in enough]
        numbers = self._seed, np.uint32(streams.PLAY), np.uint32(number)
        return evaluation.Episodes(*self._evaluate.result()(params, pools, *numbers))

    def trials(self, params: PyTree, number: int) -> evaluation.Episodes:
        """Play every trial once, for resampling after cycle `number`."""
        if self._trials is None:
            raise ValueError("this run does not resample")
        numbers = self._seed, np.uint32(streams.RESAMPLE), np.uint32(number)
        return evaluation.Episodes(*self._trials.result()(params, [], *numbers))

    def cycle_bytes(self) -> int:
        """Return the memory that a cycle needs on each device at its peak."""
        return self._cycle.result().bytes

    def wait(self) -> None:
        """Return when training can begin."""
        self._cycle.result()

    @property
    def _seed(self) -> Any:
        members = self.program.members
        seeds = [member.seed for member in members] if members else self.program.config.seed
        return np.asarray(seeds, np.uint32)

    def _for_all(self, tree: PyTree) -> PyTree:
        return self.program.together([tree] * max(len(self.program.members), 1))

    def _pool(self, stream: int, number: int, curriculum: PyTree) -> PyTree:
        count = np.uint32(number % 2**32)
        return self._draw.result()(self._seed, np.uint32(stream), count, curriculum)


def compile_programs(program: Program) -> DeviceExecutor:
    """Start compiling all programs of a run, or of all members at once, the slowest first.

    They are traced one after the other, or not at all if an earlier run kept them, but compiled
    side by side: XLA needs neither the interpreter nor the other programs' results.
    """
    many, pure, state = _Many(program), _Pure(program), abstract_state(program)
    everywhere = sharding.replicated(program.mesh)
    places = tuple(leaf.sharding for leaf in jax.tree.leaves(state))
    pool = many.shapes(sharding.placed(program.env.abstract_pool(), everywhere))
    number = jax.ShapeDtypeStruct((), np.uint32, sharding=everywhere)
    seed = many.shapes(number)
    loops = env_names.solves_in_loops(program.config.env, program.config.backend)
    with Builder(program.shelf, program.env.template, loops=loops) as build:
        train = many.copies(pure.run_cycle, 0, 0, None)
        where = (places, seed.sharding)
        whole = _fits_into_a_graph(program)
        done = build(train, state, pool, number, places=where, uses_up_first=True, unrolled=whole)
        draw = many.copies(pure.draw, 0, None, None, 0)
        drawn = build(draw, seed, number, number, state.curriculum, places=seed.sharding)
        first = build(many.copies(pure.init, 0, 0), seed, pool, places=places)
        params = program.algorithm.policy_params(state.learner)
        settings, resampling = program.config.eval, program.config.motion

        def player(deterministic: bool, pools: int) -> Future:
            play = many.copies(_evaluator(program, deterministic), 0, 0, 0, None, None)
            given = (params, [pool] * pools, seed, number, number)
            return build(play, *given, places=seed.sharding)

        played = tried = None
        if settings.num_envs:
            played = player(settings.deterministic, _pools_for_evaluation(program))
        if resampling.resample_interval and goes_by_trials(program):
            alike = settings.deterministic == resampling.resample_deterministic
            tried = played if alike and played else player(resampling.resample_deterministic, 0)
    return DeviceExecutor(program, jax.tree.structure(state), drawn, first, done, played, tried)


class _Pure(NamedTuple):
    """What a run computes, of plain numbers and trees; results are plain tuples and dicts."""

    program: Program

    def draw(self, seed: Array, stream: Array, number: Array, curriculum: PyTree) -> tuple:
        fresh = self.program.env.sample_pool(streams.key(seed, stream, number), curriculum)
        return tuple(jax.tree.leaves(sharding.split_rows(fresh, _mesh_of_rows(self.program))))

    def init(self, seed: Array, pool: PyTree) -> tuple:
        return tuple(
            jax.tree.leaves(self.program.algorithm.init(streams.key(seed, streams.INIT, 1), pool))
        )

    def run_cycle(
        self, state: TrainState, pool: PyTree, count: Array
    ) -> tuple[tuple, dict[str, tuple]]:
        iterations = self.program.config.iterations
        state, metrics = cycle(self.program.algorithm, iterations, count, state, pool)
        return tuple(jax.tree.leaves(state)), {k: tuple(mean) for k, mean in metrics.items()}


class _Many(NamedTuple):
    """How one run becomes a population; without members, nothing changes."""

    program: Program

    def shapes(self, tree: PyTree) -> PyTree:
        """Give every array a first axis of members."""
        number = len(self.program.members)
        return sharding.copies(tree, number, self.program.mesh) if number else tree

    def copies(self, function: Callable, *axes: int | None) -> Callable:
        """Return the function for all members at once."""
        if not self.program.members:
            return function
        return sharding.for_copies(function, self.program.mesh, *axes)


def _with_settings(learner: Any, members: tuple[TrainConfig, ...]) -> Any:
    """Give every member the settings that are arrays of its own."""
    hparams = {
        name: jax.device_put(
            np.asarray([getattr(member.learning, name) for member in members], old.dtype),
            old.sharding,
            may_alias=False,
        )
        for name, old in learner.hparams.items()
    }
    if hasattr(learner, "learning_rate"):  # PPO's, which moves from there by its schedule
        learner = learner.replace(learning_rate=hparams["learning_rate"].copy())
    return learner.replace(hparams=hparams)


def _fits_into_a_graph(program: Program) -> bool:
    """Tell whether an iteration may be written out, loops and all: PPO's on one device, if short.

    Nothing else was measured. A graph's nodes are kept beside the memory of the programs.
    """
    config, room = program.config, device_memory.of_device() or 0
    steps = config.ppo.rollout_length * config.task.action_repeat
    return config.algo == "ppo" and program.mesh.size == 1 and steps * _ROOM_PER_STEP <= room


def _mesh_of_rows(program: Program) -> Mesh | None:
    """Return the devices that rows are split over: none where members are."""
    return None if program.members else program.mesh


def _pools_for_evaluation(program: Program) -> int:
    if program.env.template.trials:
        return 0
    return -(-program.config.eval.num_envs // program.env.pool_size)


def _evaluator(program: Program, deterministic: bool) -> Callable[..., tuple]:
    env = environments.for_evaluation(program.env, program.config.eval.num_envs)
    policy = program.algorithm.policy(deterministic)
    carry = program.algorithm.initial_carry(env.rows)
    mesh = None if env.trials else _mesh_of_rows(program)
    episodes = evaluation.episodes(env, policy, carry, mesh)

    def play(params: PyTree, pools: list[PyTree], seed: Array, stream: Array, number: Array):
        pool = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pools) if pools else None
        return tuple(episodes(params, streams.key(seed, stream, number), pool))

    return play
