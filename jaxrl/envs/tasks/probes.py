"""Tiny environments with known answers, each of which only a correct learner solves.

Each probe isolates one part of a learner, so the first one that fails names the broken part. Values
are for discount gamma. Probes that terminate keep their time limit out of reach, so a time-out
never hides a termination bug. Where a value is the answer, the last observation is also one from
inside an episode, so that bootstrapping through the end has a definite wrong answer.
"""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from brax.envs import base

from jaxrl.envs.tasks.probe_base import Probe, ProbeState, as_float, match


class ConstantValue(Probe):
    """Pay 1 in a single step with observation 0: V = 1.

    Catches a value loss that does not fit at all; 1 / (1 - gamma) means bootstrapping at the end.
    """

    length = 1

    def observe(self, probe: ProbeState) -> jax.Array:
        """Return a constant."""
        return jnp.zeros(1, jnp.float32)

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return 1 for every action."""
        return as_float(1.0)


class ObservationValue(Probe):
    """Pay the observation, -1 or +1, in a single step: V(obs) = obs.

    Catches a critic that does not see its observation, or sees another environment's.
    """

    length = 1


class Discounting(Probe):
    """Show 0, then 1; reward 1 for the second step only: V(0) = gamma, V(1) = 1.

    Catches missing or double discounting and values shifted by a step.
    """

    length = 2

    def observe(self, probe: ProbeState) -> jax.Array:
        """Show which step comes next."""
        return as_float(jnp.minimum(probe.steps, 1))[None]

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Reward the second step only."""
        return probe.steps == 1


class ActionChoice(Probe):
    """Pay +1 for action 1 and -1 for action 0 in a single step: best action 1, return 1.

    Catches a policy gradient of the wrong sign and advantages that do not reach the policy.
    """

    length = 1
    num_actions = action_size = 2

    def observe(self, probe: ProbeState) -> jax.Array:
        """Return a constant."""
        return jnp.zeros(1, jnp.float32)

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Reward action 1."""
        return jnp.where(action == 1, 1.0, -1.0)


class ObservationAction(Probe):
    """Pay +1 if the action (0 or 1) matches the sign shown (-1 or +1), else -1, in a single step.

    Best action (obs + 1) / 2, return 1; without looking, 0. Catches a policy that does not see its
    observation and batches whose observations and actions are shuffled apart.
    """

    length = 1
    num_actions = action_size = 2

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Compare the action with the sign."""
        return match(action, probe.secret)


class ContinuousTarget(Probe):
    """Pay -(action - obs)^2 in a single step with obs in [-0.8, 0.8]: best action obs, return 0.

    Always acting 0 returns -0.64 / 3 = -0.213. Catches wrong log-probabilities of squashed actions
    and mix-ups of actions before and after squashing.
    """

    length = 1

    def sample_secret(self, rng: jax.Array) -> jax.Array:
        """Draw the target."""
        return jax.random.uniform(rng, (), jnp.float32, -0.8, 0.8)

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return minus the squared distance to the target."""
        return -((action[0] - probe.secret) ** 2)


class TruncationBootstrap(Probe):
    """Pay 1 for ever under a time limit of 4, always showing 1: V = 1 / (1 - gamma).

    Catches time-outs treated as terminations, which give at most 1 + gamma + gamma^2 + gamma^3.
    """

    episode_length = 4

    def observe(self, probe: ProbeState) -> jax.Array:
        """Hide the time, so all steps share one value."""
        return jnp.ones(1, jnp.float32)

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return 1 for every action."""
        return as_float(1.0)


class TerminationCut(Probe):
    """Pay 1 per step for 4 steps, showing the steps left n as one-hot index n - 1.

    V(n) = (1 - gamma^n) / (1 - gamma). The last observation is that of a new episode, so a learner
    that bootstraps through termination finds 1 / (1 - gamma) everywhere.
    """

    length = observation_size = 4

    def observe(self, probe: ProbeState) -> jax.Array:
        """Show the steps left, starting over at the end."""
        left = self.length - probe.steps % self.length
        return jax.nn.one_hot(left - 1, self.length, dtype=jnp.float32)

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return 1 for every action."""
        return as_float(1.0)


class PrivilegedValue(Probe):
    """Pay in a single step a sign that only "privileged_state" shows; "state" is all zeros.

    V(privileged_state) = privileged_state; a critic that sees "state" finds 0, mean squared error
    1. Catches a critic that is fed the actor's observation. No action matters.
    """

    length = 1
    # The sizes differ so that swapped parts cannot go unnoticed.
    observation_size: ClassVar = {"state": (2,), "privileged_state": (1,)}

    def observe(self, probe: ProbeState) -> dict[str, jax.Array]:
        """Show the secret in the privileged part only."""
        return {"state": jnp.zeros(2, jnp.float32), "privileged_state": probe.secret[None]}


class Memory(Probe):
    """Show a sign once, then `delay` zeros; the action on the last zero must match the sign.

    Pays +1 or -1 at the end: return 1 with memory, 0 without. Catches recurrent states that are
    lost, reset inside an episode or carried wrongly through minibatches.
    """

    num_actions = action_size = 2

    def __init__(self, delay: int = 3):
        """Set how many blank observations follow the cue."""
        if delay < 1:
            raise ValueError(f"Memory needs delay >= 1, got {delay}")
        self.length = delay + 1
        self.episode_length = max(self.episode_length, self.length + 1)

    def observe(self, probe: ProbeState) -> jax.Array:
        """Show the cue on the first step only."""
        return jnp.where(probe.steps == 0, probe.secret, 0.0)[None]

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Reward the last action."""
        return jnp.where(probe.steps == self.length - 1, match(action, probe.secret), 0.0)


