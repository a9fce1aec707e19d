"""Gymnasium environments that step together, in this process or in one of their own.

Nothing here imports JAX: a process of environments starts in a second.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrl.envs import OBS_LIMIT
from jaxrl.envs.gymnasium.observations import Obs, convert, each_env, map_parts
from jaxrl.errors import UserError

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.spaces import Box, Dict, Discrete

PREFIX = "gym:"


class GymSpec(NamedTuple):
    """How to make one environment, and its spaces."""

    name: str  # gym:<id>
    limit: int | None  # steps per episode; the environment's own if None
    observation: "Box | Discrete | Dict"
    action: "Box | Discrete"

    def make(self) -> "Env":
        """Make one."""
        return make(self.name, self.limit)


def make(name: str, limit: int | None = None) -> "Env":
    """Make the Gymnasium environment gym:<id>."""
    import gymnasium

    class FiniteFlags(gymnasium.Wrapper):
        """Turn a NaN ending into a NaN reward: as a bool, NaN would be a termination."""

        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            if not (np.isfinite(terminated) and np.isfinite(truncated)):
                reward, terminated, truncated = float("nan"), False, False
            return obs, reward, terminated, truncated, info

    return FiniteFlags(gymnasium.make(name.removeprefix(PREFIX), max_episode_steps=limit))


class EpisodeBuffer(NamedTuple):
    """Episodes that ended since the buffer was last emptied."""

    finished: list[tuple[float, int]]  # (return, length)
    diverged: int  # steps that became non-finite


class GroupStep(NamedTuple):
    """What one step of a group returned, [envs, ...]."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Obs  # the true successor, never the observation after a reset


class EnvGroup:
    """Environments that step together, and statistics of their episodes."""

    def __init__(self, spec: GymSpec, number: int, seed: int):
        import gymnasium

        self._spec = spec
        self._env = gymnasium.vector.SyncVectorEnv(
            [spec.make] * number, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
        )
        obs, _ = self._env.reset(seed=seed)
        self._set_obs(self._convert(obs))
        self.ended = self.nonfinite = np.zeros(number, bool)  # in the last step
        self._total, self._length = np.zeros(number), np.zeros(number, np.int64)
        self.episodes = EpisodeBuffer([], 0)

    def step(self, action: np.ndarray) -> GroupStep:
        """Step all environments; those whose episode ends begin a new one."""
        obs, reward, terminated, truncated, info = self._env.step(self._to_env(action))
        before, after = self.obs, self._convert(obs)
        next_obs = map_parts(np.copy, after)
        for i in np.flatnonzero(terminated | truncated):
            last = map_parts(lambda part: np.asarray(part)[None], info["final_obs"][i])
            next_obs = _replaced(next_obs, [i], self._convert(last))
        with np.errstate(over="ignore"):  # what overflows is found below
            reward = reward.astype(np.float32)
        # A non-finite environment terminates here and is reset; nobody learns from NaN.
        finite = np.isfinite(reward) & each_env(_bounded, next_obs)
        nonfinite = ~finite | self._nonfinite_reset
        if nonfinite.any():
            reward = np.where(nonfinite, np.float32(0), reward)
            next_obs = _replaced(next_obs, nonfinite, _rows(before, nonfinite))
            fresh, _ = self._env.reset(options={"reset_mask": nonfinite})
            after = _replaced(after, nonfinite, _rows(self._convert(fresh), nonfinite))
        self._set_obs(after)
        self.nonfinite, self.ended = nonfinite, terminated | truncated | nonfinite
        self._count(reward, nonfinite)
        truncated = truncated & ~terminated & ~nonfinite
        return GroupStep(reward, terminated | nonfinite, truncated, next_obs)

    def _set_obs(self, obs: Obs) -> None:
        """Store observations; a non-finite one of a reset is counted by its first step."""
        self.obs = map_parts(lambda part: np.where(_bounded(part), part, part.dtype.type(0)), obs)
        self._nonfinite_reset = ~each_env(_bounded, obs)

    def _count(self, reward: np.ndarray, nonfinite: np.ndarray) -> None:
        self._total += reward
        self._length += 1
        ended = [(float(self._total[i]), int(self._length[i])) for i in np.flatnonzero(self.ended)]
        self.episodes = EpisodeBuffer(
            self.episodes.finished + ended, self.episodes.diverged + int(nonfinite.sum())
        )
        self._total[self.ended], self._length[self.ended] = 0.0, 0

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    def _convert(self, obs: Any) -> Obs:
        return convert(self._spec.observation, obs)

    def _to_env(self, action: np.ndarray) -> np.ndarray:
        """Return actions in the environment's own range."""
        from gymnasium.spaces import Discrete

        space = self._spec.action
        if isinstance(space, Discrete):
            return action + space.start
        fraction = (np.clip(action, -1.0, 1.0).reshape(len(action), *space.shape) + 1.0) / 2.0
        return (space.low + fraction * (space.high - space.low)).astype(space.dtype)


