"""A Gymnasium environment whose every number is known; `gym:tests.runtime.toys:...` finds it."""

import gymnasium
import numpy as np


class Count(gymnasium.Env):
    """Show and pay the steps since reset; terminates after `lasts` steps."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Box(np.float32([0, 10]), np.float32([4, 20]), dtype=np.float32)

    def __init__(self, lasts=10**9):
        self.lasts = lasts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        seen = np.full(1, self.steps, np.float32)
        return seen, float(self.steps), self.steps >= self.lasts, False, {}


for name, limit, lasts in (("Cut-v0", 3, 10**9), ("Ends-v0", 100, 4)):
    gymnasium.register(id=name, entry_point=Count, max_episode_steps=limit, kwargs={"lasts": lasts})
