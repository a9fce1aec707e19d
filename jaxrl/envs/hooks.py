"""Optional methods by which an environment's task reaches training, evaluation and reports.

A Brax environment needs `reset` and `step`. Where its class has some of the methods below, the
loop calls them and does not know which task it trains. All of them run on the CPU with NumPy
arrays, except `trial`, `record`, `demonstrations` and `start_position`, which are compiled.

| protocol | called by |
|---|---|
| `Curriculum` | `jaxrl.training.curriculum`, after every cycle |
| `Trials` | `jaxrl.evaluation`, `jaxrl.evaluate` and `jaxrl.render` |
| `TrialCurriculum` | `jaxrl.training.curriculum`, when its schedule says so |
| `SharedArrays` | `jaxrl.programs.device`, where the curriculum of trials has changed |
| `MemorySizes` | `jaxrl.train --dry-run` |
| `Demonstrations` | `jaxrl.algorithms.ppo`, if AMP is used |
| `StartPositions` | `jaxrl.evaluate` |
| `LearningPhases` | `jaxrl.reports`, from the settings and the log alone |

`VectorEnv.hooks` is the one place where they are looked up: wrappers forward attributes, which
`isinstance` with a protocol does not see.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from jaxrl.config import TrainConfig, env_names

if TYPE_CHECKING:
    from brax.envs.base import State

    from jaxrl.types import Array, Key, PyTree

__all__ = [
    "Curriculum",
    "Demonstrations",
    "LearningPhases",
    "MemorySizes",
    "Phase",
    "PhaseReport",
    "SharedArrays",
    "StartPositions",
    "TrialCondition",
    "TrialCurriculum",
    "TrialEpisodes",
    "TrialReport",
    "TrialSchedule",
    "Trials",
]

Rows = Sequence[Mapping[str, float]]  # of metrics.jsonl
# (curriculum, metrics of a cycle or episodes of all trials) -> (curriculum, values to log)
CurriculumUpdate = Callable[[Any, Any], tuple[Any, dict[str, float]]]


class Curriculum(Protocol):
    """Start states that depend on training progress: `reset(key, curriculum)`."""

    def first_curriculum(self) -> "PyTree":
        """Return the curriculum of a fresh run; () if there is none."""
        ...

    def last_curriculum(self) -> "PyTree":
        """Return the curriculum of evaluations; the first one if the method is missing."""
        ...

    def update_curriculum(
        self, curriculum: "PyTree", metrics: Mapping[str, float]
    ) -> "tuple[PyTree, dict[str, float]]":
        """Return the curriculum after a cycle with these metrics, and values to log."""
        ...


class TrialEpisodes(Protocol):
    """One episode per trial, as evaluations return them."""

    @property
    def returns(self) -> "Array":
        """Sums of rewards, [trials]."""
        ...

    @property
    def lengths(self) -> "Array":
        """Environment steps, [trials]."""
        ...

    @property
    def trace(self) -> "PyTree":
        """What `record` returned after every step, [steps, trials, ...]."""
        ...


class TrialReport(NamedTuple):
    """The results of all trials."""

    metrics: dict[str, float]  # logged with every evaluation, by their full names
    table: list[dict[str, Any]]  # a row per trial, written as .tsv
    details: dict[str, Any]  # added to the JSON file of `jaxrl.evaluate`
    text: str  # printed by `jaxrl.evaluate`
    worst: str  # the name of the trial with the poorest result


class TrialCondition(NamedTuple):
    """Settings under which all trials are played."""

    label: str  # of its metrics and columns, as `pushed`; empty: the trials as the run has them
    title: str  # of its line in a table
    config: TrainConfig


class Trials(Protocol):
    """Fixed start states that an evaluation plays once each, in place of sampled ones."""

    num_trials: int
    trial_names: Sequence[str]
    trial_criteria: Mapping[str, str]
    """Columns of the table, and the metrics that are their means, which are compared between
    conditions, and with a policy whose actions are 0. Optional."""

    def trial_conditions(self, config: TrainConfig) -> list[TrialCondition]:
        """Return the conditions that `jaxrl.evaluate` plays, that of the run first. Optional."""
        ...

    def trial(self, number: "Array") -> "State":
        """Return the start state of a trial."""
        ...

    def record(self, state: "State") -> "PyTree":
        """Return what the results of a trial depend on, after each step."""
        ...

    def trial_report(self, episodes: TrialEpisodes) -> TrialReport:
        """Return the results of all trials."""
        ...

    def trial_success(self, episodes: TrialEpisodes) -> np.ndarray:
        """Return which of some trials succeeded, bool [trials]."""
        ...

    def trial_poses(self, episodes: TrialEpisodes, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the poses of a trial and of its reference, [frames, nq] each, for a video.

        The trace then also has `qpos`.
        """
        ...


