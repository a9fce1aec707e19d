"""Environments of a user's own, as tests name them: tests.runtime.worlds:Overflow."""

from jaxrl.envs import probes


class Overflow(probes.Exploding):
    """Rewards too large to learn from: finite themselves, infinite once squared."""

    def __init__(self):
        super().__init__(k=1, value=3e38, in_obs=False)
