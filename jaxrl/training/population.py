"""Several runs as one program: seeds, and settings that are arrays of the training state.

Members may differ in their seed and in traced settings. What shapes the program must be the same;
`groups` sorts members that can be trained together.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.algorithms.off_policy import algorithm as off_policy
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import TrainConfig, env_names, serialization, validate, variants
from jaxrl.errors import UserError
from jaxrl.evaluation import episodes
from jaxrl.evaluation.episodes import Episodes
from jaxrl.programs import program as programs
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.programs.program import Program, follows_training
from jaxrl.training import curriculum
from jaxrl.types import Metrics, TrainState, finished
from jaxrl.utils import sharding


class Point(NamedTuple):
    """One evaluation of all members."""

    step: int
    figures: tuple[dict[str, float], ...]  # of every member: what `evaluation.summarize` names

    @property
    def returns(self) -> np.ndarray:
        """[members], each the mean over its episodes."""
        return np.array([figures["eval/mean_reward"] for figures in self.figures])


class Progress(NamedTuple):
    """How far a population has come."""

    state: TrainState
    cycles: int
    points: list[Point]


def traced_names(config: TrainConfig) -> tuple[str, ...]:
    """Return the settings that may differ between members, by their dotted names."""
    section, traced = (
        ("ppo", ppo.TRACED) if config.algo == "ppo" else ("offpolicy", off_policy.TRACED)
    )
    return tuple(f"{section}.{name}" for name in traced)


def _shape(config: TrainConfig) -> tuple:
    """Return what members of one program must have in common.

    Some settings switch a part of the program off when they are 0: whether they are counts too.
    """
    free, switches = traced_names(config), {f"ppo.{name}" for name in ppo.SWITCHES}
    flat = serialization.flatten(asdict(config))
    return tuple(
        (name, value == 0 if name in switches else value)
        for name, value in sorted(flat.items())
        if name not in {"seed", "run_dir", "preset", *free} - switches
    )


def groups(configs: Sequence[TrainConfig]) -> list[list[int]]:
    """Sort configurations, by their places, into those that can be one program."""
    found: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        found.setdefault(repr(_shape(config)), []).append(place)
    return list(found.values())


class Population(NamedTuple):
    """Compiled programs of several members."""

    programs: DeviceExecutor
    members: tuple[TrainConfig, ...]

    def first_state(self) -> TrainState:
        """Return the state all members begin with, each with its own settings."""
        return self.programs.first_state()

    def evaluate(self, state: TrainState, cycles: int) -> Episodes:
        """Play every member's episodes, [members, episodes]."""
        params = self.programs.program.algorithm.policy_params(state.learner)
        return jax.device_get(self.programs.evaluate(params, cycles))


def program_of(members: Sequence[TrainConfig]) -> Program:
    """Build what members are trained by who have everything in common but traced settings."""
    if len(groups(members)) != 1:
        raise UserError(_differing(members))
    if env_names.is_hosted(members[0].env) or members[0].offline:
        raise UserError(
            f"--num-seeds: '{members[0].env}' does not run on the device, so its seeds cannot "
            "share a program: run one after the other."
        )
    # Each member is built for one device: rows of environments are not split, members are.
    program = programs.build(replace(members[0], devices=1))
    mesh = sharding.make_mesh(devices_for(members))
    return program._replace(config=members[0], members=tuple(members), mesh=mesh, shelf=None)


def _differing(members: Sequence[TrainConfig]) -> str:
    """Say which settings keep members from being one program."""
    if not members:
        return "A population needs members: give the settings of one or more."
    shapes = [dict(_shape(member)) for member in members]
    # Other algorithms have other traced settings, which these shapes then lack.
    wrong = [name for name in shapes[0] if len({repr(s.get(name)) for s in shapes}) > 1]
    free = traced_names(members[0])
    zero = " (0 for some, which leaves a part of the program out)" if wrong[0] in free else ""
    return (
        f"Members of a population may differ in seeds and traced settings only, not in "
        f"{validate.flag(wrong[0])}{zero}: train them one after the other. Traced are "
        f"{', '.join(map(validate.flag, free))}."
    )