def _bounded(part: np.ndarray) -> np.ndarray:
    return np.abs(part) < OBS_LIMIT if part.dtype != np.uint8 else np.ones(part.shape, bool)


def _rows(obs: Obs, mask: np.ndarray) -> Obs:
    return map_parts(lambda part: part[mask], obs)


def _replaced(obs: Obs, places: Any, rows: Obs) -> Obs:
    """Write rows into observations, which are changed in place."""

    def write(part: np.ndarray, new: np.ndarray) -> np.ndarray:
        part[places] = new
        return part

    return map_parts(write, obs, rows)


def _serve(connection: Connection, arguments: tuple) -> None:
    """Step a group on request, until the other end of the connection closes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the run decides when to stop, not Ctrl-C
        signal.signal(number, signal.SIG_IGN)
    group = EnvGroup(*arguments)
    try:
        connection.send((group.obs, group.ended, None, EpisodeBuffer([], 0)))
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                step = group.step(connection.recv())
                connection.send((group.obs, group.ended, step, group.episodes))
                group.episodes = EpisodeBuffer([], 0)
    finally:
        group.close()


class EnvWorker:
    """A group in a process of its own: `send` actions, do something else, then `receive`.

    Threads would not do: Python would step one group and send the next actions in turn.
    """

    def __init__(self, *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, arguments), daemon=True)
        self._process.start()
        child.close()
        self.episodes = EpisodeBuffer([], 0)
        self._started = False

    def wait_ready(self) -> None:
        """Wait for the first observation of the environments."""
        if not self._started:
            self._started = True
            self.receive()

    def send(self, action: np.ndarray) -> None:
        """Start a step of the group."""
        with self._alive():
            self._connection.send(action)

    def receive(self) -> GroupStep:
        """Wait for the step and return its result."""
        with self._alive():
            self.obs, self.ended, step, episodes = self._connection.recv()
        self.episodes = EpisodeBuffer(
            self.episodes.finished + episodes.finished, self.episodes.diverged + episodes.diverged
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
                f"A process of Gymnasium environments ended (exit code {code}); see its output "
                "above."
            ) from error


class WorkerGroup:
    """A group whose rows are split over workers, in order: one for each device that learns."""

    def __init__(self, workers: Sequence[EnvWorker]):
        self.workers = workers

    def wait_ready(self) -> None:
        """Wait for the first observation of the environments."""
        for worker in self.workers:
            worker.wait_ready()
        self._join()

    def send(self, action: np.ndarray) -> None:
        """Start a step of the group."""
        for worker, part in zip(self.workers, np.split(action, len(self.workers)), strict=True):
            worker.send(part)

    def receive(self) -> GroupStep:
        """Wait for the step and return its result."""
        steps = [worker.receive() for worker in self.workers]
        self._join()
        return GroupStep(*(_concatenated(each) for each in zip(*steps, strict=True)))

    def take_episodes(self) -> list[EpisodeBuffer]:
        """Return the episodes of each worker since the last call."""
        taken = [worker.episodes for worker in self.workers]
        for worker in self.workers:
            worker.episodes = EpisodeBuffer([], 0)
        return taken

    def close(self) -> None:
        """End the processes."""
        for worker in self.workers:
            worker.close()

    def _join(self) -> None:
        self.obs = _concatenated([worker.obs for worker in self.workers])
        self.ended = _concatenated([worker.ended for worker in self.workers])


def _concatenated(parts: Sequence[Obs]) -> Obs:
    if len(parts) == 1:
        return parts[0]
    return map_parts(lambda *each: np.concatenate(each), *parts)
