"""Several probes in one program: compiling takes far longer than training on a probe."""

import jax

from jaxrl.envs.tasks import probe_base


class AnyProbe(probe_base.Probe):
    """The probe of a given, possibly traced, number among probes with alike spaces.

    Its time limit is the shortest one; probes that terminate by themselves must not reach it.
    """

    def __init__(self, classes, number):
        self.probes, self.number = [each() for each in classes], number
        first = self.probes[0]
        self.observation_size, self.action_size = first.observation_size, first.action_size
        if hasattr(first, "num_actions"):
            self.num_actions = first.num_actions
        self.episode_length = min(probe.episode_length for probe in self.probes)
        terminating = [probe.length for probe in self.probes if probe.length < probe_base.NEVER]
        assert all(length < self.episode_length for length in terminating)

    def reset(self, rng):
        return jax.lax.switch(self.number, [probe.reset for probe in self.probes], rng)

    def step(self, state, action):
        return jax.lax.switch(self.number, [probe.step for probe in self.probes], state, action)