class TrialSchedule(NamedTuple):
    """When a curriculum follows the trials, and how they are played."""

    every: int = 1
    """Epochs from one time to the next; 0: never."""
    deterministic: bool = True
    """Take the most likely actions, or sample them."""

    def is_due(self, config: TrainConfig, cycles: int) -> bool:
        """Tell whether an epoch ends here after which trials are played.

        A last epoch that was cut short does not count: a longer run would not end one there.
        """
        every = self.every * config.cycles
        return bool(every) and cycles % every == 0


class TrialCurriculum(Protocol):
    """A curriculum that depends on the results of trials."""

    def trial_schedule(self) -> TrialSchedule:
        """Return when and how; `TrialSchedule()` if the method is missing."""
        ...

    def update_curriculum_from_trials(
        self, curriculum: "PyTree", episodes: TrialEpisodes
    ) -> "tuple[PyTree, dict[str, float]]":
        """Return the curriculum after all trials were played, and values to log."""
        ...


class SharedArrays(Protocol):
    """Arrays that all environments read, too large for the program or the curriculum.

    They are an argument of the compiled programs, and the last one of the environment's `reset`
    (after the curriculum), `step`, `trial` and `record`. When trials have changed the curriculum,
    all episodes start again. Without the argument these functions use any arrays.
    """

    def shared_arrays(self, curriculum: "PyTree") -> "PyTree":
        """Return the arrays of a curriculum, on the CPU and always of the same shapes."""
        ...

    def all_trials(self) -> "Iterable[PyTree]":
        """Return the arrays of all trials in order, `num_trials` at a time.

        There are as many as `trial_names`; trials of the last arrays beyond these are ignored.
        """
        ...

    def with_trials(self, numbers: tuple[int, ...]) -> Any:
        """Return an environment whose trials are some of these, and which needs no argument."""
        ...


class MemorySizes(Protocol):
    """Arrays of an environment that are large enough to be worth a line."""

    def memory_sizes(self) -> dict[str, int]:
        """Return bytes by name."""
        ...


class Demonstrations(Protocol):
    """Motion that AMP rewards the agent for."""

    def demonstrations(self, key: "Key", number: int) -> "Array":
        """Return samples of features, [number, n]."""
        ...


class StartPositions(Protocol):
    """Where episodes begin, for an image of successes by region."""

    def start_position(self, state: "State") -> "Array":
        """Return the position of a start state, [2]."""
        ...


class Phase(NamedTuple):
    """A part of a run, in environment steps."""

    name: str
    start: float
    end: float
    rule: str  # when it ends


class PhaseReport(NamedTuple):
    """The phases that a run went through, and the curves that show them."""

    steps: np.ndarray
    success_rate: np.ndarray
    terms: dict[str, np.ndarray]  # reward terms, each as a fraction of its maximum
    phases: list[Phase]


class LearningPhases(Protocol):
    """A static method, so that a report needs no environment."""

    @staticmethod
    def learning_phases(config: TrainConfig, rows: Rows) -> PhaseReport | None:
        """Return the phases of a run from its log; None if the log has none."""
        ...


# Modules of tasks that have `learning_phases`; importing them imports neither JAX nor physics.
_LEARNING_PHASES = {"pick_place": "jaxrl.envs.tasks.pick_place.phases"}


