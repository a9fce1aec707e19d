"""Policies in Gymnasium environments, group by group."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.evaluation import episodes
from jaxrl.learning import exploration
from jaxrl.networks.recurrent import reset_carry
from jaxrl.types import Array, Key, Policy, PyTree


class PolicyOutput(NamedTuple):
    """Output of the policy for one group."""

    action: Array
    extras: Any
    carry_before: PyTree  # the network's carry that the policy was called with
    carry: PyTree


# (params, obs, carry, ended, key, step) -> PolicyOutput
ActFunction = Callable[[PyTree, PyTree, PyTree, Any, Key, Any], PolicyOutput]


def make_act(policy: Policy) -> ActFunction:
    """Return the policy of a group: it resets the carry where an episode has ended.

    Each step folds its number into the key.
    """

    def act(
        params: PyTree, obs: Array, carry: PyTree, ended: Array, key: Key, step: Array
    ) -> PolicyOutput:
        carry = reset_carry(ended, carry)
        action, new_carry, extras = policy(params, obs, carry, jax.random.fold_in(key, step))
        return PolicyOutput(action, extras, exploration.network_carry(carry), new_carry)

    return act


def play(
    env: GymnasiumEnv,
    act: ActFunction,
    params: PyTree,
    carry: PyTree,
    number: int,
    seed: tuple[int, ...],
    key: Key,
) -> episodes.Episodes:
    """Play the first episode of `number` environments to its end.

    `seed` is for sampling start states, `key` for actions.
    """
    with contextlib.closing(env.group(number, *seed)) as group:
        alive, nonfinite = np.ones(number, bool), np.zeros(number, bool)
        total, length = np.zeros(number, np.float32), np.zeros(number, np.int32)
        truncated = np.zeros(number, bool)
        step = 0
        while alive.any():
            output = act(params, group.obs, carry, group.ended, key, np.uint32(step))
            carry = output.carry
            result = group.step(np.asarray(output.action))
            total += np.where(alive, result.reward, 0.0)
            length += alive
            truncated |= alive & result.truncated
            nonfinite |= alive & group.nonfinite
            alive &= ~(result.terminated | result.truncated)
            step += 1
    return episodes.Episodes(total, length, None, (), truncated, nonfinite)  # type: ignore[arg-type]
