"""Programs of Gymnasium environments: rollouts are collected on the CPU, learning is compiled.

The environments step in `async_factor` groups. While the devices compute one group's actions,
the others step, in processes of their own.

Rows are split over the devices of all processes: each process steps those of its own devices, of
every group as many. Rows of a group are numbered over all devices, and seeds follow from these
numbers; a rollout has the groups of the first device, then those of the second, and so on.
"""

import json
from collections.abc import Callable, Sequence
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
from jaxrl.utils import processes, sharding, streams
from jaxrl.utils.xla_options import compile_for_devices

Ended = tuple[float, int]  # return and length of an episode


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
        self._rows, everywhere = sharding.rows(program.mesh), sharding.replicated(program.mesh)
        self._places = sharding.local_places(program.mesh)
        number = config.num_envs // self._env.groups
        each = number // program.mesh.size
        own = [range(place * each, (place + 1) * each) for place in self._places]
        self.groups = [
            self._env.workers(own, config.seed, i, cycles) for i in range(self._env.groups)
        ]
        self.carries = [self._first_carry(number) for _ in self.groups]
        self._fresh = True
        self._ended: list[Ended] = []  # of the last rollout
        self.act = jax.jit(make_act(algorithm.policy(False)), out_shardings=self._rows)
        self._act_key = sharding.put(streams.key(config.seed, streams.ACT), everywhere)
        self._act_in_evaluation = jax.jit(make_act(algorithm.policy(config.eval.deterministic)))
        threads = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._learning = threads.submit(self._compile)
        threads.shutdown(wait=False)

    def _compile(self) -> jax.stages.Compiled:
        mesh = self.program.mesh
        places = sharding.shardings(mesh, self._state), sharding.replicated(mesh)
        learn = jax.jit(_learn(self.program.algorithm), donate_argnums=0, out_shardings=places)
        return compile_for_devices(learn.lower(self._state, abstract_rollout(self.program)))

    def init_state(self) -> TrainState:
        """Return the state a new run begins with."""
        mesh = self.program.mesh
        key = streams.key(self.program.config.seed, streams.INIT, 1)
        places = sharding.shardings(mesh, self._state)
        init = jax.jit(self.program.algorithm.init, out_shardings=places)
        return init(sharding.put(key, sharding.replicated(mesh)))

    def _first_carry(self, number: int) -> PyTree:
        carry = _rollout_carry(self.program.algorithm, number)
        return jax.tree.map(lambda leaf: sharding.put(leaf, self._rows), carry)

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
        ended: list[list[Ended]] = []  # episodes of each iteration
        for i in range(self.program.config.iterations):
            iteration = number * self.program.config.iterations + i
            params = self.program.algorithm.policy_params(state.learner)
            experience = self.collect(params, iteration)
            state, metrics = self._learning.result()(state, experience)
            total = jax.tree.map(jnp.add, total, metrics) if total else metrics
            ended.append(self._ended)
        if self.program.config.log.episodes:
            total |= _records(_of_all_processes(ended))
        return state, total

    def restart(self, state: TrainState, number: int) -> TrainState:
        """Gymnasium environments have no trials after which episodes would start again."""
        raise NotImplementedError("Gymnasium environments have no trials")

    def evaluate(self, params: PyTree, number: int, curriculum: PyTree = ()) -> evaluation.Episodes:
        """Play whole episodes with the policy after cycle `number`: process 0 does, on a device."""
        del curriculum
        config, act = self.program.config, self._act_in_evaluation
        carry = self.program.algorithm.initial_carry(config.eval.num_envs)
        key, seed = streams.key(config.seed, streams.PLAY, number), (config.seed, number)
        one = jax.tree.map(lambda leaf: leaf.addressable_data(0), params)

        def played() -> Sequence[np.ndarray]:
            found = play(self._env, act, one, carry, config.eval.num_envs, seed, key)
            return [found.returns, found.lengths, found.truncated, found.nonfinite]  # type: ignore

        returns, lengths, truncated, nonfinite = processes.arrays_of_main(played)
        return evaluation.Episodes(returns, lengths, None, (), truncated, nonfinite)  # type: ignore

    def evaluate_trials(
        self, params: PyTree, number: int, curriculum: PyTree = ()
    ) -> evaluation.Episodes:
        """Gymnasium environments have no trials."""
        raise NotImplementedError("Gymnasium environments have no trials")

    def collect(self, params: PyTree, iteration: int) -> Rollout:
        """Roll out all groups; none waits for another, only for its own last step."""
        length = self.program.config.learning.rollout_length
        rows = _Rows(self._env.groups, len(self._places))
        for t in range(length):
            for g, group in enumerate(self.groups):
                if t == 0:
                    group.wait_ready()
                else:
                    rows.outcomes[g].append(group.receive())
                number = np.uint32(((iteration * length + t) * len(self.groups) + g) % 2**32)
                obs, ended = sharding.put_local((group.obs, group.ended), self._rows)
                acted = self.act(params, obs, self.carries[g], ended, self._act_key, number)
                rows.decisions[g].append((group.obs, *sharding.local_rows(acted[:3])))
                self.carries[g] = acted.carry
                group.send(rows.decisions[g][-1][1])
        for g, group in enumerate(self.groups):
            rows.outcomes[g].append(group.receive())
        own = rows.rollout(self.program.config.learning.horizon)
        rollout = sharding.put_local(own, sharding.columns(self.program.mesh))
        return rollout._replace(episodes=sharding.put_local(self._finished(), self._rows))

    def _finished(self) -> Metrics:
        by_group = [group.take_episodes() for group in self.groups]
        by_device = [_joined(buffers) for buffers in zip(*by_group, strict=True)]
        self._ended = [pair for device in by_device for pair in device.finished]
        return _episode_metrics(by_device, self._places)


