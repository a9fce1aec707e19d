"""Recorded episodes whose best policy is known."""

import numpy as np

from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode


def write_bandit(path, *, episodes=60, length=10, discrete=False, seed=0):
    """Record uniformly random actions; the reward of each depends on it and its observation alone.

    Continuous actions are best where they equal the first number of the observation, discrete ones
    where they equal its sign. BC learns the mean of random actions, 0, and no single choice.
    """
    rng = np.random.default_rng(seed)
    played = []
    for _ in range(episodes):
        obs = rng.uniform(-1, 1, (length + 1, 2)).astype(np.float32)
        if discrete:
            action = rng.integers(0, 2, (length, 1)).astype(np.float32)
            reward = np.float32(action[:, 0] == best_discrete(obs[:-1]))
        else:
            action = rng.uniform(-1, 1, (length, 1)).astype(np.float32)
            reward = -np.square(action[:, 0] - obs[:-1, 0])
        played.append(Episode({"state": obs[:-1]}, {"state": obs[1:]}, action, reward, True))
    spec = {"size": 2 if discrete else 1, "discrete": discrete}
    hdf5.write(path, played, {"env_name": "bandit", "action": spec}, {})
    return path


def best_discrete(obs):
    """Return the best actions of the discrete bandit."""
    return (obs[..., 0] > 0).astype(int)
