"""From a configuration to compiled functions: what the device runs."""

import contextlib
import os
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl.algorithms import registry as algorithms
from jaxrl.config import TrainConfig, validate
from jaxrl.envs import factory as environments
from jaxrl.loggers import sinks
from jaxrl.policies import load
from jaxrl.programs import trace_cache
from jaxrl.types import Algorithm, Array, Metrics, PyTree, TrainState
from jaxrl.utils import sharding

EACH = "iterations/"  # before the names of metrics that are kept iteration by iteration
_BY_ITERATION = ("train/R_loss",)


class Program(NamedTuple):
    """Everything a run is built of, before the first number exists."""

    config: TrainConfig
    mesh: Mesh
    env: Any  # VectorEnv; GymnasiumEnv, or a DataSet where there is no environment
    algorithm: Any  # Algorithm, or RewardLearning where there is no policy
    shelf: trace_cache.TraceCache | None = None  # traced programs of an earlier run
    members: tuple[TrainConfig, ...] = ()  # of a population; (): one run, which has no such axis

    def each(self, tree: PyTree) -> list[PyTree]:
        """Return every member's part of a tree of arrays."""
        if not self.members:
            return [tree]
        return [jax.tree.map(itemgetter(i), tree) for i in range(len(self.members))]

    def together(self, parts: list[PyTree]) -> PyTree:
        """Put the members' parts together again, on the host."""
        return jax.tree.map(lambda *x: np.stack(x), *parts) if self.members else parts[0]

    @property
    def one(self) -> "Program":
        """What a single member would be, alone."""
        return self._replace(members=(), mesh=sharding.make_mesh(1)) if self.members else self


def compile_sooner() -> None:
    """Keep compiled programs between runs, and give XLA less to read; the user's settings win."""
    # Every operation names one line of source. XLA sorts whole tracebacks, for a second or more.
    if "JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS" not in os.environ:
        jax.config.update("jax_include_full_tracebacks_in_locations", False)
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        with contextlib.suppress(OSError):
            directory = Path(base) / "jaxrl" / "xla"
            directory.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(directory))


def build(config: TrainConfig) -> Program:
    """Build environments, networks and algorithm; nothing is compiled yet."""
    validate.check(config, device_count=len(jax.local_devices()))
    sinks.check_extras(config)
    mesh = sharding.make_mesh(config.devices)
    shelf = trace_cache.shelf(config, mesh)
    known = shelf.stored.template if shelf and shelf.stored else None
    env = environments.build(config, known)
    networks = algorithms.build_networks(config, env.spec)
    teacher = config.ppo.teacher and load.load_teacher(
        config.ppo.teacher, env.spec, networks, config.network.module
    )
    algorithm = algorithms.make(config, env, networks, num_shards=mesh.size, teacher=teacher)
    return Program(config, mesh, env, algorithm, shelf)


def abstract_state(program: Program) -> TrainState:
    """Return shapes, types and places of the training state."""
    if program.members:
        alone = abstract_state(program.one)
        return sharding.copies(alone, len(program.members), program.mesh)
    if program.config.offline:
        state = jax.eval_shape(program.algorithm.init, jax.eval_shape(jax.random.key, 0))
        return sharding.abstract(program.mesh, state)
    pool = program.env.abstract_pool()
    state = jax.eval_shape(program.algorithm.init, jax.eval_shape(jax.random.key, 0), pool)
    return sharding.abstract(program.mesh, state)


def goes_by_trials(program: Program) -> bool:
    """Tell whether trials change what start states are drawn by."""
    template = getattr(program.env, "template", None)
    return bool(template and template.trials) and _offers(program, "next_curriculum")


def follows_training(program: Program) -> bool:
    """Tell whether training itself does, cycle by cycle."""
    return _offers(program, "curriculum_after")


def _offers(program: Program, name: str) -> bool:
    template = getattr(program.env, "template", None)  # others than ours have none
    if template is None or not jax.tree.leaves(template.curriculum):
        return False
    return hasattr(program.env.env, name)


def cycle(
    algorithm: Algorithm, iterations: int, count: Array, state: TrainState, pool: PyTree
) -> tuple[TrainState, Metrics]:
    """Run `count` train steps, at most `iterations`; their metrics are merged on the device.

    The count is an argument of the program so that a compiler cannot know it: one that writes out
    loops of known length writes out one iteration, not hundreds.
    """
    step = jax.jit(algorithm.train_step)  # traced once, for its shapes and for the loop
    _, shapes = jax.eval_shape(step, state, pool)
    each = {name: _zeros(shapes[name], iterations) for name in _BY_ITERATION if name in shapes}

    def one(number: Array, carry: tuple[TrainState, Metrics, Metrics]):
        state, total, each = carry
        state, new = step(state, pool)
        each = {
            name: jax.tree.map(lambda all, x: all.at[number].set(x), kept, new[name])
            for name, kept in each.items()
        }
        return state, jax.tree.map(jnp.add, total, new), each

    start = (state, _zeros(shapes), each)
    state, total, each = jax.lax.fori_loop(jnp.zeros_like(count), count, one, start)
    return state, total | {f"{EACH}{name}": kept for name, kept in each.items()}


def _zeros(shapes: PyTree, *axis: int) -> PyTree:
    return jax.tree.map(lambda s: jnp.zeros((*axis, *s.shape), s.dtype), shapes)
