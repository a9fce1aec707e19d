"""A Gymnasium environment with known values, registered for `gym:tests.helpers.toys:...`."""

import gymnasium
import numpy as np


class Count(gymnasium.Env):
    """Observation and reward are the steps since reset; terminates after `lasts` steps."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32([0, 10]), np.float32([4, 20]), dtype=np.float32)

    def __init__(self, lasts=10**9, breaks=10**9, start=0.0, reward=float("nan"), done=False):
        self.lasts, self.breaks = lasts, breaks
        self.start, self.reward, self.done = start, reward, done

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.full(1, self.start, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        obs = np.full(1, self.steps, np.float32)
        breaks = self.steps == self.breaks
        reward = self.reward if breaks else float(self.steps)
        return obs, reward, self.done if breaks else self.steps >= self.lasts, False, {}


class Mixed(Count):
    """The same, seen as a dict: two images, a vector and a number."""

    observation_space = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 255, (3, 16, 12), np.uint8),  # channels first
            "depth": gymnasium.spaces.Box(0, 255, (16, 12), np.uint8),
            "joints": gymnasium.spaces.Box(-1e6, 1e6, (2, 1), np.float64),
            "tool": gymnasium.spaces.Discrete(3, start=5),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self._see(super().reset(seed=seed, options=options)[0][0]), {}

    def step(self, action):
        obs, *others = super().step(action)
        return self._see(obs[0]), *others

    def _see(self, value):
        tool = 5 + int(np.nan_to_num(value)) % 3
        camera = np.zeros((3, 16, 12), np.uint8)
        camera[1] = 10 * tool
        depth = np.full((16, 12), tool, np.uint8)
        return {"camera": camera, "depth": depth, "joints": np.full((2, 1), value), "tool": tool}


for name, limit, kwargs in (
    ("Mixed", 100, {"lasts": 3}),
    ("MixedBreaks", 9, {"start": float("nan")}),
    ("Cut", 3, {}),
    ("Ends", 100, {"lasts": 4}),
    ("Breaks", 9, {"breaks": 2}),
    ("NanStart", 9, {"start": float("nan")}),
    ("NanDone", 9, {"breaks": 2, "reward": 1.0, "done": float("nan")}),
    ("Huge", 9, {"breaks": 2, "reward": 1e300}),
):
    gymnasium.register(
        id=f"{name}-v0",
        entry_point=Mixed if name.startswith("Mixed") else Count,
        max_episode_steps=limit,
        kwargs=kwargs,
        disable_env_checker=True,  # invalid values are intended
    )
