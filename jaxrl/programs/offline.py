"""Learning from recorded episodes: a program without environments, but for evaluation.

Data that does not fit goes through the device chunk by chunk, another one in every cycle; while
one is learnt from, the next is read.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from rich import progress

from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.off_policy.offline import OfflineAlgorithm
from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.config import TrainConfig, env_names
from jaxrl.data import dataset
from jaxrl.data.dataset import Dataset
from jaxrl.data.hdf5 import EpisodeRef
from jaxrl.envs import factory as environments
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation import gymnasium
from jaxrl.evaluation.episodes import Episodes
from jaxrl.learning.replay_buffer import Transition
from jaxrl.loggers import run_dir
from jaxrl.policies import reward_files
from jaxrl.programs.compiler import peak_bytes
from jaxrl.programs.program import Program, run_iterations, with_settings
from jaxrl.types import Array, EnvSpec, Learner, Metrics, PyTree, RewardFn, TrainState
from jaxrl.utils import sharding, streams
from jaxrl.utils.formatting import plural
from jaxrl.utils.xla_options import compile_for_devices

_HELD_OUT_BYTES = 2**25  # of held-out observations, on the device during the whole run
_BLOCK = 256  # held-out steps at once


def _bar(places: list[EpisodeRef]) -> Iterable[EpisodeRef]:
    return progress.track(places, "reading episodes", transient=True)


@dataclass(frozen=True, kw_only=True)
class OfflineProgram(Program):
    """A policy, a reward or both are learnt from recorded episodes."""

    data: Dataset
    algorithm: OfflineAlgorithm
    env: VectorEnv | GymnasiumEnv | None  # to evaluate in
    reward_fn: RewardFn | None = None  # replaces recorded rewards

    @property
    def spec(self) -> EnvSpec:
        """What networks must know of observations and actions."""
        return self.data.spec

    @property
    def alone(self) -> Self:
        """The program of a single member."""
        return replace(self, members=()) if self.members else self

    @property
    def step_metric(self) -> str:
        """Steps are gradient steps: no environment is stepped."""
        return "time/gradient_steps"

    @property
    def records_episodes(self) -> bool:
        """The episodes are recorded already."""
        return False

    @property
    def supports_processes(self) -> bool:
        """Processes cannot share recorded data."""
        return False

    @property
    def loss_window(self) -> int:
        """Return an epoch, in whole passes over the data, if only a reward is learnt.

        By an epoch alone the best reward would be the one that saw the easiest chunk.
        """
        if self.algorithm.policy_params:
            return 0
        return _whole_rounds(self.config.cycles, len(self.data.chunks))

    def abstract_state(self) -> TrainState:
        """Return shapes, types and shardings of the training state."""
        if self.members:
            alone = self.alone.abstract_state()
            return sharding.with_member_axis(alone, len(self.members), self.mesh)
        state = jax.eval_shape(self.algorithm.init, jax.eval_shape(jax.random.key, 0))
        return sharding.abstract(self.mesh, state)

    @property
    def info(self) -> dict[str, Any]:
        """The keys of the data's observations: networks that read one key see a plain array."""
        return {"obs_keys": list(self.data.keys)}

    @property
    def data_counts(self) -> dict[str, float]:
        """Episodes and steps that are learnt from."""
        return {"data/episodes": len(self.data.training), "data/steps": self.data.steps}

    def start(self, cycles: int = 0) -> "OfflineExecutor":
        """Begin to read the data."""
        del cycles
        return OfflineExecutor(self)

    def write_report(self, folder: Path) -> Sequence[str]:
        """Compare the learnt reward with the recorded one, on episodes that were held out."""
        if not self.data.held_out or not self.algorithm.reward_params:
            return ()
        folders = run_dir.of_members(folder, self.members) or [folder]
        found = [reward_files.report(each, self.data)["pearson"] for each in folders]
        each = ", ".join(f"{value:.3f}" for value in found)
        return (f"held-out episodes: correlation of rewards {each}",)


