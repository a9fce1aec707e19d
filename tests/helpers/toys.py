"""A Gymnasium environment with known values, registered for `gym:tests.helpers.toys:...`."""

import gymnasium
import numpy as np


class Count(gymnasium.Env):
    """Observation and reward are the steps since reset; terminates after `lasts` steps."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32([0, 10]), np.float32([4, 20]), dtype=np.float32)

    def __init__(self, lasts=10**9, breaks=10**9, start=0.0, paid=float("nan"), done=False):
        self.lasts, self.breaks = lasts, breaks
        self.start, self.paid, self.done = start, paid, done

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.full(1, self.start, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        obs = np.full(1, self.steps, np.float32)
        breaks = self.steps == self.breaks
        reward = self.paid if breaks else float(self.steps)
        return obs, reward, self.done if breaks else self.steps >= self.lasts, False, {}


for name, limit, kwargs in (
    ("Cut", 3, {}),
    ("Ends", 100, {"lasts": 4}),
    ("Breaks", 9, {"breaks": 2}),
    ("NanStart", 9, {"start": float("nan")}),
    ("NanDone", 9, {"breaks": 2, "paid": 1.0, "done": float("nan")}),
    ("Huge", 9, {"breaks": 2, "paid": 1e300}),
):
    gymnasium.register(
        id=f"{name}-v0",
        entry_point=Count,
        max_episode_steps=limit,
        kwargs=kwargs,
        disable_env_checker=True,  # invalid values are intended
    )
