"""Steps of physics without a policy, and the time of a compiled call."""

import time
from collections.abc import Callable
from typing import Any

import jax

from jaxrl.envs.env_state import typed_like
from jaxrl.physics.precision import physics


def repeated(step: Callable, length: int) -> Callable:
    """Return a function of (states, actions) that makes `length` steps with the same actions."""

    def run(carried):
        state, actions = carried
        with physics():
            state, _ = jax.lax.scan(
                lambda s, _: (typed_like(step(s, actions), s), None), state, length=length
            )
        return state, actions

    return run


def seconds_per_call(function: Callable, state: Any, calls: int, limit: float = 5.0) -> float:
    """Return the mean time of a function applied to its own result, after two warm-up calls.

    Of slow functions fewer calls are measured, as many as fit into `limit` seconds.
    """
    took = 0.0
    for _ in range(2):
        began = time.perf_counter()
        state = jax.block_until_ready(function(state))
        took = time.perf_counter() - began
    calls = min(calls, max(1, int(limit / took)))
    began = time.perf_counter()
    for _ in range(calls):
        state = function(state)
    jax.block_until_ready(state)
    return (time.perf_counter() - began) / calls
