"""Programs whose environments are compiled with everything else, as plain functions.

    start states -> first training state
    start states, training state -> training state after one cycle
    start states, policy -> episodes

Sampling start states is a program of its own, so that the physics of `reset` is compiled once and
serves all three. Random numbers follow from the seed and the number of the cycle: a resumed run
samples what it would have sampled. Programs take plain numbers, since the first use of every small
array function on an accelerator is a compilation too.

Several members can be one program: every array then has a first axis of members. A small network
keeps an accelerator as busy as a large one, so that many cost little more than one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, Sharding

from jaxrl.algorithms.off_policy import replay
from jaxrl.config import env_names
from jaxrl.envs import factory as environments
from jaxrl.envs.hooks import Hooks
from jaxrl.envs.nan_capture import NonFiniteCapture
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.evaluation import episodes as evaluation
from jaxrl.programs import trace_cache
from jaxrl.programs.compiler import Builder, PendingProgram
from jaxrl.programs.program import Program, run_iterations, with_settings
from jaxrl.types import Algorithm, Array, EnvSpec, Mean, Metrics, PyTree, TrainState
from jaxrl.utils import device_memory, processes, sharding, streams

# Of a device, in bytes, for every step that is unrolled: ant's has 760 kernels of about 40 KB.
_ROOM_PER_STEP = 2**29


@dataclass(frozen=True, kw_only=True)
class DeviceProgram(Program):
    """Environments, policy and learning in one compiled program."""

    env: VectorEnv
    algorithm: Algorithm
    cache: trace_cache.TraceCache | None = None  # traced programs of an earlier run

    @property
    def spec(self) -> EnvSpec:
        """What networks must know of observations and actions."""
        return self.env.spec

    @property
    def agents(self) -> int:
        """Agents in each environment."""
        return self.env.rows // self.config.num_envs

    @property
    def alone(self) -> Self:
        """The program of a single member."""
        return replace(self, members=(), mesh=sharding.make_mesh(1)) if self.members else self

    def abstract_state(self) -> TrainState:
        """Return shapes, types and shardings of the training state."""
        if self.members:
            return sharding.with_member_axis(
                self.alone.abstract_state(), len(self.members), self.mesh
            )
        pool = self.env.abstract_pool()
        state = jax.eval_shape(self.algorithm.init, jax.eval_shape(jax.random.key, 0), pool)
        return sharding.abstract(self.mesh, state)

    def start(self, cycles: int = 0) -> "DeviceExecutor":
        """Begin to compile."""
        del cycles
        return compile_programs(self)

    @property
    def hooks(self) -> Hooks:
        """The optional methods of the environment."""
        return self.env.hooks

    def shared_arrays(self, curriculum: PyTree) -> PyTree:
        """Return what all environments share for a curriculum on the CPU; mostly ()."""
        hook = self.hooks.shared_arrays
        return self.stack([hook(one) for one in self.split(curriculum)]) if hook else ()

    def first_shared_arrays(self) -> PyTree:
        """Return those of a new run."""
        return self.shared_arrays(self.env.template.curriculum)

    @property
    def trials_equal_evaluations(self) -> bool:
        """Whether evaluations play exactly those trials: no random number enters either."""
        chosen = self.config.eval.deterministic, self.hooks.trial_schedule.deterministic
        return all(chosen) and not self.env.template.key_leaves

    def nan_captures(self, state: TrainState) -> list[NonFiniteCapture]:
        """Return what was captured of non-finite environments, one for each member."""
        return self.split(state.collector.env.nan_capture)

    def unpack_env_state(self, packed: Any) -> PyTree:
        """Return a captured state as the environment's own structure."""
        return self.env.brax_state(packed)