class _Rows:
    """What a rollout is put together from, group by group, each on `devices` devices."""

    def __init__(self, groups: int, devices: int):
        self.decisions: list[list[tuple]] = [[] for _ in range(groups)]
        self.outcomes: list[list[GroupStep]] = [[] for _ in range(groups)]
        self._devices = devices

    def rollout(self, horizon: int) -> Rollout:
        """Join time and groups: [T, N, ...], all groups of a device before those of the next.

        Its episodes are counted elsewhere.
        """

        def rows(*leaves: np.ndarray) -> np.ndarray:
            steps, rest = len(leaves[0]), leaves[0].shape[2:]
            by_device = [leaf.reshape(steps, self._devices, -1, *rest) for leaf in leaves]
            return np.concatenate(by_device, axis=2).reshape(steps, -1, *rest)

        def join(groups: list[list[Any]]) -> Any:
            stacked = [jax.tree.map(lambda *leaves: np.stack(leaves), *steps) for steps in groups]
            return jax.tree.map(rows, *stacked)

        obs, action, extras, before = join(self.decisions)
        carry = jax.tree.map(lambda leaf: leaf[::horizon], before)
        return Rollout(
            obs=obs,
            action=action,
            extras=extras,
            carry=carry,
            episodes={},
            **join(self.outcomes)._asdict(),
        )


def _joined(buffers: Sequence[EpisodeBuffer]) -> EpisodeBuffer:
    finished = [pair for buffer in buffers for pair in buffer.finished]
    return EpisodeBuffer(finished, sum(buffer.diverged for buffer in buffers))


def _episode_metrics(by_device: Sequence[EpisodeBuffer], places: Sequence[int]) -> Metrics:
    """Return sums of the episodes of each device, [devices of this process]; `_learn` adds them."""
    ended = [np.array(each.finished, np.float64).reshape(-1, 2) for each in by_device]
    sums = np.array([each.sum(axis=0) for each in ended], np.float32)
    counts = np.array([len(each) for each in ended], np.float32)
    diverged = np.array([each.diverged for each in by_device], np.float32)
    rollouts = np.array([place == 0 for place in places], np.float32)  # all devices make one
    return {
        "rollout/diverged": Mean(diverged, rollouts),  # type: ignore[arg-type]
        "rollout/ep_rew_mean": Mean(sums[:, 0], counts),  # type: ignore[arg-type]
        "rollout/ep_len_mean": Mean(sums[:, 1], counts),  # type: ignore[arg-type]
    }


def _learn(algorithm: Algorithm) -> Callable[[TrainState, Rollout], tuple[TrainState, Metrics]]:
    """Return `learn` for rollouts whose episodes were counted on each device."""

    def learn(state: TrainState, experience: Rollout) -> tuple[TrainState, Metrics]:
        leaves, structure = jax.tree.flatten(experience.episodes)
        sums = jnp.sum(jnp.stack(leaves, axis=1), axis=0)  # devices meet once for all of them
        episodes = jax.tree.unflatten(structure, list(sums))
        return algorithm.learn(state, experience._replace(episodes=episodes))

    return learn


def _of_all_processes(ended: list[list[Ended]]) -> list[list[Ended]]:
    """Return the episodes of each iteration in the environments of all processes."""
    if processes.count() == 1:
        return ended
    every = [json.loads(text) for text in processes.gather(json.dumps(ended))]
    return [[pair for each in every for pair in each[i]] for i in range(len(ended))]


def _records(ended: list[list[Ended]]) -> Metrics:
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
    names = _episode_metrics([EpisodeBuffer([], 0)], [0])
    by_device = sharding.rows(program.mesh)
    sums: Any = jax.ShapeDtypeStruct((program.mesh.size,), np.float32, sharding=by_device)
    rollout = Rollout(
        obs=long(seen),
        action=long(acted.action),
        reward=long(reward),
        terminated=long(ended),
        truncated=long(ended),
        next_obs=long(seen),
        extras=long(acted.extras),
        carry=long(acted.carry_before, length // config.learning.horizon),
        episodes={},
    )
    rollout = sharding.with_sharding(rollout, sharding.columns(program.mesh))
    return rollout._replace(episodes={name: Mean(sums, sums) for name in names})
