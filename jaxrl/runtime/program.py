"""From a configuration to compiled functions: what the device runs."""

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxrl import config_checks
from jaxrl.algorithms import ppo
from jaxrl.config import TrainConfig
from jaxrl.envs import build as environments
from jaxrl.envs.vector import VectorEnv
from jaxrl.networks import actor_critic
from jaxrl.runtime import evaluation, parallel, sinks
from jaxrl.types import Algorithm, Metrics, TrainState


class Program(NamedTuple):
    """Everything a run is built of, before the first number exists."""

    config: TrainConfig
    mesh: Mesh
    env: VectorEnv
    algorithm: Algorithm


def use_compilation_cache() -> None:
    """Keep compiled programs between runs; the user's own setting wins."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        with contextlib.suppress(OSError):
            directory = Path(base) / "jaxrl" / "xla"
            directory.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(directory))


def build(config: TrainConfig) -> Program:
    """Build environments, networks and algorithm; nothing is compiled yet."""
    config_checks.check(config, device_count=len(jax.local_devices()))
    sinks.check_extras(config)
    mesh = parallel.make_mesh(config.devices)
    env = environments.build(config)
    networks = actor_critic.build(env.spec, config.network)
    algorithm = ppo.make(config.ppo, env, networks, config.total_iterations, blocks=mesh.size)
    return Program(config, mesh, env, algorithm)


def abstract_state(program: Program) -> TrainState:
    """Return shapes, types and places of the training state."""
    state = jax.eval_shape(program.algorithm.init, jax.random.key(0))
    return parallel.abstract(program.mesh, state)


def cycle(algorithm: Algorithm, iterations: int, state: TrainState) -> tuple[TrainState, Metrics]:
    """Run `iterations` train steps; their metrics are merged on the device."""

    def one(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
        return algorithm.train_step(state)

    state, metrics = jax.lax.scan(one, state, length=iterations)
    return state, jax.tree.map(lambda x: jnp.sum(x, axis=0), metrics)


class Compiling(NamedTuple):
    """The programs of a run, compiled side by side; each is a future of a function."""

    init: Future  # (key) -> state
    cycle: Future  # (state) -> (state, metrics); the state given to it is used up
    evaluate: Future | None  # (policy params, key) -> Episodes; None when switched off


def compile_programs(program: Program) -> Compiling:
    """Start compiling all programs of a run.

    They are traced one after the other, since an environment may change while it is traced, but
    compiled together: XLA needs neither the interpreter nor the other programs' results.
    """
    state = abstract_state(program)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    algorithm, key = program.algorithm, jax.random.key(0)

    def run_cycle(state: TrainState) -> tuple[TrainState, Metrics]:
        return cycle(algorithm, program.config.iterations, state)

    results = (places, parallel.replicated(program.mesh))
    lowered = [
        jax.jit(run_cycle, donate_argnums=0, out_shardings=results).lower(state),
        jax.jit(algorithm.init, out_shardings=places).lower(key),
    ]
    if program.config.eval.num_envs:
        lowered.append(_evaluator(program).lower(algorithm.policy_params(state.learner), key))
    with_threads = ThreadPoolExecutor(len(lowered), thread_name_prefix="compile")
    futures = [with_threads.submit(one.compile) for one in lowered]
    with_threads.shutdown(wait=False)
    return Compiling(futures[1], futures[0], futures[2] if len(futures) > 2 else None)


def _evaluator(program: Program):
    """Return a jitted (policy params, key) -> Episodes."""
    settings = program.config.eval
    env = environments.for_evaluation(program.env, settings.num_envs)
    policy = program.algorithm.policy(settings.deterministic)
    carry = program.algorithm.initial_carry(settings.num_envs)
    return jax.jit(evaluation.episodes(env, policy, carry, program.mesh))
