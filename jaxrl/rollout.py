"""Collecting experience: a pure function from policy and environments to a Rollout."""

from collections.abc import Callable
from typing import Any

import jax

from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import exploration, segments
from jaxrl.networks.recurrent import reset_carry
from jaxrl.types import RECORDS, Key, Policy, PyTree, Rollout, RolloutState

__all__ = ["collect"]


def collect(
    env: VectorEnv,
    policy: Policy,
    params: PyTree,
    state: RolloutState,
    key: Key,
    length: int,
    pool: Any = None,
    horizon: int | None = None,
) -> tuple[RolloutState, Rollout]:
    """Step all environments `length` times with `policy`; time-major [T, N, ...].

    New episodes start from the states of `pool`, or of one sampled here. The carry is reset where
    an episode ended. The network's carry before every `horizon` steps is returned with the rollout:
    segments are unrolled from it.
    """
    keys = jax.random.split(key, 2 * length + 1)  # at once: random numbers are slow to compile
    pool = env.sample_pool(keys[-1]) if pool is None else pool

    def step(carries: tuple[Any, PyTree], keys: Key):
        env_state, carry = carries
        key_action, key_reset = keys
        obs = env.observe(env_state)
        action, carry, extras = policy(params, obs, carry, key_action)
        env_state, result = env.step(env_state, action, pool, key_reset)
        ended = result.terminated | result.truncated
        return (env_state, reset_carry(ended, carry)), (obs, action, extras, result)

    start = (state.env, state.carry)
    pairs = keys[:-1].reshape(length, 2)
    (env_state, carry), carry_before, steps = _scan_segments(step, start, pairs, horizon or length)
    obs, action, extras, result = steps
    env_state, episodes = env.pop_statistics(env_state)
    episodes |= {RECORDS + name: values for name, values in result.finished.items()}
    result = result._asdict()
    del result["finished"]
    experience = Rollout(
        obs=obs,
        action=action,
        extras=extras,
        carry=carry_before,
        episodes=episodes,
        **result,
    )
    return state.replace(env=env_state, carry=carry), experience


def _scan_segments(step: Callable, start: tuple[Any, PyTree], keys: Key, horizon: int):
    """Scan all steps; return the end, the carry before each segment, and the steps' outputs.

    Exploration noise is left out of the stored carry: learning does not need it.
    """

    def segment(carries: tuple[Any, PyTree], keys: Key):
        end, steps = jax.lax.scan(step, carries, keys)
        return end, (exploration.network_carry(carries[1]), steps)

    is_recurrent = bool(jax.tree.leaves(exploration.network_carry(start[1])))
    if horizon == len(keys) or not is_recurrent:
        end, (before, steps) = segment(start, keys)
        return end, jax.tree.map(lambda leaf: leaf[None], before), steps
    end, (before, steps) = jax.lax.scan(segment, start, segments.split_time(keys, horizon))
    return end, before, segments.merge_time(steps)
