"""Acting in environments of the host, group by group."""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.evaluation import episodes
from jaxrl.networks.recurrent import reset_carry
from jaxrl.types import Array, Key, Policy, PyTree


class Acted(NamedTuple):
    """What the policy decided for one group."""

    action: Array
    extras: Any
    before: PyTree  # its memory when it decided
    after: PyTree


def acting(policy: Policy):
    """Return (params, obs, carry, ended, key, number) -> Acted.

    `ended` empties the memory first; each number folds a key of its own.
    """

    def act(
        params: PyTree, obs: Array, carry: PyTree, ended: Array, key: Key, number: Array
    ) -> Acted:
        carry = reset_carry(ended, carry)
        action, after, extras = policy(params, obs, carry, jax.random.fold_in(key, number))
        return Acted(action, extras, carry, after)

    return act


def play(
    host: GymnasiumEnv,
    act: Any,
    params: PyTree,
    carry: PyTree,
    number: int,
    seed: tuple[int, ...],
    key: Key,
) -> episodes.Episodes:
    """Play the first episode of `number` environments to its end.

    The environments start by `seed`, actions are drawn by `key`.
    """
    with contextlib.closing(host.group(number, *seed)) as group:
        alive, bad = np.ones(number, bool), np.zeros(number, bool)
        total, length = np.zeros(number, np.float32), np.zeros(number, np.int32)
        truncated = np.zeros(number, bool)
        turn = 0
        while alive.any():
            acted = act(params, group.obs, carry, group.ended, key, np.uint32(turn))
            carry = acted.after
            step = group.step(np.asarray(acted.action))
            total += np.where(alive, step.reward, 0.0)
            length += alive
            truncated |= alive & step.truncated
            bad |= alive & group.nonfinite
            alive &= ~(step.terminated | step.truncated)
            turn += 1
    return episodes.Episodes(total, length, None, (), truncated, bad)  # type: ignore[arg-type]