@dataclass(frozen=True)
class DeviceExecutor:
    """Methods wait until their program is compiled, then dispatch it and return at once."""

    program: DeviceProgram
    _state: Any  # its structure: programs return plain tuples of arrays
    _sample: PendingProgram  # (seed, stream, number, curriculum, shared) -> pool
    _init: PendingProgram  # (seed, pool) -> state
    # (state, pool, iterations, shared) -> (state, metrics); the state is donated
    _cycle: PendingProgram
    # (policy params, pools, seed, stream, number, shared) -> Episodes
    _evaluate: PendingProgram | None
    _trials: PendingProgram | None = None  # likewise, of the trials that the curriculum follows
    _restart: PendingProgram | None = None  # (seed, number, pool) -> collector without replay
    _shared: "_SharedOnDevice" = field(default_factory=lambda: _SharedOnDevice())

    def init_state(self) -> TrainState:
        """Return the state a new run begins with."""
        first = self._for_members(self.program.env.template.curriculum)
        pool = self._pool(streams.INIT, 0, first)
        state = jax.tree.unflatten(self._state, self._init.result()(self._seed, pool))
        members = self.program.members
        return state.replace(learner=with_settings(state.learner, members)) if members else state

    def run_cycle(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is donated."""
        pool = self._pool(streams.TRAIN, number, state.curriculum)
        iterations = np.uint32(self.program.config.iterations)
        shared = self._shared.of(self.program, state.curriculum)
        leaves, metrics = self._cycle.result()(state, pool, iterations, shared)
        metrics = {name: Mean(*pair) for name, pair in metrics.items()}
        return jax.tree.unflatten(self._state, leaves), metrics

    def restart(self, state: TrainState, number: int) -> TrainState:
        """Start new episodes in all environments, with the curriculum of the state."""
        if self._restart is None:
            raise ValueError("no episode of this run is interrupted")
        pool = self._pool(streams.RESTART, 2 * number, state.curriculum)
        leaves = self._restart.result()(self._seed, np.uint32((2 * number + 1) % 2**32), pool)
        old = state.collector
        fresh = jax.tree.unflatten(jax.tree.structure(old.replace(replay=())), leaves)
        length = self.program.config.learning.rollout_length
        return state.replace(
            collector=fresh.replace(replay=replay.restart_episodes(old.replay, length))
        )

    def evaluate(self, params: PyTree, number: int, curriculum: PyTree = ()) -> evaluation.Episodes:
        """Play whole episodes with the policy after cycle `number`."""
        if self._evaluate is None:
            raise ValueError("this run has no evaluation")
        enough = range(_pools_for_evaluation(self.program))
        last = self._for_members(self.program.env.template.last_curriculum)
        pools = [self._pool(streams.EVALUATE, number * len(enough) + i, last) for i in enough]
        numbers = self._seed, np.uint32(streams.PLAY), np.uint32(number)
        shared = self._shared.of(self.program, curriculum)
        return evaluation.Episodes(*self._evaluate.result()(params, pools, *numbers, shared))

    def evaluate_trials(
        self, params: PyTree, number: int, curriculum: PyTree = ()
    ) -> evaluation.Episodes:
        """Play every trial once, with the policy after cycle `number`."""
        if self._trials is None:
            raise ValueError("this run does not resample")
        numbers = self._seed, np.uint32(streams.RESAMPLE), np.uint32(number)
        shared = self._shared.of(self.program, curriculum)
        return evaluation.Episodes(*self._trials.result()(params, [], *numbers, shared))

    def cycle_bytes(self) -> int:
        """Return the memory that a cycle needs on each device at its peak."""
        return self._cycle.result().bytes

    def wait(self) -> None:
        """Return when training can begin."""
        self._cycle.result()

    def close(self) -> None:
        """Nothing to release: threads end when everything is compiled."""

    @property
    def _seed(self) -> Any:
        members = self.program.members
        seeds = [member.seed for member in members] if members else self.program.config.seed
        return np.asarray(seeds, np.uint32)

    def _for_members(self, tree: PyTree) -> PyTree:
        return self.program.stack([tree] * max(len(self.program.members), 1))

    def _pool(self, stream: int, number: int, curriculum: PyTree) -> PyTree:
        count = np.uint32(number % 2**32)
        shared = self._shared.of(self.program, curriculum)
        return self._sample.result()(self._seed, np.uint32(stream), count, curriculum, shared)


class _SharedOnDevice:
    """The arrays that all environments share, on the devices, and what they were made for."""

    def __init__(self) -> None:
        self._curriculum: list[np.ndarray] = []
        self._arrays: PyTree = ()

    def of(self, program: DeviceProgram, curriculum: PyTree) -> PyTree:
        """Return the arrays of a curriculum; they are exchanged where it has changed."""
        if program.hooks.shared_arrays is None:
            return ()
        curriculum = processes.fetch(curriculum)
        leaves = jax.tree.leaves(curriculum)
        if not self._arrays or not all(map(np.array_equal, leaves, self._curriculum)):
            self._arrays = ()  # freed first: there may be no room for two
            place = _sharding_of(program)
            arrays = program.shared_arrays(curriculum)
            self._arrays = jax.tree.map(lambda leaf: sharding.put(leaf, place), arrays)
            self._curriculum = leaves
        return self._arrays


def _sharding_of(program: DeviceProgram) -> Sharding:
    """Return where shared arrays lie: on every device, or with the members they belong to."""
    return (sharding.rows if program.members else sharding.replicated)(program.mesh)


def compile_programs(program: DeviceProgram) -> DeviceExecutor:
    """Start compiling all programs of a run, or of all members at once, the slowest first.

    They are traced one after the other, or not at all if an earlier run cached them, but compiled
    side by side: XLA needs neither the interpreter nor the other programs' results.
    """
    many, pure, state = _Many(program), _Pure(program), program.abstract_state()
    everywhere = sharding.replicated(program.mesh)
    places = tuple(leaf.sharding for leaf in jax.tree.leaves(state))
    pool = many.shapes(sharding.with_sharding(program.env.abstract_pool(), everywhere))
    number = jax.ShapeDtypeStruct((), np.uint32, sharding=everywhere)
    seed = many.shapes(number)
    shared = many.shapes(sharding.with_sharding(program.alone.first_shared_arrays(), everywhere))
    loops = env_names.solves_in_loops(program.config.env, program.config.backend)
    with Builder(program.cache, program.env.template, loops=loops) as build:
        train = many.copies(pure.run_cycle, 0, 0, None, 0)
        where = (places, seed.sharding)
        whole = _fits_into_a_graph(program)
        given = (state, pool, number, shared)
        cycle = build(train, *given, places=where, donate_first=True, unrolled=whole)
        sample = many.copies(pure.sample, 0, None, None, 0, 0)
        given = (seed, number, number, state.curriculum, shared)
        pools = build(sample, *given, places=seed.sharding)
        init = build(many.copies(pure.init, 0, 0), seed, pool, places=places)
        params = program.algorithm.policy_params(state.learner)
        settings, schedule = program.config.eval, program.hooks.trial_schedule

        def player(deterministic: bool, pools: int) -> PendingProgram:
            play = many.copies(_evaluator(program, deterministic), 0, 0, 0, None, None, 0)
            given = (params, [pool] * pools, seed, number, number, shared)
            return build(play, *given, places=seed.sharding)

        evaluate = trials = None
        if settings.num_envs:
            evaluate = player(settings.deterministic, _pools_for_evaluation(program))
        if schedule.every:
            alike = settings.deterministic == schedule.deterministic
            trials = evaluate if alike and evaluate else player(schedule.deterministic, 0)
        restart = None
        if program.hooks.shared_arrays:
            rows = tuple(leaf.sharding for leaf in jax.tree.leaves(_without_replay(state)))
            restart = build(many.copies(pure.restart, 0, None, 0), seed, number, pool, places=rows)
    structure = jax.tree.structure(state)
    return DeviceExecutor(
        program,
        structure,
        _sample=pools,
        _init=init,
        _cycle=cycle,
        _evaluate=evaluate,
        _trials=trials,
        _restart=restart,
    )


def _without_replay(state: TrainState) -> PyTree:
    return state.collector.replace(replay=())


class _Pure(NamedTuple):
    """What a run computes, of plain numbers and trees; results are plain tuples and dicts."""

    program: DeviceProgram

    def sample(
        self, seed: Array, stream: Array, number: Array, curriculum: PyTree, shared: PyTree
    ) -> tuple:
        key = streams.key(seed, stream, number)
        nominal = not self.program.config.eval.randomize and stream == streams.EVALUATE
        fresh = self.program.env.sample_pool(key, curriculum, shared, nominal)
        return tuple(jax.tree.leaves(sharding.split_rows(fresh, _mesh_of_rows(self.program))))

    def init(self, seed: Array, pool: PyTree) -> tuple:
        return tuple(
            jax.tree.leaves(self.program.algorithm.init(streams.key(seed, streams.INIT, 1), pool))
        )

    def restart(self, seed: Array, number: Array, pool: PyTree) -> tuple:
        key = streams.key(seed, streams.RESTART, number)
        return tuple(jax.tree.leaves(_without_replay(self.program.algorithm.init(key, pool))))

    def run_cycle(
        self, state: TrainState, pool: PyTree, count: Array, shared: PyTree
    ) -> tuple[tuple, dict[str, tuple]]:
        iterations = self.program.config.iterations
        state, metrics = run_iterations(
            self.program.algorithm.train_step, iterations, count, _with_shared(state, shared), pool
        )
        state = _with_shared(state, ())
        return tuple(jax.tree.leaves(state)), {k: tuple(mean) for k, mean in metrics.items()}


def _with_shared(state: TrainState, shared: PyTree) -> TrainState:
    env = state.collector.env.replace(shared=shared)
    return state.replace(collector=state.collector.replace(env=env))


class _Many(NamedTuple):
    """How one run becomes a population; without members, nothing changes."""

    program: DeviceProgram

    def shapes(self, tree: PyTree) -> PyTree:
        """Give every array a first axis of members."""
        number = len(self.program.members)
        return sharding.with_member_axis(tree, number, self.program.mesh) if number else tree

    def copies(self, function: Callable, *axes: int | None) -> Callable:
        """Return the function for all members at once."""
        if not self.program.members:
            return function
        return sharding.vmap_members(function, self.program.mesh, *axes)


def _fits_into_a_graph(program: DeviceProgram) -> bool:
    """Tell whether an iteration may be unrolled, loops and all: PPO's on one device, if short.

    Nothing else was measured. A graph's nodes take memory beside that of the programs.
    """
    config, room = program.config, device_memory.of_device() or 0
    steps = config.ppo.rollout_length * config.task.action_repeat
    return config.algo == "ppo" and program.mesh.size == 1 and steps * _ROOM_PER_STEP <= room


def _mesh_of_rows(program: DeviceProgram) -> Mesh | None:
    """Return the devices that rows are split over: none where members are."""
    return None if program.members else program.mesh


def _pools_for_evaluation(program: DeviceProgram) -> int:
    if program.env.template.trials:
        return 0
    return -(-program.config.eval.num_envs // program.env.pool_size)


def _evaluator(program: DeviceProgram, deterministic: bool) -> Callable[..., tuple]:
    env = environments.for_evaluation(program.env, program.config.eval.num_envs)
    policy = program.algorithm.policy(deterministic)
    carry = program.algorithm.initial_carry(env.rows)
    mesh = None if env.trials else _mesh_of_rows(program)
    episodes = evaluation.episodes(env, policy, carry, mesh)

    def play(
        params: PyTree,
        pools: list[PyTree],
        seed: Array,
        stream: Array,
        number: Array,
        shared: PyTree,
    ):
        pool = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pools) if pools else None
        return tuple(episodes(params, streams.key(seed, stream, number), pool, shared))

    return play
