"""Several probes in one program: compiling takes far longer than training on a probe."""

import jax
import jax.numpy as jnp

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


class Together(probe_base.Probe):
    """Probes with equal spaces as the agents of one environment, each with its own reward."""

    def __init__(self, classes):
        self.probes = [each() for each in classes]
        first = self.probes[0]
        self.observation_size, self.action_size = first.observation_size, first.action_size
        self.num_actions, self.num_agents = first.num_actions, len(self.probes)
        self.episode_length = first.episode_length

    def reset(self, rng):
        keys = jax.random.split(rng, len(self.probes))
        return self._joined([p.reset(key) for p, key in zip(self.probes, keys, strict=True)])

    def step(self, state, action):
        states = []
        for i, (probe, own) in enumerate(zip(self.probes, state.pipeline_state, strict=True)):
            alone = state.replace(pipeline_state=own, obs=state.obs[i], reward=state.reward[i])
            states.append(probe.step(alone, action[i]))
        return self._joined(states)

    def _joined(self, states):
        obs, reward, done = (
            jnp.stack([getattr(each, part) for each in states])
            for part in ("obs", "reward", "done")
        )
        own = tuple(each.pipeline_state for each in states)
        return states[0].replace(pipeline_state=own, obs=obs, reward=reward, done=jnp.max(done))
