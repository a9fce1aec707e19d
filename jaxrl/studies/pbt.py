"""Population-based training: `jaxrl search STUDY --pbt 16` (Jaderberg et al., 2017).

All members are trained by one program. After every evaluation the worst quarter takes over the
weights and settings of members of the best quarter, and perturbs the settings. Settings are arrays
of the training state, so nothing is compiled again; a checkpoint holds them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.config import TrainConfig, settings
from jaxrl.errors import UserError
from jaxrl.programs import Program
from jaxrl.studies import pbt_report, training
from jaxrl.studies.study import Between, Study
from jaxrl.training.run import Exchange, Row
from jaxrl.types import PyTree, TrainState
from jaxrl.utils import processes, sharding

_QUARTER = 0.25  # of the members, that are replaced and that are copied
_FACTORS = (0.8, 1.2)  # of a perturbed setting
_SAMPLE_AGAIN = 0.25  # probability that a setting is sampled from its whole range instead

Search = Mapping[str, Between | tuple[Any, ...]]
Values = dict[str, np.ndarray]  # of every searched setting, by its path: one for each member


class Plan(NamedTuple):
    """What each member continues with."""

    parents: np.ndarray  # [members] of members: a member's own number where it stays as it is
    values: Values


def execute(name: str, chosen: Study, out: Path, number: int) -> None:
    """Train a population of `number` members, and write its results."""
    members = population(chosen, number)
    started = training.start(members)
    run = training.run_folder(out / "runs", members, repr((chosen.search, chosen.metric)))
    print(f"population-based training: {number} members in {run}", flush=True)
    training.fit(started, run, chosen.check_metric, exchange(chosen, started.program))
    pbt_report.write(name, chosen, pbt_report.histories(chosen, run, members), out)


def population(chosen: Study, number: int) -> list[TrainConfig]:
    """Return members that differ in their seeds; their searched settings are in their states."""
    if number < 2:
        raise UserError(f"--pbt needs at least 2 members, not {number}.")
    base = chosen.config({})
    traced = settings.traced(base)
    if wrong := [name for name in chosen.search if name not in traced]:
        raise UserError(
            f"--pbt: '{wrong[0]}' shapes the program, so it cannot change during training. "
            f"`search` may have {', '.join(traced)}; without --pbt it may have any setting."
        )
    if not base.evaluates:
        raise UserError("--pbt compares evaluations: set eval.num_envs > 0.")
    for name, choices in chosen.search.items():
        bounds = choices[:2] if isinstance(choices, Between) else choices
        if settings.SETTINGS[name].zero_is_static and not all((settings.get(base, name), *bounds)):
            raise UserError(
                f"--pbt: '{name}' leaves a part of the program out where it is 0. Search it above "
                f"0 only, and give the study `settings` with a '{name}' above 0."
            )
    return [replace(base, seed=seed) for seed in range(number)]


def exchange(chosen: Study, program: Program) -> Exchange:
    """Return the function that is called before the first cycle and after evaluations."""
    sign = -1.0 if chosen.lower_is_better else 1.0
    last, seed = program.config.total_cycles, program.config.seed

    def after_evaluation(
        state: TrainState, cycles: int, rows: list[Row]
    ) -> tuple[TrainState, list[Row]]:
        rng = np.random.default_rng((seed, cycles))
        if cycles == 0:
            return apply(state, first_plan(len(program.members), chosen.search, rng)), []
        hparams = processes.fetch(state.learner.hparams)
        values = {path: np.asarray(hparams[_name(path)]) for path in chosen.search}
        scores = np.array([sign * row.get(chosen.metric, np.nan) for row in rows])
        made = plan(scores, values, chosen.search, rng)
        if cycles == last:  # nothing would be trained with it
            made = Plan(np.arange(len(rows)), values)
        else:
            state = apply(state, made)
        logged = [
            {f"pbt/{_name(path)}": float(each[i]) for path, each in values.items()}
            | {"pbt/parent": float(made.parents[i])}
            for i in range(len(rows))
        ]
        return state, logged

    return after_evaluation


def first_plan(number: int, search: Search, rng: np.random.Generator) -> Plan:
    """Sample the settings of every member from their ranges."""
    sampled = {}
    for path, choices in search.items():
        sampled[path] = np.array([sample(choices, rng) for _ in range(number)])
    return Plan(np.arange(number), sampled)


def plan(scores: np.ndarray, values: Values, search: Search, rng: np.random.Generator) -> Plan:
    """Replace the worst quarter by perturbed copies of the best; a score of NaN is the worst."""
    number = len(scores)
    order = np.argsort(np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    few = max(1, int(_QUARTER * number))
    worst, best = order[:few], order[-few:]
    parents = np.arange(number)
    parents[worst] = rng.choice(best, few)
    new = {path: each[parents] for path, each in values.items()}
    for member in worst:
        for path, choices in search.items():
            new[path][member] = perturbed(float(new[path][member]), choices, rng)
    return Plan(parents, new)


def perturbed(value: float, choices: Between | tuple[Any, ...], rng: np.random.Generator) -> float:
    """Return a value near another within its range, or sometimes a sample of the range."""
    if rng.random() < _SAMPLE_AGAIN:
        return sample(choices, rng)
    if not isinstance(choices, Between):
        return value
    return float(np.clip(value * rng.choice(_FACTORS), choices.low, choices.high))


def sample(choices: Between | tuple[Any, ...], rng: np.random.Generator) -> Any:
    """Return a value of a range, uniform on its scale, or one of several choices."""
    if not isinstance(choices, Between):
        return choices[rng.integers(len(choices))]
    if choices.log:
        return float(np.exp(rng.uniform(np.log(choices.low), np.log(choices.high))))
    return float(rng.uniform(choices.low, choices.high))


def apply(state: TrainState, made: Plan) -> TrainState:
    """Return the state after members took over others' learners, with new settings.

    Environments, replay and random keys stay their own: copies go on to see different episodes.
    """
    old = state.learner.hparams
    learner, curriculum = _gather((state.learner, state.curriculum), made.parents)
    new = {_name(path): each.astype(old[_name(path)].dtype) for path, each in made.values.items()}
    if "learning_rate" in new and hasattr(learner, "learning_rate"):
        # PPO's, which a schedule has moved from there.
        factor = new["learning_rate"] / processes.fetch(learner.hparams["learning_rate"])
        learner = learner.replace(learning_rate=learner.learning_rate * factor)
    placed = {name: sharding.put(each, old[name].sharding) for name, each in new.items()}
    counted = {  # what happened to a member stays its own
        name: getattr(state.learner, name)
        for name in ("skipped_updates", "updates")
        if hasattr(state.learner, name)
    }
    learner = learner.replace(hparams=learner.hparams | placed, **counted)
    return state.replace(learner=learner, curriculum=curriculum)


def _gather(tree: PyTree, parents: np.ndarray) -> PyTree:
    """Return the parents' rows of every array, on the same devices as before."""
    places = jax.tree.map(lambda leaf: leaf.sharding, tree)
    take = jax.jit(
        lambda tree: jax.tree.map(lambda leaf: leaf[parents], tree), out_shardings=places
    )
    return take(tree)


def _name(path: str) -> str:
    """Return the name of a setting among the arrays of the state."""
    return path.rpartition(".")[2]
