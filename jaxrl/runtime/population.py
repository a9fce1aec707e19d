"""Several runs as one program: seeds, and settings that are arrays of the training state.

Members may differ in their seed and in traced settings. What shapes the program must be the same;
`groups` sorts members that can be trained together.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import config_json
from jaxrl.algorithms import off_policy, ppo
from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.runtime import program as programs
from jaxrl.runtime.compiled import Programs, compile_programs
from jaxrl.types import TrainState


class Point(NamedTuple):
    """One evaluation of all members."""

    step: int
    returns: np.ndarray  # [members], each the mean over its episodes


def traced_names(config: TrainConfig) -> tuple[str, ...]:
    """Return the settings that may differ between members, by their dotted names."""
    section, names = (
        ("ppo", ppo.TRACED) if config.algo == "ppo" else ("offpolicy", off_policy.TRACED)
    )
    return tuple(f"{section}.{name}" for name in names)


def _shape(config: TrainConfig) -> tuple:
    """Return what members of one program must have in common.

    Some settings switch a part of the program off when they are 0: whether they are counts too.
    """
    free = traced_names(config)
    flat = config_json.flatten(asdict(config))
    return tuple(
        (name, value == 0 if name in free else value)
        for name, value in sorted(flat.items())
        if name not in ("seed", "run_dir", "preset")
    )


def groups(configs: Sequence[TrainConfig]) -> list[list[int]]:
    """Sort configurations, by their places, into those that can be one program."""
    found: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        found.setdefault(repr(_shape(config)), []).append(place)
    return list(found.values())


class Population(NamedTuple):
    """Compiled programs of several members."""

    programs: Programs
    members: tuple[TrainConfig, ...]

    def first_state(self) -> TrainState:
        """Return the state all members begin with, each with its own settings."""
        state = self.programs.first_state()
        section = "ppo" if self.members[0].algo == "ppo" else "offpolicy"
        hyper = {
            name: jnp.asarray([getattr(getattr(m, section), name) for m in self.members], old.dtype)
            for name, old in state.learner.hyper.items()
        }
        hyper = {k: jax.device_put(v, state.learner.hyper[k].sharding) for k, v in hyper.items()}
        learner = state.learner.replace(hyper=hyper)
        if hasattr(learner, "learning_rate"):  # PPO's, which moves from there by its schedule
            learner = learner.replace(learning_rate=hyper["learning_rate"] + 0.0)
        return state.replace(learner=learner)

    def evaluate(self, state: TrainState, cycles: int) -> np.ndarray:
        """Return the mean return of every member."""
        params = self.programs.program.algorithm.policy_params(state.learner)
        played = self.programs.evaluate(params, cycles)
        return np.mean(np.asarray(played.returns, np.float64), axis=1)


def build(members: Sequence[TrainConfig]) -> Population:
    """Compile one program for members that have everything in common but traced settings."""
    if len(groups(members)) != 1:
        raise UserError("Members of a population may differ in seeds and traced settings only.")
    # One device: rows of environments and members would both want to be split.
    program = programs.build(replace(members[0], devices=1))
    seeds = [member.seed for member in members]
    return Population(compile_programs(program, seeds), tuple(members))


def train(
    members: Sequence[TrainConfig], report: Callable[[Point], Any] = lambda point: None
) -> list[Point]:
    """Train all members to their end; `report` is told of every evaluation."""
    population = build(members)
    config, points = members[0], []
    state = population.first_state()
    per_cycle = config.iterations * config.steps_per_iteration
    for cycles in range(1, config.total_cycles + 1):
        state, _ = population.programs.train(state, cycles - 1)
        if cycles % config.cycles and cycles < config.total_cycles:
            continue
        points.append(Point(cycles * per_cycle, population.evaluate(state, cycles)))
        report(points[-1])
    return points