class Exploding(Probe):
    """Emit `value` from the k-th step on, before that obs 1 and reward 1; never terminates.

    With k = 0 even the first observation is bad; a k beyond the time limit never explodes. The
    right answer is that parameters stay finite. Catches missing guards against non-finite data.
    """

    def __init__(
        self, k: int = 5, value: float = math.nan, in_obs: bool = True, in_reward: bool = True
    ):
        """Set when to explode, into what, and whether in observation, reward or both."""
        if k < 0:
            raise ValueError(f"Exploding needs k >= 0, got {k}")
        self.k, self.value = k, value
        self.in_obs, self.in_reward = in_obs, in_reward

    def observe(self, probe: ProbeState) -> jax.Array:
        """Show 1 until the explosion."""
        return as_float(jnp.where(self.in_obs & (probe.steps >= self.k), self.value, 1.0))[None]

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return 1 until the explosion."""
        return jnp.where(self.in_reward & (probe.steps + 1 >= self.k), self.value, 1.0)


class Success(Probe):
    """Last a random number of steps, showing those left n; action 1 on the last one succeeds.

    Reward and `metrics["success"]` are 1 on a successful last step, else 0: best return 1 and
    V(n) = gamma^(n - 1). A success rate averaged over steps, not episodes, comes out too low.
    """

    num_actions = action_size = 2

    def __init__(self, min_steps: int = 1, max_steps: int = 4):
        """Set the range from which each episode's length is sampled uniformly."""
        if not 1 <= min_steps <= max_steps:
            raise ValueError(f"Success needs 1 <= min <= max steps, got {min_steps}, {max_steps}")
        self.min_steps, self.max_steps = min_steps, max_steps
        self.episode_length = max(self.episode_length, max_steps + 1)

    def reset(self, rng: jax.Array) -> base.State:
        """Draw the episode's length; there is no success yet."""
        return dataclasses.replace(super().reset(rng), metrics={"success": as_float(0.0)})

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Count down and report success on the last step."""
        after = super().step(state, action)
        metrics = {**after.metrics, "success": as_float(after.reward)}
        return dataclasses.replace(after, metrics=metrics)

    def sample_secret(self, rng: jax.Array) -> jax.Array:
        """Draw the length of the episode."""
        choices = self.max_steps - self.min_steps + 1
        return self.min_steps + jnp.floor(choices * jax.random.uniform(rng, (), jnp.float32))

    def observe(self, probe: ProbeState) -> jax.Array:
        """Show the steps left."""
        return (probe.secret - probe.steps)[None]

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Reward action 1 on the last step."""
        return (probe.secret - probe.steps == 1) & (action == 1)

    def is_over(self, probe: ProbeState) -> jax.Array:
        """Return whether the sampled number of steps was taken."""
        return probe.steps >= probe.secret


class FreshStart(Probe):
    """Show a number sampled at reset, which is the reward of 3 steps; catches reused starts."""

    length = 3

    def sample_secret(self, rng: jax.Array) -> jax.Array:
        """Draw the number that marks the episode."""
        return jax.random.uniform(rng, (), jnp.float32, -1.0, 1.0)


class Counter(Probe):
    """Show the number of steps taken since reset, also the reward, for ever.

    A time limit of L gives L (L + 1) / 2 and a true next observation of L at the end, not 0.
    """

    def observe(self, probe: ProbeState) -> jax.Array:
        """Show the count."""
        return as_float(probe.steps)[None]

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return the count after this step."""
        return probe.steps + 1


PROBES: dict[str, type[Probe]] = {
    "value": ConstantValue,
    "obs_value": ObservationValue,
    "discount": Discounting,
    "action": ActionChoice,
    "obs_action": ObservationAction,
    "continuous_action": ContinuousTarget,
    "truncation": TruncationBootstrap,
    "termination": TerminationCut,
    "dict_obs": PrivilegedValue,
    "memory": Memory,
    "exploding": Exploding,
    "success": Success,
    "fresh_start": FreshStart,
    "counter": Counter,
}