def build(config: TrainConfig) -> OfflineProgram:
    """Look through the data, and compose what learns from it."""
    if config.data.path is None:
        raise UserError("--data.path: which file or folder of recorded episodes?")
    data = dataset.scan(
        config.data.path,
        keys=config.data.obs_keys,
        part=config.data.part,
        holdout=config.data.holdout,
        chunk_size=config.offpolicy.buffer_size,
        # RRD and IRCR read returns; steps keep their rewards, for comparison.
        summed=config.task.episodic_reward and config.offpolicy.reward == "env",
        progress=_bar,
    )
    print("\n".join([*_described(config, data), *_unread(config, data)]), flush=True)
    return OfflineProgram(
        config,
        sharding.make_mesh(1),
        data=data,
        algorithm=algorithms.make_offline(
            config, data.spec, data.obs_stats, data.longest, _reward_factor(config, data)
        ),
        env=_evaluation_env(config, data) if config.evaluates else None,
        reward_fn=config.reward_from and reward_files.reward_fn(config.reward_from, data.spec),
    )


def _reward_factor(config: TrainConfig, data: Dataset) -> float:
    """Return what makes the returns of the data span 1,000; IRCR's rewards have their own scale."""
    if not config.data.normalize_returns or config.offpolicy.reward == "ircr":
        return 1.0
    return 1000.0 / data.return_span if data.returns_vary() else 1.0


def _evaluation_env(config: TrainConfig, data: Dataset) -> VectorEnv | GymnasiumEnv:
    """Build the environment that evaluates policies; the data must be of its kind."""
    env = environments.build(replace(config, num_envs=config.eval.num_envs))
    shapes = [jax.tree.map(lambda s: s.shape, spec.obs) for spec in (env.spec, data.spec)]
    if shapes[0] != shapes[1] or env.spec.action != data.spec.action:
        raise UserError(
            f"--env {config.env} has observations {shapes[0]} and {_actions(env.spec)}, the data "
            f"has {shapes[1]} and {_actions(data.spec)}: choose observations by --data.obs-keys, "
            f"or use --env {env_names.OFFLINE}."
        )
    return env


def _actions(spec: EnvSpec) -> str:
    kind = "discrete actions" if spec.action.discrete else "continuous actions"
    return f"{spec.action.size} {kind}"


def _described(config: TrainConfig, data: Dataset) -> list[str]:
    values = [data.returns[place] for place in data.training]
    lines = [
        f"{plural(len(data.training), 'episode')}, {plural(data.steps, 'step')}, in "
        f"{plural(len(data.chunks), 'chunk')}; "
        f"{len(data.held_out):,} held out; returns {min(values):.4g} to {max(values):.4g}"
    ]
    if data.max_action > 1 + 1e-3 and not data.spec.action.discrete:
        lines.append(
            f"warning: recorded actions reach ±{data.max_action:.4g}, but policies act within "
            "[-1, 1]: rescale the data."
        )
    if _may_overestimate(config):
        lines.append(
            f"warning: {config.algo} may overestimate actions that are not in the data: bc, iql, "
            "td3 with --offpolicy.bc-alpha, and sac and dqn with --offpolicy.cql-alpha are made "
            "for recorded episodes."
        )
    if config.offpolicy.keeps_episodes and not data.returns_vary():
        lines.append(
            "warning: every episode has the same return: any reward that adds up to it fits, and "
            "nothing can be learnt about single steps. Add episodes that went worse or better."
        )
    return lines


def _may_overestimate(config: TrainConfig) -> bool:
    """Tell whether nothing keeps the policy near recorded actions."""
    c = config.offpolicy
    keeps_near = {"sac": c.cql_alpha, "dqn": c.cql_alpha, "td3": c.bc_alpha}
    return not keeps_near.get(config.algo, True) and not config.rrd.reward_only


