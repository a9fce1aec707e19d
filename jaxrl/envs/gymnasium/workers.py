"""Gymnasium environments that step together, in this process or in one of their own.

Nothing here imports JAX: a process of environments starts in a second.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from jaxrl.envs.limits import OBS_LIMIT
from jaxrl.errors import UserError

PREFIX = "gym:"


class GymSpec(NamedTuple):
    """How to make one environment, and what it sees and does."""

    name: str  # gym:<id>
    limit: int | None  # steps per episode; the environment's own if None
    observation: Any = None
    action: Any = None

    def make(self) -> Any:
        """Make one."""
        import gymnasium

        class FiniteFlags(gymnasium.Wrapper):
            """Make the reward NaN where an ending is: as a bool, NaN would be a termination."""

            def step(self, action: Any) -> Any:
                obs, reward, terminated, truncated, info = self.env.step(action)
                if not (np.isfinite(terminated) and np.isfinite(truncated)):
                    reward, terminated, truncated = float("nan"), False, False
                return obs, reward, terminated, truncated, info

        name = self.name.removeprefix(PREFIX)
        return FiniteFlags(gymnasium.make(name, max_episode_steps=self.limit))


class EpisodeBuffer(NamedTuple):
    """What happened since last asked."""

    finished: list[tuple[float, int]]  # (return, length) of ended episodes
    diverged: int


class Step(NamedTuple):
    """What one step of a group gave, [envs, ...]."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray  # the true successor, never the observation after a reset


class Group:
    """Some environments that step together, and what they have paid so far."""

    def __init__(self, recipe: GymSpec, number: int, seed: int):
        import gymnasium

        self._recipe = recipe
        self._env = gymnasium.vector.SyncVectorEnv(
            [recipe.make] * number, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
        )
        obs, _ = self._env.reset(seed=seed)
        self._observe(self._flat(obs))
        self.ended = self.broken = np.zeros(number, bool)  # in the last step
        self._total, self._length = np.zeros(number), np.zeros(number, np.int64)
        self.news = EpisodeBuffer([], 0)

    def step(self, action: np.ndarray) -> Step:
        """Step all environments; those whose episode ends begin a new one."""
        obs, reward, terminated, truncated, info = self._env.step(self._to_env(action))
        before, seen = self.obs, self._flat(obs)
        next_obs = seen.copy()
        for i in np.flatnonzero(terminated | truncated):
            next_obs[i] = self._flat(np.asarray(info["final_obs"][i])[None])[0]
        with np.errstate(over="ignore"):  # what overflows is found below
            reward = reward.astype(np.float32)
        # A non-finite environment terminates here and is reset; nobody learns from NaN.
        broken = ~(np.isfinite(reward) & _bounded(next_obs).all(axis=1)) | self._bad_start
        if broken.any():
            reward, next_obs[broken] = np.where(broken, np.float32(0), reward), before[broken]
            fresh, _ = self._env.reset(options={"reset_mask": broken})
            seen[broken] = self._flat(fresh)[broken]
        self._observe(seen)
        self.broken, self.ended = broken, terminated | truncated | broken
        self._count(reward, broken)
        cut = truncated & ~terminated & ~broken
        return Step(reward, terminated | broken, cut, next_obs)

    def _observe(self, seen: np.ndarray) -> None:
        """Show observations; a reset that gave a non-finite one is counted by its first step."""
        fine = _bounded(seen)
        self.obs, self._bad_start = np.where(fine, seen, np.float32(0)), ~fine.all(axis=1)

    def _count(self, reward: np.ndarray, broken: np.ndarray) -> None:
        self._total += reward
        self._length += 1
        ended = [(float(self._total[i]), int(self._length[i])) for i in np.flatnonzero(self.ended)]
        self.news = EpisodeBuffer(
            self.news.finished + ended, self.news.diverged + int(broken.sum())
        )
        self._total[self.ended], self._length[self.ended] = 0.0, 0

    def close(self) -> None:
        """Let the environments go."""
        self._env.close()

    def _flat(self, obs: Any) -> np.ndarray:
        """Return observations as vectors of float32; one number of n as n zeros and ones."""
        obs, space = np.asarray(obs), self._recipe.observation
        if hasattr(space, "n"):
            return np.eye(space.n, dtype=np.float32)[obs - space.start]
        with np.errstate(over="ignore"):
            return obs.reshape(len(obs), -1).astype(np.float32)

    def _to_env(self, action: np.ndarray) -> np.ndarray:
        """Return actions in the environment's own range."""
        space = self._recipe.action
        if hasattr(space, "n"):
            return action + space.start
        share = (np.clip(action, -1.0, 1.0).reshape(len(action), *space.shape) + 1.0) / 2.0
        return (space.low + share * (space.high - space.low)).astype(space.dtype)


def _bounded(obs: np.ndarray) -> np.ndarray:
    return np.abs(obs) < OBS_LIMIT


def _serve(connection: Connection, arguments: tuple) -> None:
    """Step a group for whoever holds the other end, until that closes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the run decides when to stop, not a key
        signal.signal(number, signal.SIG_IGN)
    group = Group(*arguments)
    try:
        connection.send((group.obs, group.ended, None, EpisodeBuffer([], 0)))
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                step = group.step(connection.recv())
                connection.send((group.obs, group.ended, step, group.news))
                group.news = EpisodeBuffer([], 0)
    finally:
        group.close()


class EnvWorker:
    """A group in a process of its own: `send` actions, do something else, then `receive`.

    Threads would not do: while Python steps one group it would not hand out the next actions.
    """

    def __init__(self, *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.news = EpisodeBuffer([], 0)
        self._started = False

    def begin(self) -> None:
        """Wait until the environments stand at their first observation."""
        if not self._started:
            self._started = True
            self.receive()

    def send(self, action: np.ndarray) -> None:
        """Let the group step."""
        with self._alive():
            self._connection.send(action)

    def receive(self) -> Step:
        """Return what the step gave, when it is done."""
        with self._alive():
            self.obs, self.ended, step, news = self._connection.recv()
        self.news = EpisodeBuffer(
            self.news.finished + news.finished, self.news.diverged + news.diverged
        )
        return step

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._process.join(timeout=5)
            code = self._process.exitcode
            raise UserError(
                f"A process of Gymnasium environments ended (exit code {code}); what it said is "
                "above."
            ) from error