class Hooks(NamedTuple):
    """The optional methods of an environment; None for those that it lacks.

    An environment without a curriculum or without trials is not asked for methods that belong to
    them: to look them up, it would have to be built.
    """

    env: Any = None
    has_curriculum: bool = False
    has_trials: bool = False

    @property
    def update_curriculum(self) -> CurriculumUpdate | None:
        """See `Curriculum`."""
        return self._find("update_curriculum", self.has_curriculum)

    @property
    def update_curriculum_from_trials(self) -> CurriculumUpdate | None:
        """See `TrialCurriculum`."""
        return self._find("update_curriculum_from_trials", self._follows_trials)

    @property
    def trial_schedule(self) -> TrialSchedule:
        """See `TrialCurriculum`; never, if no curriculum follows the trials."""
        if self.update_curriculum_from_trials is None:
            return TrialSchedule(every=0)
        schedule = self._find("trial_schedule", True)
        return schedule() if schedule else TrialSchedule()

    @property
    def shared_arrays(self) -> "Callable[[PyTree], PyTree] | None":
        """See `SharedArrays`."""
        return self._find("shared_arrays", self._follows_trials)

    @property
    def all_trials(self) -> "Callable[[], Iterable[PyTree]] | None":
        """See `SharedArrays`."""
        return self._find("all_trials", self.has_trials)

    @property
    def with_trials(self) -> Callable[[tuple[int, ...]], Any] | None:
        """See `SharedArrays`."""
        return self._find("with_trials", self.has_trials)

    @property
    def trial_report(self) -> Callable[[TrialEpisodes], TrialReport] | None:
        """See `Trials`."""
        return self._find("trial_report", self.has_trials)

    @property
    def trial_success(self) -> Callable[[TrialEpisodes], np.ndarray] | None:
        """See `Trials`."""
        return self._find("trial_success", self.has_trials)

    @property
    def trial_names(self) -> tuple[str, ...]:
        """See `Trials`; none without trials."""
        return tuple(self._find("trial_names", self.has_trials) or ())

    @property
    def trial_criteria(self) -> dict[str, str]:
        """See `Trials`; none if there is nothing to compare."""
        return dict(self._find("trial_criteria", self.has_trials) or {})

    @property
    def trial_poses(self) -> "Callable[..., tuple[np.ndarray, np.ndarray]] | None":
        """See `Trials`."""
        return self._find("trial_poses", self.has_trials)

    def trial_conditions(self, config: TrainConfig) -> list[TrialCondition]:
        """See `Trials`; that of the run, if the method is missing."""
        hook = self._find("trial_conditions", self.has_trials)
        return hook(config) if hook else [TrialCondition("", "trials", config)]

    @property
    def start_position(self) -> "Callable[[State], Array] | None":
        """See `StartPositions`."""
        return self._find("start_position", not self.has_trials)

    @property
    def demonstrations(self) -> "Callable[[Key, int], Array] | None":
        """See `Demonstrations`."""
        return self._find("demonstrations", True)

    @property
    def memory_sizes(self) -> Callable[[], dict[str, int]] | None:
        """See `MemorySizes`."""
        return self._find("memory_sizes", True)

    @property
    def _follows_trials(self) -> bool:
        return self.has_curriculum and self.has_trials

    def _find(self, name: str, has_it: bool) -> Any:
        return getattr(self.env, name, None) if has_it else None


def learning_phases(config: TrainConfig, rows: Rows) -> PhaseReport | None:
    """Return the phases of a run, if its environment defines some.

    A class of the user's own is asked only if its module is imported already, as at the end of
    training: a report must not run code that a run folder names.
    """
    owner: Any = None
    if config.env in _LEARNING_PHASES:
        owner = importlib.import_module(_LEARNING_PHASES[config.env])
    elif env_names.is_custom(config.env):
        module, _, attribute = config.env.partition(":")
        owner = getattr(sys.modules.get(module), attribute, None)
    hook = getattr(owner, "learning_phases", None)
    return hook(config, rows) if hook else None