def devices_for(members: Sequence[TrainConfig]) -> int:
    """Return how many devices members can be dealt to evenly."""
    present, asked, number = len(jax.local_devices()), members[0].devices, len(members)
    if asked is None:
        return max(d for d in range(1, present + 1) if number % d == 0)
    if asked > present:
        raise UserError(f"--devices {asked}: this machine has {present}.")
    if number % asked:
        raise UserError(
            f"--devices {asked}: {number} members cannot be dealt to them evenly: use "
            f"{-(-number // asked) * asked} members, or another number of devices."
        )
    return asked


def build(members: Sequence[TrainConfig]) -> Population:
    """Compile one program for members that have everything in common but traced settings."""
    return Population(compile_programs(program_of(members)), tuple(members))


def train(
    members: Sequence[TrainConfig],
    report: Callable[[Point], Any] = lambda point: None,
    built: Population | None = None,
    begun: Progress | None = None,
    keep: Callable[[Progress], Any] = lambda progress: None,
) -> list[Point]:
    """Train all members to their end; `report` is told of every evaluation.

    A population that was built before has had time to be compiled. One that was `begun` goes on
    from there; `keep` is given, after every cycle, what it takes to do so.
    """
    population = built or build(members)
    program, config = population.programs.program, members[0]
    state, before, points = begun or Progress(population.first_state(), 0, [])
    for point in points:
        report(point)
    for cycles in range(before + 1, config.total_cycles + 1):
        state, metrics = population.programs.train(state, cycles - 1)
        state = _next_start_states(program, state, metrics)
        if cycles % config.cycles == 0 or cycles == config.total_cycles:
            _warn_of_divergence(population, state, metrics)
            state, point = _evaluated(population, state, cycles)
            points.append(point)
            report(point)
        keep(Progress(state, cycles, points))
    return points


def _warn_of_divergence(population: Population, state: TrainState, metrics: Metrics) -> None:
    """Say which members have diverged, at every evaluation: others go on, and so does a study."""
    program, members = population.programs.program, population.members
    streaks = np.ravel(jax.device_get(state.learner.nonfinite_streak))
    none = np.zeros(len(members), np.float32)
    counted = metrics["rollout/diverged"].total if "rollout/diverged" in metrics else none
    broken = np.ravel(jax.device_get(counted))
    flags = variants.labels(members)
    labels = [f"{f},seed-{m.seed}".lstrip(",") for f, m in zip(flags, members, strict=True)]
    for name, streak, number in zip(labels, streaks, broken, strict=True):
        if streak >= program.config.learning.max_bad_updates:
            print(f"warning: {name} diverged: {streak} consecutive non-finite updates", flush=True)
        if number:
            print(
                f"warning: {name}: environments produced non-finite values in {int(number):,} "
                "steps of the last cycle, and were reset",
                flush=True,
            )


def _evaluated(population: Population, state: TrainState, cycles: int) -> tuple[TrainState, Point]:
    """Return what an evaluation showed, and the state with what follows from it."""
    program, config = population.programs.program, population.members[0]
    each = program.each(population.evaluate(state, cycles))
    state, _ = curriculum.resampled(program, population.programs, state, cycles, each)
    step = cycles * config.iterations * config.steps_per_iteration
    return state, Point(step, tuple(episodes.summarize(one, program.env) for one in each))


def _next_start_states(program: Program, state: TrainState, metrics: Metrics) -> TrainState:
    """Return the state with what the start states of the next cycle are drawn by."""
    if not follows_training(program):
        return state  # no need to wait for the metrics
    rows = [finished(part) for part in program.each(jax.device_get(metrics))]
    return curriculum.after_cycle(program, state, rows)[0]
