"""Measuring a policy: whole episodes in environments of their own."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl import statistics
from jaxrl.envs.rows import choose
from jaxrl.envs.vector import EnvState, VectorEnv
from jaxrl.runtime import parallel, tracking
from jaxrl.types import Array, Key, Policy, PyTree


class Episodes(NamedTuple):
    """One row per episode; of several agents, the mean."""

    returns: Array
    lengths: Array
    successes: Array | None  # where the environment reports success
    trace: PyTree = ()  # what trials recorded after every step, [steps, episodes, ...]
    truncated: Array | None = None  # bool: was it cut, by a time limit, and did not terminate?


def episodes(
    env: VectorEnv,
    policy: Policy,
    initial_carry: PyTree,
    mesh: Mesh | None = None,
    record: Callable[[EnvState], PyTree] | None = None,  # in place of env.record
) -> Callable[..., Episodes]:
    """Return (params, key, pool=None) -> one whole episode per environment, till all have ended."""
    record = record or env.record
    limit = -(-env.episode_length // env.action_repeat)

    def run(params: PyTree, key: Key, pool: PyTree = None) -> Episodes:
        key_reset, key_act = jax.random.split(key)
        first = parallel.split_rows(env.reset(key_reset, pool, stagger=False), mesh)
        zeros = jnp.zeros(env.num_envs, jnp.float32)

        def turn_once(loop):
            state, carry, alive, total, length, success, truncated, trace, turn = loop
            key_turn = jax.random.fold_in(key_act, turn)
            action, carry, _ = policy(params, env.observe(state), carry, key_turn)
            state, outcome = env.advance(state, action)
            reward = jnp.mean(outcome.reward.reshape(env.num_envs, -1), axis=1)
            total = total + jnp.where(alive, reward, 0.0)
            length = jnp.where(alive, state.age, length)
            now = state.world.metrics.get("success", zeros)
            success = jnp.where(alive, now, success)
            # All agents of an environment end together.
            ends = (outcome.terminated, outcome.truncated)
            terminated, cut = (flag.reshape(env.num_envs, -1)[:, 0] for flag in ends)
            truncated = truncated | (alive & cut)
            alive = alive & ~(terminated | cut)
            trace = jax.tree.map(lambda all, x: all.at[turn].set(x), trace, record(state))
            state = _waiting(state, alive, first)
            return state, carry, alive, total, length, success, truncated, trace, turn + 1

        alive = jnp.ones(env.num_envs, bool)
        trace = _blank(jax.eval_shape(record, first), limit)
        lengths = jnp.zeros_like(first.age)
        start = (first, initial_carry, alive, zeros, lengths, zeros, ~alive, trace, 0)
        end = jax.lax.while_loop(_unfinished(limit), turn_once, start)
        _, _, _, returns, lengths, success, truncated, trace, _ = end
        has_success = "success" in first.world.metrics
        return Episodes(returns, lengths, success if has_success else None, trace, truncated)

    return run


def _waiting(state: EnvState, alive: Array, first: EnvState) -> EnvState:
    """Let what has ended wait at its start.

    Physics that goes on after a fall may need ever more turns of its solver, and all others wait.
    """
    return state.replace(world=choose(alive, state.world, first.world))


def _unfinished(limit: int) -> Callable[[tuple], Array]:
    return lambda loop: jnp.any(loop[2]) & (loop[-1] < limit)


def _blank(shapes: PyTree, steps: int) -> PyTree:
    return jax.tree.map(lambda s: jnp.zeros((steps, *s.shape), s.dtype), shapes)


def summarize(result: Episodes) -> dict[str, float]:
    """Return the figures people compare, by SB3's names."""
    returns = np.asarray(result.returns, np.float64)
    lengths = np.asarray(result.lengths)
    with np.errstate(invalid="ignore"):  # an infinite return has no deviation
        deviation = float(np.std(returns))
    summary = {
        "eval/mean_reward": float(np.mean(returns)),
        "eval/std_reward": deviation,
        "eval/iqm_reward": float(statistics.interquartile_mean(returns)),
        "eval/min_reward": float(np.min(returns)),
        "eval/max_reward": float(np.max(returns)),
        "eval/mean_ep_length": float(np.mean(lengths)),
    }
    if result.successes is not None:
        summary["eval/success_rate"] = float(np.mean(np.asarray(result.successes) > 0.5))
    if "played" in result.trace:
        summary |= tracking.summary(tracking.judge(result.trace, result.lengths))
    return summary
