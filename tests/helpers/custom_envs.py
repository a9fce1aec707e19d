"""Custom environments: valid, careless and invalid ones."""

import copy
import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.envs.hooks import TrialSchedule
from jaxrl.envs.tasks import probes, tracking
from jaxrl.motion import clip_sampling

NOT_CALLABLE = 3


class Plain(probes.Counter):
    """Takes no backend."""


class Backed(probes.Counter):
    """Takes a backend."""

    def __init__(self, backend: str = "its own choice"):
        self.backend = backend


class OpenEnded(probes.Counter):
    """Takes any keyword argument."""

    def __init__(self, **kwargs):
        self.kwargs = kwargs


class NotAnEnvironment:
    """Has an action size, and nothing else that an environment needs."""

    action_size = 1


class Loose(probes.Counter):
    """`step` returns weakly typed, float64, integer and boolean values where reset gave float32."""

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, metrics={"height": 0.0, "success": jnp.float32(0)})

    def step(self, state, action):
        after = super().step(state, action)
        steps = after.pipeline_state.steps
        return dataclasses.replace(
            after,
            obs=jnp.where(steps > 0, steps, 0)[None],  # int32
            reward=steps,  # int32
            done=steps > 1000,  # bool
            metrics={"height": np.float64(1.5), "success": steps > 1},
        )


class FirstIntegers(probes.Counter):
    """`reset` returns integers, as `jnp.array([0])` does, and `step` returns floats."""

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, obs=jnp.array([0]), reward=jnp.array(0))

    def step(self, state, action):
        after = super().step(state, action)
        half = jnp.float32(0.5)
        return dataclasses.replace(after, obs=half[None], reward=half)


class Cutting(probes.Counter):
    """Reports a truncation after `cut` steps, with or without `done`, and continues."""

    def __init__(self, cut: int = 2, done: bool = True):
        self.cut, self.done = cut, done

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, info={"truncation": jnp.float32(0)})

    def step(self, state, action):
        after = super().step(state, action)
        cut = (after.pipeline_state.steps == self.cut).astype(jnp.float32)
        return dataclasses.replace(
            after, done=cut if self.done else after.done, info={"truncation": cut}
        )


class Noisy(probes.Counter):
    """Observes noise sampled from a random key in its state: a raw or a typed key."""

    def __init__(self, kind: str = "raw"):
        self.kind = kind

    def _with(self, state, key, obs):
        typed = self.kind == "typed"
        hidden = key if typed else jax.random.key_data(key)
        places = {"raw": {"rng": hidden}, "nested": {"inner": {"key": hidden}}, "typed": {}}
        physics = {"steps": state.pipeline_state, "hidden": hidden if typed else ()}
        numbers = jnp.arange(2, dtype=jnp.uint32)  # looks like a raw key, but is not one
        info = places[self.kind] | {"numbers": numbers}
        return dataclasses.replace(state, pipeline_state=physics, obs=obs, info=info)

    def reset(self, rng):
        key = jax.random.wrap_key_data(rng)
        return self._with(super().reset(rng), key, jnp.zeros(1))

    def step(self, state, action):
        info, physics = state.info, state.pipeline_state
        raw = {"raw": lambda: info["rng"], "nested": lambda: info["inner"]["key"]}
        typed = self.kind == "typed"
        key = physics["hidden"] if typed else jax.random.wrap_key_data(raw[self.kind]())
        key, now = jax.random.split(key)
        after = super().step(dataclasses.replace(state, pipeline_state=physics["steps"]), action)
        return self._with(after, key, jax.random.normal(now, (1,)))


class NanEnding(Cutting):
    """Returns NaN as `done` or as truncation after `at` steps."""

    def __init__(self, at: int = 3, flag: str = "done"):
        super().__init__(cut=10**6)
        self.at, self.flag = at, flag

    def step(self, state, action):
        after = super().step(state, action)
        bad = jnp.where(after.pipeline_state.steps == self.at, jnp.nan, 0.0)
        if self.flag == "done":
            return dataclasses.replace(after, done=bad)
        return dataclasses.replace(after, info={"truncation": bad})


class NanStart(probes.Counter):
    """Observes NaN at reset, and finite values afterwards."""

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, obs=state.obs * jnp.nan)


