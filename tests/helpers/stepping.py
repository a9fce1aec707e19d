"""Run an algorithm for a few iterations."""

import functools

import jax
import jax.numpy as jnp

from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.programs import DeviceProgram, OfflineProgram, gymnasium

# For programs that run for many seconds, where compiler optimization pays off.
OPTIMIZED = {"xla_backend_optimization_level": 1}
jit_for_long = functools.partial(jax.jit, compiler_options=OPTIMIZED)


class Compiled:
    """An algorithm whose functions are compiled once for any number of runs."""

    def __init__(self, algorithm):
        self.algorithm = algorithm
        self.init, self.step = jax.jit(algorithm.init), jax.jit(algorithm.train_step)

    def start(self, seed=0, **hparams):
        """Return an initial state; `hparams` override those of the configuration (PPO only)."""
        state = self.init(jax.random.key(seed))
        if not hparams:
            return state
        assert hparams.keys() <= state.learner.hparams.keys()
        hparams = state.learner.hparams | {name: jnp.float32(x) for name, x in hparams.items()}
        learner = state.learner.replace(hparams=hparams, learning_rate=hparams["learning_rate"])
        return state.replace(learner=learner)

    def steps(self, number, seed=0, **hparams):
        """Return the state after `number` iterations, and the metrics of each."""
        state, metrics = self.start(seed, **hparams), []
        for _ in range(number):
            state, values = self.step(state)
            values = jax.device_get(values)
            metrics.append({k: float(m.total / m.count) for k, m in values.items() if m.count > 0})
        return state, metrics


def trace_iteration(program):
    """Trace one iteration of a run, of a single member, without compiling it."""
    alone = program.alone
    if isinstance(alone, DeviceProgram):
        step, data = alone.algorithm.train_step, alone.env.abstract_pool()
    elif isinstance(alone, OfflineProgram):
        step, data = alone.algorithm.train_step, ReplayState(*alone.data.chunk(0))
    else:
        step, data = alone.algorithm.learn, gymnasium.abstract_rollout(alone)
    state = alone.abstract_state()
    after, _ = jax.eval_shape(step, state, data)
    assert jax.tree.structure(after) == jax.tree.structure(state)
