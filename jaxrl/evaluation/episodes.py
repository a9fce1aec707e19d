"""Evaluation of a policy: one complete episode in each environment."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl.envs import hooks
from jaxrl.envs.gymnasium import GymnasiumEnv
from jaxrl.envs.rows import choose
from jaxrl.envs.vector_env import EnvState, VectorEnv
from jaxrl.types import Array, Key, Policy, PyTree
from jaxrl.utils import sharding, stats


class Episodes(NamedTuple):
    """One row per episode; with several agents, their mean."""

    returns: Array
    lengths: Array
    successes: Array | None  # None if the environment does not report success
    trace: PyTree = ()  # recorded after every step, [steps, episodes, ...]
    truncated: PyTree = None  # bool array: ended by a time limit
    nonfinite: Array | None = None  # bool: ended by non-finite values; None: unknown
    start: PyTree = ()  # recorded before the first step, [episodes, ...]


class _LoopState(NamedTuple):
    """The carry of an evaluation: environments, and the results of their episodes."""

    state: EnvState
    carry: PyTree
    alive: Array
    returns: Array
    lengths: Array
    success: Array
    truncated: Array
    nonfinite: Array
    trace: PyTree
    step: int | Array


def episodes(
    env: VectorEnv,
    policy: Policy,
    initial_carry: PyTree,
    mesh: Mesh | None = None,
    record: Callable[[EnvState], PyTree] | None = None,
    *,
    record_start: bool = False,
) -> Callable[..., Episodes]:
    """Return (params, key, pool=None, shared=()) -> Episodes, a complete one per environment.

    Args:
      env: environments, all of which are reset.
      policy: maps (params, obs, carry, key) to (action, carry, extras).
      initial_carry: of the policy, [rows, ...].
      mesh: devices to split the environments over.
      record: maps a state to the values of `Episodes.trace`; `env.record` if None.
      record_start: also record the states before the first step.
    """
    record = record or env.record
    limit = -(-env.episode_length // env.action_repeat)

    def run(params: PyTree, key: Key, pool: PyTree = None, shared: PyTree = ()) -> Episodes:
        key_reset, key_act = jax.random.split(key)
        first = env.reset(key_reset, pool, stagger=False, shared=shared)
        first = sharding.split_rows(first.replace(shared=()), mesh).replace(shared=shared)
        zeros = jnp.zeros(env.num_envs, jnp.float32)

        def play_step(now: _LoopState) -> _LoopState:
            alive, diverged = now.alive, now.state.statistics.finished["diverged"]
            key_step = jax.random.fold_in(key_act, now.step)
            action, carry, _ = policy(params, env.observe(now.state), now.carry, key_step)
            state, result = env.advance(now.state, action)
            reward = jnp.mean(result.reward.reshape(env.num_envs, -1), axis=1)
            # All agents of an environment end together.
            ends = (result.terminated, result.truncated)
            terminated, truncated = (flag.reshape(env.num_envs, -1)[:, 0] for flag in ends)
            success = state.packed.metrics.get("success", zeros)
            still_alive = alive & ~(terminated | truncated)
            return _LoopState(
                state=_park_finished(state, still_alive, first),
                carry=carry,
                alive=still_alive,
                returns=now.returns + jnp.where(alive, reward, 0.0),
                lengths=jnp.where(alive, state.age, now.lengths),
                success=jnp.where(alive, success, now.success),
                truncated=now.truncated | (alive & truncated),
                nonfinite=now.nonfinite
                | (alive & (state.statistics.finished["diverged"] > diverged)),
                trace=jax.tree.map(
                    lambda trace, x: trace.at[now.step].set(x), now.trace, record(state)
                ),
                step=now.step + 1,
            )

        alive = jnp.ones(env.num_envs, bool)
        lengths, trace = jnp.zeros_like(first.age), _zeros(jax.eval_shape(record, first), limit)
        start = _LoopState(
            first, initial_carry, alive, zeros, lengths, zeros, ~alive, ~alive, trace, 0
        )
        end = jax.lax.while_loop(_is_running(limit), play_step, start)
        success = end.success if "success" in first.packed.metrics else None
        return Episodes(
            returns=end.returns,
            lengths=end.lengths,
            successes=success,
            trace=end.trace,
            truncated=end.truncated,
            nonfinite=end.nonfinite,
            start=record(first) if record_start else (),
        )

    return run


def join(parts: list[Episodes], number: int) -> Episodes:
    """Join episodes that were played one set after the other, on the CPU; the first `number`."""

    def joined(axis: int, *leaves: Array) -> np.ndarray:
        return np.take(np.concatenate(leaves, axis), np.arange(number), axis)

    rows, traces = zip(*((part._replace(trace=()), part.trace) for part in parts), strict=True)
    trace = jax.tree.map(partial(joined, 1), *traces)
    return jax.tree.map(partial(joined, 0), *rows)._replace(trace=trace)


def _park_finished(state: EnvState, alive: Array, first: EnvState) -> EnvState:
    """Return finished environments to their start states.

    Physics that continues after a fall may need more solver iterations, and all others wait.
    """
    return state.replace(packed=choose(alive, state.packed, first.packed))


def _is_running(limit: int) -> Callable[[_LoopState], Array]:
    return lambda now: jnp.any(now.alive) & (now.step < limit)


def _zeros(shapes: PyTree, steps: int) -> PyTree:
    return jax.tree.map(lambda s: jnp.zeros((steps, *s.shape), s.dtype), shapes)


def with_qpos(env: VectorEnv) -> Callable[[EnvState], PyTree]:
    """Return `env.record` that also records the poses of a MuJoCo model, for videos."""

    def record(state: EnvState) -> PyTree:
        physics: Any = env.brax_state(state.packed).pipeline_state
        return env.record(state) | {"qpos": physics.qpos}

    return record


def trial_report(result: Episodes, env: VectorEnv | GymnasiumEnv) -> hooks.TrialReport | None:
    """Return the results of all trials; None if the environment has none."""
    report = env.hooks.trial_report
    return report(result) if report else None


def trial_success(result: Episodes, env: VectorEnv | GymnasiumEnv) -> np.ndarray | None:
    """Return which of the played trials succeeded; None if the environment has none."""
    succeeded = env.hooks.trial_success
    return succeeded(result) if succeeded else None


def summarize(result: Episodes, env: VectorEnv | GymnasiumEnv | None = None) -> dict[str, float]:
    """Return the metrics of an evaluation by SB3's names, and those of trials."""
    returns = np.asarray(result.returns, np.float64)
    lengths = np.asarray(result.lengths)
    with np.errstate(invalid="ignore"):  # an infinite return has no standard deviation
        deviation = float(np.std(returns))
    summary = {
        "eval/mean_reward": float(np.mean(returns)),
        "eval/std_reward": deviation,
        "eval/iqm_reward": float(stats.interquartile_mean(returns)),
        "eval/min_reward": float(np.min(returns)),
        "eval/max_reward": float(np.max(returns)),
        "eval/mean_ep_length": float(np.mean(lengths)),
    }
    if result.nonfinite is not None:
        summary["eval/diverged"] = float(np.sum(result.nonfinite))
    if result.successes is not None:
        summary["eval/success_rate"] = float(np.mean(np.asarray(result.successes) > 0.5))
    report = None if env is None else trial_report(result, env)
    return summary | (report.metrics if report else {})
