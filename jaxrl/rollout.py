"""Collecting experience: a pure function from policy and environments to a Rollout."""

from collections.abc import Callable
from typing import Any

import jax

from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import segments
from jaxrl.networks.recurrent import reset_carry
from jaxrl.types import Key, Policy, PyTree, Rollout, RolloutState


def rollout(
    env: VectorEnv,
    policy: Policy,
    params: PyTree,
    collector: RolloutState,
    key: Key,
    length: int,
    pool: Any = None,
    horizon: int | None = None,
) -> tuple[RolloutState, Rollout]:
    """Step all environments `length` times with `policy`; time-major [T, N, ...].

    Ended episodes are followed by new ones from `pool`, or from one drawn here. Memory is cleared
    where an episode ended, so that the next one starts without a past; what it was before every
    `horizon` steps is kept, so that learning can begin there.
    """
    keys = jax.random.split(key, 2 * length + 1)  # at once: random numbers are slow to compile
    pool = env.sample_pool(keys[-1]) if pool is None else pool

    def step(state: tuple[Any, PyTree], keys: Key):
        env_state, carry = state
        key_action, key_reset = keys
        obs = env.observe(env_state)
        action, carry, extras = policy(params, obs, carry, key_action)
        env_state, step_result = env.step(env_state, action, pool, key_reset)
        ended = step_result.terminated | step_result.truncated
        return (env_state, reset_carry(ended, carry)), (obs, action, extras, step_result)

    start = (collector.env, collector.carry)
    pairs = keys[:-1].reshape(length, 2)
    (env_state, carry), before, steps = _in_segments(step, start, pairs, horizon or length)
    obs, action, extras, step_result = steps
    env_state, episodes = env.pop_statistics(env_state)
    kept = {"carry": before, "episodes": episodes, **step_result._asdict()}
    experience = Rollout(obs=obs, action=action, extras=extras, **kept)
    return collector.replace(env=env_state, carry=carry), experience


def _in_segments(step: Callable, start: tuple[Any, PyTree], keys: Key, horizon: int):
    """Scan all steps; return the end, the memory before each segment, and what steps gave."""

    def part(state: tuple[Any, PyTree], keys: Key):
        end, steps = jax.lax.scan(step, state, keys)
        return end, (state[1], steps)

    if horizon == len(keys) or not jax.tree.leaves(start[1]):  # one segment, or nothing to keep
        end, (before, steps) = part(start, keys)
        return end, jax.tree.map(lambda leaf: leaf[None], before), steps
    end, (before, steps) = jax.lax.scan(part, start, segments.split_time(keys, horizon))
    return end, before, segments.merge_time(steps)