class Measured(probes.Counter):
    """Reports the step count as a metric, and success on even counts."""

    def _measure(self, state):
        steps = state.pipeline_state.steps
        success = (steps > 0) & (steps % 2 == 0)
        metrics = {"height": steps.astype(jnp.float32), "success": success.astype(jnp.float32)}
        return dataclasses.replace(state, metrics=metrics)

    def reset(self, rng):
        return self._measure(super().reset(rng))

    def step(self, state, action):
        return self._measure(super().step(state, action))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Physics:
    """The `sys` of a custom environment."""

    speed: jax.Array
    width: jax.Array


class Discrete(base.Env):
    """Has physics parameters, discrete actions and its own time limit."""

    num_actions = action_size = 3
    observation_size = 1
    episode_length = 7
    backend = "own"

    def __init__(self):
        self.sys = Physics(jnp.float32(1.0), jnp.float32(2.0))

    def reset(self, rng):
        return base.State(jnp.zeros(()), jnp.zeros(1), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        return dataclasses.replace(state, obs=state.obs + self.sys.speed)


class Drill(base.Env):
    """Three clips without physics: a dot follows targets at speeds it can and cannot reach.

    The speed of the dot is limited, so the last clip fails and the first succeeds with any policy.
    """

    observation_size = action_size = 1
    backend = "own"
    num_trials = 3
    trial_names = ("still", "slow", "fast")
    trial_criteria = tracking.CRITERIA
    episode_length = 12
    library = types.SimpleNamespace(names=trial_names, planned=("still",), fps=30.0)
    speeds = np.float32([0.0, 0.02, 0.2])
    lengths = np.int32([5, 8, 10])

    def __init__(self, every=1):
        self.every = every

    def first_curriculum(self):
        return jax.tree.map(np.asarray, clip_sampling.init(self.num_trials))

    def trial_schedule(self):
        return TrialSchedule(every=self.every)

    def update_curriculum_from_trials(self, curriculum, episodes):
        played, reference = (np.asarray(episodes.trace[name]) for name in ("position", "captured"))
        within = np.arange(len(played))[:, None] < np.asarray(episodes.lengths)[None, :]
        far = np.abs(played - reference).max((2, 3)) > 0.25
        failed = (far & within).any(0)
        after = clip_sampling.update(curriculum, jnp.asarray(failed), floor=0.3, decay=0.9)
        return after, {"max_weight": float(after.weights.max()), "failed_clips": failed.sum()}

    def reset(self, rng, curriculum=None):
        weights = curriculum.weights if curriculum else jnp.full(3, 1 / 3)
        return self._begin(jax.random.categorical(rng, jnp.log(weights)))

    def trial(self, clip):
        return self._begin(clip)

    def record(self, state):
        clip, time, dot = (state.info[name] for name in ("clip", "time", "dot"))
        target = jnp.asarray(self.speeds)[clip] * time
        at = jnp.asarray([[1.0, 0.0, 0.0]])
        bodies = jnp.ones(1, bool)
        return {"position": dot * at, "captured": target * at, "success_bodies": bodies}

    def trial_report(self, episodes):
        return tracking.report(episodes, self.library)

    def trial_success(self, episodes):
        return tracking.evaluate(episodes.trace, episodes.lengths).success

    def _begin(self, clip):
        zero = jnp.zeros(())
        info = {"clip": clip, "time": zero, "dot": zero, "truncation": zero}
        metrics = {"clip": clip.astype(jnp.float32)}
        return base.State(None, jnp.zeros(1), zero, zero, metrics, info)

    def step(self, state, action):
        clip, time = state.info["clip"], state.info["time"] + 1.0
        target = jnp.asarray(self.speeds)[clip] * time
        dot = jnp.minimum(target, 0.05 * time) + 0.01 * action[0]
        over = (time >= jnp.asarray(self.lengths)[clip]).astype(jnp.float32)
        info = {"clip": clip, "time": time, "dot": dot, "truncation": over}
        obs = (target - dot)[None]
        return dataclasses.replace(state, obs=obs, reward=-jnp.abs(obs[0]), done=over, info=info)


class StreamedDrill(Drill):
    """Six clips, two of which are on the device: their numbers, speeds and lengths.

    Its metric `stale` counts steps that read another clip than the one the episode began with.
    """

    num_trials = 2
    trial_names = ("a", "b", "c", "d", "e", "f")
    library = types.SimpleNamespace(names=trial_names, planned=(), fps=30.0)
    speeds = np.float32([0.0, 0.01, 0.02, 0.03, 0.2, 0.3])
    lengths = np.int32([5, 8, 10, 6, 7, 9])
    first = np.int32([0, 1])

    def first_curriculum(self):
        sampling = jax.tree.map(np.asarray, clip_sampling.init(6, failures=1.0))
        return clip_sampling.ResidentSet(sampling, self.first, np.float32([0.5, 0.5]))

    def update_curriculum_from_trials(self, curriculum, episodes):
        number = int(curriculum.sampling.evaluations) + 1
        sampling = curriculum.sampling.replace(evaluations=np.int32(number))
        clips = np.int32([2 * number % 6, (2 * number + 1) % 6])
        return curriculum.replace(sampling=sampling, clips=clips), {"first": clips[0]}

    def shared_arrays(self, curriculum):
        return self._arrays(np.asarray(curriculum.clips))

    def all_trials(self):
        return [self._arrays(np.int32([i, (i + 1) % 6])) for i in (0, 2, 4)]

    def with_trials(self, numbers):
        env = Drill()
        env.num_trials, env.trial_names = len(numbers), [self.trial_names[i] for i in numbers]
        env.speeds, env.lengths = self.speeds[list(numbers)], self.lengths[list(numbers)]
        return env

    def _arrays(self, clips):
        return {"clips": clips, "speeds": self.speeds[clips], "lengths": self.lengths[clips]}

    def _of(self, shared):
        env = copy.copy(self)
        shared = self._arrays(self.first) if shared is None else shared
        env.clips, env.speeds, env.lengths = (
            jnp.asarray(shared[name]) for name in ("clips", "speeds", "lengths")
        )
        return env

    def reset(self, rng, curriculum=None, shared=None):
        return self.trial(jax.random.randint(rng, (), 0, 2), shared)

    def trial(self, clip, shared=None):
        state = self._begin(clip)
        return dataclasses.replace(
            state,
            metrics=state.metrics | {"stale": jnp.zeros(())},
            info=state.info | {"number": self._of(shared).clips[clip]},
        )

    def record(self, state, shared=None):
        return super(StreamedDrill, self._of(shared)).record(state) | {"clip": state.info["number"]}

    def step(self, state, action, shared=None):
        env, number = self._of(shared), state.info["number"]
        after = super(StreamedDrill, env).step(state, action)
        stale = (env.clips[state.info["clip"]] != number).astype(jnp.float32)
        return dataclasses.replace(
            after,
            metrics=after.metrics | {"stale": stale, "clip": number.astype(jnp.float32)},
            info=after.info | {"number": number},
        )

    def trial_report(self, episodes):
        names = [self.trial_names[i] for i in np.asarray(episodes.trace["clip"])[0]]
        return tracking.report(episodes, types.SimpleNamespace(names=names, planned=(), fps=30.0))


class Pacer(base.Env):
    """A dot without reward; demonstrations move to the right at half of its top speed.

    Its AMP observation is its last two speeds: only the discriminator rewards the right speed.
    """

    action_size = 1
    observation_size = 1
    backend = "own"
    episode_length = 10
    pace = 0.5

    def demonstrations(self, key, number):
        return self.pace + 0.05 * jax.random.normal(key, (number, 2))

    def reset(self, rng):
        zero = jnp.zeros(())
        obs = {"state": jax.random.uniform(rng, (1,)), "amp": jnp.zeros(2)}
        return base.State(None, obs, zero, zero, {"speed": zero})

    def step(self, state, action):
        speed = jnp.clip(action[:1], -1.0, 1.0)
        speeds = jnp.concatenate([state.obs["amp"][1:], speed])
        obs = {"state": state.obs["state"] + 0.1 * speed, "amp": speeds}
        return dataclasses.replace(state, obs=obs, metrics={"speed": speed[0]})


class Widening(base.Env):
    """The reward of every step is the curriculum level of the episode; every episode succeeds."""

    observation_size = action_size = 1
    backend = "own"
    episode_length = 4

    def first_curriculum(self):
        return {"level": np.float32(0.25)}

    def last_curriculum(self):
        return {"level": np.float32(1.0)}

    def update_curriculum(self, curriculum, metrics):
        level = curriculum["level"] + np.float32(0.125) * (metrics["rollout/success_rate"] > 0.8)
        return {"level": level}, {"level": level}

    def reset(self, rng, curriculum=None):
        level = jnp.asarray(curriculum["level"] if curriculum else 1.0, jnp.float32)
        zero, metrics = jnp.zeros(()), {"success": jnp.zeros(())}
        return base.State(None, level[None], zero, zero, metrics, {})

    def step(self, state, action):
        reward = state.obs[0]
        return dataclasses.replace(state, reward=reward, metrics={"success": jnp.ones(())})