def _unread(config: TrainConfig, data: Dataset) -> list[str]:
    """Warn where some chunks are never read, or not as often as others in an epoch."""
    chunks, cycles, total = len(data.chunks), config.cycles, config.total_cycles
    start = f"warning: the data is read in {chunks} chunks, one per cycle"
    if total < chunks:
        steps = chunks * config.iterations * config.steps_per_iteration
        more = f"--total-steps {steps}" if config.total_steps else f"--cycles {chunks}"
        return [
            f"{start}, but the run has {plural(total, 'cycle')}: the other chunks are never read. "
            f"Use {more} or more, or a larger --offpolicy.buffer-size."
        ]
    if cycles % chunks:
        return [
            f"{start}: epochs of {plural(cycles, 'cycle')} read some more often than others, and "
            f"their losses differ by that. Use --cycles {_whole_rounds(cycles, chunks)}."
        ]
    return []


def _whole_rounds(cycles: int, chunks: int) -> int:
    return -(-cycles // chunks) * chunks


class OfflineExecutor:
    """Learns from one chunk of the data in each cycle, and reads the next one meanwhile."""

    def __init__(self, program: OfflineProgram):
        self.program, self._data = program, program.data
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._next = self._threads.submit(self._chunk, 0)
        self._loaded: tuple[int, ReplayState] | None = None
        self._compiled = self._held_out = None
        held_out = self._data.held_out_steps(_HELD_OUT_BYTES)
        self._other_steps = held_out and self._relabel(jax.device_put(held_out))

    def _chunk(self, number: int) -> tuple[int, ReplayState]:
        return number, ReplayState(*self._data.chunk(number))

    def _stored(self, number: int) -> ReplayState:
        """Return chunk `number` on the device, and begin to read the one after it."""
        if self._loaded is None or self._loaded[0] != number:
            read = self._next.result()
            if read[0] != number:
                read = self._chunk(number)
            self._loaded = None  # there may not be room for two
            replay = jax.device_put(read[1])
            steps = self._relabel(replay.ring.steps)
            self._loaded = number, replay.replace(ring=replay.ring.replace(steps=steps))
            if (count := len(self._data.chunks)) > 1:
                self._next = self._threads.submit(self._chunk, (number + 1) % count)
        return self._loaded[1]

    def _relabel(self, steps: Transition) -> Transition:
        """Replace recorded rewards by those of another run, if one is named."""
        if self.program.reward_fn is None:
            return steps
        return steps._replace(reward=self._rewards(steps))

    @functools.cached_property
    def _rewards(self) -> Callable[[Transition], Array]:
        """Rewards of another run, a block of steps at a time: images would not fit at once."""
        reward_fn = self.program.reward_fn
        assert reward_fn is not None

        def of_step(step: Transition) -> Array:
            return reward_fn(step.obs, step.action, step.next_obs)

        def of_steps(steps: Transition) -> Array:
            axes = steps.reward.shape
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(axes) :]), steps)
            return jax.lax.map(of_step, flat, batch_size=_BLOCK).reshape(axes)

        return jax.jit(of_steps)

    def _per_member(self, function: Callable, *axes: int | None) -> Callable:
        """Return a function for all members at once; without members it stays as it is."""
        return jax.vmap(function, axes) if self.program.members else function

    @property
    def _seeds(self) -> Array:
        program = self.program
        seeds = [member.seed for member in program.members] or program.config.seed
        return jnp.asarray(seeds, jnp.uint32)

    def init_state(self) -> TrainState:
        """Return the state a new run begins with."""

        def init(seed: Array) -> TrainState:
            return self.program.algorithm.init(streams.key(seed, streams.INIT, 1))

        state = jax.jit(self._per_member(init, 0))(self._seeds)
        members = self.program.members
        return state.replace(learner=with_settings(state.learner, members)) if members else state

    def wait(self) -> None:
        """Return when training can begin."""
        step, iterations = self.program.algorithm.train_step, self.program.config.iterations

        def cycle(state: TrainState, data: ReplayState, count: Array):
            return run_iterations(step, iterations, count, state, data)

        run = jax.jit(self._per_member(cycle, 0, None, None), donate_argnums=0)
        shapes = jax.eval_shape(lambda d: d, self._stored(0))
        state = self.program.abstract_state()
        self._compiled = compile_for_devices(run.lower(state, shapes, np.uint32(iterations)))
        self._held_out = jax.jit(self._per_member(self._errors, 0, None, None))

    def cycle_bytes(self) -> int:
        """Return the memory that a cycle needs on the device at its peak."""
        assert self._compiled is not None, "wait() comes first"
        return peak_bytes(self._compiled)

    def _errors(self, learner: Learner, steps: Transition, number: Array) -> Metrics:
        """Return the means of held-out errors over steps, a block at a time."""
        size = min(_BLOCK, len(steps.reward))
        count = len(steps.reward) // size
        blocks = jax.tree.map(
            lambda leaf: leaf[: count * size].reshape(count, size, *leaf.shape[1:]), steps
        )
        key = streams.key(0, streams.EVALUATE, number)  # the same for all members

        def block(pair: tuple[Transition, Array]) -> Metrics:
            return self.program.algorithm.held_out(learner, *pair)

        each = jax.lax.map(block, (blocks, jax.random.split(key, count)))
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), each)

    def run_cycle(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is donated. An epoch ends with errors on held-out steps."""
        config = self.program.config
        stored = self._stored(number % len(self._data.chunks))
        assert self._compiled is not None and self._held_out is not None, "wait() comes first"
        state, metrics = self._compiled(state, stored, np.uint32(config.iterations))
        if self._other_steps is not None and config.is_epoch_end(number + 1):
            metrics |= self._held_out(state.learner, self._other_steps, np.uint32(number))
        return state, metrics

    @functools.cached_property
    def _play(self) -> Callable[..., Episodes]:
        """Play whole episodes: (params, seeds, number) -> Episodes."""
        program, settings = self.program, self.program.config.eval
        policy, env = program.algorithm.policy(settings.deterministic), program.env
        if isinstance(env, GymnasiumEnv):
            act = jax.jit(gymnasium.make_act(policy))
            seed, carry = program.config.seed, program.algorithm.initial_carry(settings.num_envs)

            def play_on_cpu(params: PyTree, seeds: Array, number: int) -> Episodes:
                del seeds
                key, count = streams.key(seed, streams.PLAY, int(number)), settings.num_envs
                return gymnasium.play(env, act, params, carry, count, (seed, int(number)), key)

            return play_on_cpu
        if env is None:
            raise NotImplementedError("there is no environment to evaluate in")
        copies = environments.for_evaluation(env, settings.num_envs, randomize=settings.randomize)
        episodes = evaluation.episodes(copies, policy, program.algorithm.initial_carry(copies.rows))

        def play(params: PyTree, seed: Array, number: Array) -> Episodes:
            return episodes(params, streams.key(seed, streams.PLAY, number))

        run = jax.jit(self._per_member(play, 0, 0, None))
        shapes = program.policy_params(program.abstract_state().learner)
        lowered = run.lower(shapes, jax.eval_shape(lambda: self._seeds), np.uint32(0))
        return compile_for_devices(lowered)

    def restart(self, state: TrainState, number: int) -> TrainState:
        """No episodes are in progress here."""
        raise NotImplementedError("recorded episodes are not restarted")

    def evaluate(self, params: PyTree, number: int, curriculum: PyTree = ()) -> Episodes:
        """Play whole episodes with the policy after cycle `number`."""
        del curriculum
        return self._play(params, self._seeds, np.uint32(number))

    def evaluate_trials(self, params: PyTree, number: int, curriculum: PyTree = ()) -> Episodes:
        """No curriculum follows trials here."""
        raise NotImplementedError("recorded episodes have no curriculum")

    def close(self) -> None:
        """Stop reading ahead."""
        self._threads.shutdown(cancel_futures=True)
