"""Acting in environments of the host, group by group."""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.envs.host import HostEnv
from jaxrl.networks.memory import forget
from jaxrl.runtime import evaluation
from jaxrl.types import Array, Policy, PyTree


class Acted(NamedTuple):
    """What the policy decided for one group."""

    action: Array
    extras: Any
    before: PyTree  # its memory when it decided
    after: PyTree


def acting(policy: Policy, seed: int):
    """Return (params, obs, carry, ended, number) -> Acted; `ended` empties the memory first."""

    def act(params: PyTree, obs: Array, carry: PyTree, ended: Array, number: Array) -> Acted:
        carry = forget(ended, carry)
        key = jax.random.fold_in(jax.random.key(seed), number)
        action, after, extras = policy(params, obs, carry, key)
        return Acted(action, extras, carry, after)

    return act


def play(
    host: HostEnv, act: Any, params: PyTree, carry: PyTree, number: int, seed: tuple[int, ...]
) -> evaluation.Episodes:
    """Play the first episode of `number` environments to its end."""
    with contextlib.closing(host.group(number, *seed)) as group:
        alive, bad = np.ones(number, bool), np.zeros(number, bool)
        total, length = np.zeros(number, np.float32), np.zeros(number, np.int32)
        truncated = np.zeros(number, bool)
        turn = 0
        while alive.any():
            acted = act(params, group.obs, carry, group.ended, np.uint32(turn))
            carry = acted.after
            step = group.step(np.asarray(acted.action))
            total += np.where(alive, step.reward, 0.0)
            length += alive
            truncated |= alive & step.truncated
            bad |= alive & group.broken
            alive &= ~(step.terminated | step.truncated)
            turn += 1
    return evaluation.Episodes(total, length, None, (), truncated, bad)  # type: ignore[arg-type]
