"""Environments of a user's own, as tests name them: tests.runtime.worlds:Overflow."""

from jaxrl.envs import probes


class Overflow(probes.Exploding):
    """From step 40 on, rewards too large to learn from: finite, but infinite once squared."""

    def __init__(self):
        super().__init__(k=40, value=3e38, in_obs=False)


class Breaks(probes.Exploding):
    """Shows no number from the fifth step of every episode on."""

    def __init__(self):
        super().__init__(k=5, in_reward=False)
