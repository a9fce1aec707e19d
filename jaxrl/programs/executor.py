"""What the host loop runs: the same few methods for every kind of program."""

from typing import Protocol

from jaxrl.evaluation.episodes import Episodes
from jaxrl.types import Metrics, PyTree, TrainState


class Executor(Protocol):
    """Runs a program. Methods wait until what they need is compiled."""

    def init_state(self) -> TrainState:
        """Return the state a new run begins with."""
        ...

    def run_cycle(self, state: TrainState, number: int) -> tuple[TrainState, Metrics]:
        """Run cycle `number`; `state` is donated."""
        ...

    def restart(self, state: TrainState, number: int) -> TrainState:
        """Start new episodes in all environments after cycle `number`; `state` is donated."""
        ...

    def evaluate(self, params: PyTree, number: int, curriculum: PyTree = ()) -> Episodes:
        """Play whole episodes with the policy after cycle `number`."""
        ...

    def evaluate_trials(self, params: PyTree, number: int, curriculum: PyTree = ()) -> Episodes:
        """Play every trial of the environment once, with the policy after cycle `number`."""
        ...

    def wait(self) -> None:
        """Return when training can begin."""
        ...

    def close(self) -> None:
        """Release processes and threads."""
        ...
