"""The compiled programs of a run, as plain functions.

    start states -> first training state
    start states, training state -> training state after one cycle
    start states, policy -> episodes

Drawing start states is a program of its own, so that the physics of `reset` is compiled once and
serves all three. Random numbers follow from the seed and the number of the cycle: a resumed run
draws what it would have drawn. Programs take plain numbers, since the first use of every small
array function on an accelerator is a compilation too.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import build as environments
from jaxrl.runtime import evaluation, parallel
from jaxrl.runtime.program import Program, abstract_state, cycle
from jaxrl.types import Array, Key, Metrics, PyTree, TrainState

_INIT, _TRAIN, _EVALUATE, _PLAY = range(4)  # independent streams of random numbers


@dataclass(frozen=True)
class Programs:
    """Every method waits until its program is compiled, then returns at once: devices run on."""

    program: Program
    _draw: Future  # (seed, stream, number) -> pool
    _init: Future  # (seed, pool) -> state
    _cycle: Future  # (state, pool) -> (state, metrics); the state given to it is used up
    _evaluate: Future  # (policy params, pools, seed, number) -> Episodes

    def first_state(self) -> TrainState:
        """Return the state a fresh run begins with."""
        pool = self._pool(_INIT, 0)
        return self._init.result()(self._seed, pool)

    def train(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is used up."""
        pool = self._pool(_TRAIN, number)
        return self._cycle.result()(state, pool)

    def evaluate(self, params: PyTree, number: int) -> evaluation.Episodes:
        """Play whole episodes with the policy of cycle `number`."""
        enough = range(_pools_for_evaluation(self.program))
        pools = [self._pool(_EVALUATE, number * len(enough) + i) for i in enough]
        return self._evaluate.result()(params, pools, self._seed, np.uint32(number))

    def wait(self) -> None:
        """Return when training can begin."""
        self._cycle.result()

    @property
    def _seed(self) -> np.uint32:
        return np.uint32(self.program.config.seed)

    def _pool(self, stream: int, number: int) -> PyTree:
        return self._draw.result()(self._seed, np.uint32(stream), np.uint32(number))


def _key(seed: Array, stream: Array | int, number: Array | int) -> Key:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), number)


def _pools_for_evaluation(program: Program) -> int:
    return -(-program.config.eval.num_envs // program.env.pool_size)


def compile_programs(program: Program) -> Programs:
    """Start compiling all programs of a run.

    They are traced one after the other, the slowest to compile first, but compiled side by side:
    XLA needs neither the interpreter nor the other programs' results.
    """
    threads = ThreadPoolExecutor(4, thread_name_prefix="compile")

    def start(function: Callable, *shapes: PyTree, **settings: Any) -> Future:
        return threads.submit(jax.jit(function, **settings).lower(*shapes).compile)

    state, algorithm = abstract_state(program), program.algorithm
    everywhere = parallel.replicated(program.mesh)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    pool = _placed(program.env.abstract_pool(), everywhere)
    number = jax.ShapeDtypeStruct((), np.uint32)

    def draw(seed: Array, stream: Array, number: Array) -> PyTree:
        fresh = program.env.pool(_key(seed, stream, number))
        return parallel.split_rows(fresh, program.mesh)

    def init(seed: Array, pool: PyTree) -> TrainState:
        return algorithm.init(_key(seed, _INIT, 1), pool)

    def run_cycle(state: TrainState, pool: PyTree) -> tuple[TrainState, Metrics]:
        return cycle(algorithm, program.config.iterations, state, pool)

    done = start(run_cycle, state, pool, donate_argnums=0, out_shardings=(places, everywhere))
    drawn = start(draw, number, number, number, out_shardings=everywhere)
    first = start(init, number, pool, out_shardings=places)
    params = algorithm.policy_params(state.learner)
    pools = [pool] * _pools_for_evaluation(program)
    played = start(_evaluator(program), params, pools, number, number) if pools else Future()
    threads.shutdown(wait=False)
    return Programs(program, drawn, first, done, played)


def _placed(tree: PyTree, place: jax.sharding.Sharding) -> PyTree:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), tree
    )


def _evaluator(program: Program) -> Callable[..., evaluation.Episodes]:
    settings = program.config.eval
    env = environments.for_evaluation(program.env, settings.num_envs)
    policy = program.algorithm.policy(settings.deterministic)
    carry = program.algorithm.initial_carry(settings.num_envs)
    episodes = evaluation.episodes(env, policy, carry, program.mesh)

    def play(params: PyTree, pools: list[PyTree], seed: Array, number: Array):
        pool = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pools)
        return episodes(params, _key(seed, _PLAY, number), pool)

    return play
