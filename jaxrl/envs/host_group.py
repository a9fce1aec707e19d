"""Gymnasium environments that step together, in this process or in one of their own.

Nothing here imports JAX: a process of environments starts in a second.
"""

import contextlib
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

PREFIX = "gym:"


class Step(NamedTuple):
    """What one step of a group gave, [envs, ...]."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray  # the true successor, never the observation after a reset


class Group:
    """Some environments that step together, and what they have paid so far."""

    def __init__(self, name: str, observation: Any, action: Any, number: int, seed: int):
        import gymnasium

        self._observation, self._action = observation, action
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        self._env = gymnasium.make_vec(
            name.removeprefix(PREFIX),
            number,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": mode},
        )
        obs, _ = self._env.reset(seed=seed)
        self.obs = self._flat(obs)
        self.ended = np.zeros(number, bool)
        self._total, self._length = np.zeros(number), np.zeros(number, np.int64)
        self.finished: list[tuple[float, int]] = []  # (return, length) of ended episodes

    def step(self, action: np.ndarray) -> Step:
        """Step all environments; those whose episode ends begin a new one."""
        obs, reward, terminated, truncated, info = self._env.step(self._to_env(action))
        self.obs = self._flat(obs)
        next_obs = self.obs.copy()
        self.ended = terminated | truncated
        for i in np.flatnonzero(self.ended):
            next_obs[i] = self._flat(info["final_obs"][i][None])[0]
        self._total += reward
        self._length += 1
        for i in np.flatnonzero(self.ended):
            self.finished.append((float(self._total[i]), int(self._length[i])))
        self._total[self.ended], self._length[self.ended] = 0.0, 0
        return Step(reward.astype(np.float32), terminated, truncated & ~terminated, next_obs)

    def close(self) -> None:
        """Let the environments go."""
        self._env.close()

    def _flat(self, obs: Any) -> np.ndarray:
        """Return observations as vectors of float32; one number of n as n zeros and ones."""
        obs, space = np.asarray(obs), self._observation
        if hasattr(space, "n"):
            return np.eye(space.n, dtype=np.float32)[obs - space.start]
        return obs.reshape(len(obs), -1).astype(np.float32)

    def _to_env(self, action: np.ndarray) -> np.ndarray:
        """Return actions in the environment's own range."""
        space = self._action
        if hasattr(space, "n"):
            return action + space.start
        share = (np.clip(action, -1.0, 1.0).reshape(len(action), *space.shape) + 1.0) / 2.0
        return (space.low + share * (space.high - space.low)).astype(space.dtype)


def _serve(connection: Connection, arguments: tuple) -> None:
    """Step a group for whoever holds the other end, until that closes."""
    group = Group(*arguments)
    connection.send((group.obs, group.ended, None, []))
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            step = group.step(connection.recv())
            connection.send((group.obs, group.ended, step, group.finished))
            group.finished = []
    group.close()


class Remote:
    """A group in a process of its own: `send` actions, do something else, then `receive`.

    Threads would not do: while Python steps one group it would not hand out the next actions.
    """

    def __init__(self, *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.finished: list[tuple[float, int]] = []
        self._started = False

    def begin(self) -> None:
        """Wait until the environments stand at their first observation."""
        if not self._started:
            self._started = True
            self.receive()

    def send(self, action: np.ndarray) -> None:
        """Let the group step."""
        self._connection.send(action)

    def receive(self) -> Step:
        """Return what the step gave, when it is done."""
        try:
            self.obs, self.ended, step, finished = self._connection.recv()
        except EOFError as error:
            raise RuntimeError(
                "A process of environments has ended; its error is above."
            ) from error
        self.finished += finished
        return step
