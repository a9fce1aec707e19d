"""Programs of Gymnasium environments: rollouts are collected on the CPU, learning is compiled.

The environments step in `async_factor` groups. While the device computes one group's actions,
the others step, in processes of their own.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.off_policy import replay
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.gymnasium.workers import EpisodeBuffer, GroupStep
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation.gymnasium import make_act, play
from jaxrl.programs.program import Program
from jaxrl.types import RECORDS, Algorithm, EnvSpec, Mean, Metrics, PyTree, Rollout, TrainState
from jaxrl.utils import sharding, streams
from jaxrl.utils.xla_options import compile_for_devices


@dataclass(frozen=True, kw_only=True)
class GymnasiumProgram(Program):
    """Environments step in processes of their own; acting and learning are compiled."""

    env: GymnasiumEnv
    algorithm: Algorithm

    @property
    def spec(self) -> EnvSpec:
        """What networks must know of observations and actions."""
        return self.env.spec

    def abstract_state(self) -> TrainState:
        """Return shapes, types and shardings of the training state."""
        key, pool = jax.eval_shape(jax.random.key, 0), self.env.abstract_pool()
        return sharding.abstract(self.mesh, jax.eval_shape(self.algorithm.init, key, pool))

    def start(self, cycles: int = 0) -> "GymnasiumExecutor":
        """Start the environments, and begin to compile."""
        return GymnasiumExecutor(self, cycles)


class GymnasiumExecutor:
    """Collects rollouts from worker processes, and learns from them with a compiled function."""

    def __init__(self, program: GymnasiumProgram, cycles: int = 0):
        self.program, self._env = program, program.env
        config, algorithm = program.config, program.algorithm
        self._state = program.abstract_state()
        number = config.num_envs // self._env.groups
        self.groups = [
            self._env.worker(number, config.seed, i, cycles) for i in range(self._env.groups)
        ]
        self.carries = [_rollout_carry(algorithm, number) for _ in self.groups]
        self._fresh = True
        self._ended: list[tuple[float, int]] = []  # return and length, of the last rollout
        self.act = jax.jit(make_act(algorithm.policy(False)))
        self._act_key = streams.key(config.seed, streams.ACT)
        self._act_in_evaluation = jax.jit(make_act(algorithm.policy(config.eval.deterministic)))
        threads = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._learning = threads.submit(self._compile)
        threads.shutdown(wait=False)

    def _compile(self) -> jax.stages.Compiled:
        learn = jax.jit(self.program.algorithm.learn, donate_argnums=0)
        return compile_for_devices(learn.lower(self._state, abstract_rollout(self.program)))

    def init_state(self) -> TrainState:
        """Return the state a new run begins with."""
        key = streams.key(self.program.config.seed, streams.INIT, 1)
        return jax.jit(self.program.algorithm.init)(key)

    def close(self) -> None:
        """End the environments' processes."""
        for group in self.groups:
            group.close()

    def wait(self) -> None:
        """Return when training can begin."""
        self._learning.result()

    def run_cycle(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is donated."""
        if self._fresh:  # its episodes are not the ones that an earlier process played
            self._fresh, collector = False, state.collector
            blank = jax.tree.map(
                jnp.zeros_like, (collector.critic_carry, collector.discounted_return)
            )
            length = self.program.config.learning.rollout_length
            collector = collector.replace(
                critic_carry=blank[0],
                discounted_return=blank[1],
                replay=replay.restart_episodes(collector.replay, length)
                if number
                else collector.replay,
            )
            state = state.replace(collector=collector)
        total: Metrics = {}
        ended: list[list[tuple[float, int]]] = []  # episodes of each iteration
        for i in range(self.program.config.iterations):
            iteration = number * self.program.config.iterations + i
            params = self.program.algorithm.policy_params(state.learner)
            experience = self.collect(params, iteration)
            state, metrics = self._learning.result()(state, experience)
            total = jax.tree.map(jnp.add, total, metrics) if total else metrics
            ended.append(self._ended)
        if self.program.config.log.episodes:
            total |= _records(ended)
        return state, total

    def restart(self, state: TrainState, number: int) -> TrainState:
        """Gymnasium environments have no trials after which they would."""
        raise NotImplementedError("Gymnasium environments have no trials")

    def evaluate(self, params: PyTree, number: int, curriculum: PyTree = ()) -> evaluation.Episodes:
        """Play whole episodes with the policy after cycle `number`."""
        del curriculum
        config = self.program.config
        carry = self.program.algorithm.initial_carry(config.eval.num_envs)
        key, seed = streams.key(config.seed, streams.PLAY, number), (config.seed, number)
        return play(
            self._env, self._act_in_evaluation, params, carry, config.eval.num_envs, seed, key
        )

    def evaluate_trials(
        self, params: PyTree, number: int, curriculum: PyTree = ()
    ) -> evaluation.Episodes:
        """Gymnasium environments have no trials."""
        raise NotImplementedError("Gymnasium environments have no trials")

    def collect(self, params: PyTree, iteration: int) -> Rollout:
        """Roll out all groups; none waits for another, only for its own last step."""
        length, rows = self.program.config.learning.rollout_length, _Rows(self._env.groups)
        for t in range(length):
            for g, group in enumerate(self.groups):
                if t == 0:
                    group.wait_ready()
                else:
                    rows.outcomes[g].append(group.receive())
                number = np.uint32(((iteration * length + t) * len(self.groups) + g) % 2**32)
                given = (group.obs, self.carries[g], group.ended, self._act_key, number)
                acted = self.act(params, *given)
                rows.decisions[g].append((group.obs, *jax.device_get(acted[:3])))
                self.carries[g] = acted.carry
                group.send(rows.decisions[g][-1][1])
        for g, group in enumerate(self.groups):
            rows.outcomes[g].append(group.receive())
        return rows.rollout(self.program.config.learning.horizon, self._finished())

    def _finished(self) -> Metrics:
        self._ended = [pair for group in self.groups for pair in group.episodes.finished]
        diverged = sum(group.episodes.diverged for group in self.groups)
        for group in self.groups:
            group.episodes = EpisodeBuffer([], 0)
        return _episode_metrics(self._ended, diverged)


class _Rows:
    """What a rollout is put together from, group by group."""

    def __init__(self, groups: int):
        self.decisions: list[list[tuple]] = [[] for _ in range(groups)]
        self.outcomes: list[list[GroupStep]] = [[] for _ in range(groups)]

    def rollout(self, horizon: int, episodes: Metrics) -> Rollout:
        """Join time and groups: [T, N, ...]."""

        def join(groups: list[list[Any]]) -> Any:
            stacked = [jax.tree.map(lambda *leaves: np.stack(leaves), *steps) for steps in groups]
            return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *stacked)

        obs, action, extras, before = join(self.decisions)
        carry = jax.tree.map(lambda leaf: leaf[::horizon], before)
        return Rollout(
            obs=obs,
            action=action,
            extras=extras,
            carry=carry,
            episodes=episodes,
            **join(self.outcomes)._asdict(),
        )


def _episode_metrics(ended: list[tuple[float, int]], diverged: int) -> Metrics:
    count = np.float32(len(ended))
    sums = np.sum(np.array(ended, np.float64).reshape(-1, 2), axis=0).astype(np.float32)
    return {
        "rollout/diverged": Mean(np.float32(diverged), np.float32(1)),  # type: ignore[arg-type]
        "rollout/ep_rew_mean": Mean(sums[0], count),  # type: ignore[arg-type]
        "rollout/ep_len_mean": Mean(sums[1], count),  # type: ignore[arg-type]
    }


def _records(ended: list[list[tuple[float, int]]]) -> Metrics:
    """Return the episodes of each iteration as compiled programs do: [iterations, 1, most]."""
    most = max(map(len, ended))
    rows = np.full((2, len(ended), 1, most), np.nan, np.float32)
    for i, episodes in enumerate(ended):
        if episodes:
            rows[:, i, 0, : len(episodes)] = np.array(episodes).T
    return {f"{RECORDS}return": rows[0], f"{RECORDS}length": rows[1]}  # type: ignore[dict-item]


def _rollout_carry(algorithm: Algorithm, number: int) -> PyTree:
    return (algorithm.rollout_carry or algorithm.initial_carry)(number)


def abstract_rollout(program: GymnasiumProgram) -> Rollout:
    """Return the shapes of a rollout."""
    config, env, algorithm = program.config, program.env, program.algorithm
    length, number = config.learning.rollout_length, env.num_envs
    seen = jax.tree.map(lambda s: jax.ShapeDtypeStruct((number, *s.shape), s.dtype), env.spec.obs)
    ended = jax.ShapeDtypeStruct((number,), bool)
    params = algorithm.policy_params(program.abstract_state().learner)
    acted = jax.eval_shape(
        make_act(algorithm.policy(False)),
        params,
        seen,
        _rollout_carry(algorithm, number),
        ended,
        jax.eval_shape(jax.random.key, 0),
        jax.ShapeDtypeStruct((), np.uint32),
    )

    def long(tree: PyTree, steps: int = length) -> PyTree:
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct((steps, *s.shape), s.dtype), tree)

    reward = jax.ShapeDtypeStruct((number,), jnp.float32)
    one = jax.eval_shape(lambda: jnp.zeros((), jnp.float32))
    names = _episode_metrics([], 0)
    return Rollout(
        obs=long(seen),
        action=long(acted.action),
        reward=long(reward),
        terminated=long(ended),
        truncated=long(ended),
        next_obs=long(seen),
        extras=long(acted.extras),
        carry=long(acted.carry_before, length // config.learning.horizon),
        episodes={name: Mean(one, one) for name in names},  # type: ignore[arg-type]
    )
