"""Episodes as they are recorded: every step of them, some actions being random."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.hdf5 import Episode
from jaxrl.envs.rows import as_mask
from jaxrl.envs.vector_env import StepResult, VectorEnv
from jaxrl.types import Array, Key, Policy, PyTree


def player(
    env: VectorEnv, policy: Policy, params: PyTree, carry: PyTree
) -> Callable[[Key, float], list[Episode]]:
    """Return (key, noise) -> one episode of each environment; `noise` of the actions are random."""
    spec = env.spec.action

    def step(noise: Array, state: tuple, key: Key):
        env_state, carry = state
        key_act, key_is_random, key_random = jax.random.split(key, 3)
        obs = env.observe(env_state)
        action, carry, _ = policy(params, obs, carry, key_act)
        if spec.discrete:
            random_action = jax.random.randint(key_random, action.shape, 0, spec.size)
        else:
            random_action = jax.random.uniform(key_random, action.shape, minval=-1.0)
        is_random = jax.random.uniform(key_is_random, action.shape[:1]) < noise
        action = jnp.where(as_mask(is_random, action), random_action, action)
        env_state, result = env.advance(env_state, action)
        return (env_state, carry), (obs, action, result)

    @jax.jit
    def run(key: Key, noise: Array):
        key_start, key_steps = jax.random.split(key)
        start = env.reset(key_start, stagger=False)
        keys = jax.random.split(key_steps, env.longest_episode)
        return jax.lax.scan(partial(step, noise), (start, carry), keys)[1]

    def play(key: Key, noise: float) -> list[Episode]:
        obs, action, result = jax.device_get(run(key, jnp.float32(noise)))
        ended = result.terminated | result.truncated
        return [_episode(row, obs, action, result, ended) for row in range(ended.shape[1])]

    return play


def _episode(
    row: int, obs: PyTree, action: np.ndarray, result: StepResult, ended: np.ndarray
) -> Episode:
    """Return one row up to the end of its episode."""
    length = int(np.argmax(ended[:, row])) + 1

    def select(tree: PyTree) -> dict[str, np.ndarray]:
        tree = tree if isinstance(tree, dict) else {"state": tree}
        return {key: leaf[:length, row] for key, leaf in tree.items()}

    actions = action[:length, row].reshape(length, -1)
    reward = np.asarray(result.reward[:length, row], np.float32)
    terminated = bool(result.terminated[length - 1, row])
    return Episode(select(obs), select(result.next_obs), actions, reward, terminated)
