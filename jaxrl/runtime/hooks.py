"""What callbacks are told, what they may ask for, and how the loop is kept safe from them.

A callback runs on the host, between compiled calls, and sees copies of plain numbers. So it can
neither change what is trained nor make anything compile; what it wants done, it asks for.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError, nearest

# In the order in which they happen; from "cycle" to "log" in every cycle that has them.
EVENTS = ("training_start", "cycle", "evaluation", "new_best", "epoch", "log", "training_end")


@dataclass(frozen=True)
class Moment:
    """What a callback is shown; nothing of it can be changed."""

    event: str
    """What has just happened: one of EVENTS."""
    step: int
    """Environment steps done."""
    cycle: int
    """Cycles done."""
    epoch: int
    """The epoch this belongs to, counted from 1."""
    elapsed: float
    """Seconds of the whole run, before a resume included."""
    metrics: Mapping[str, float]
    """What is known of this cycle, by the names of the log; so far, or all of it at "log"."""
    evaluation: Mapping[str, float]
    """The last evaluation, of this cycle or an earlier one; empty before the first."""
    best: float | None
    """Best mean reward of all evaluations."""
    folder: Path
    """The run folder."""
    config: TrainConfig
    """The settings of the run."""


class Ask(NamedTuple):
    """What a callback may return to have something done; it needs no other way to the run."""

    stop: str = ""
    """Why to stop after this cycle; the state is saved, and the run can be resumed."""
    save: bool = False
    """Write a checkpoint after this cycle."""
    evaluate: bool = False
    """Evaluate now (from "cycle" only), unless that is done anyway."""
    log: Mapping[str, float] = MappingProxyType({})
    """More numbers for this cycle's row; names without a slash become custom/<name>."""


# None or True: go on. False: stop. A dict: numbers for the log.
Answer = Ask | bool | Mapping[str, float] | None
# A function of a Moment is called once per cycle, at "log"; an object has on_<event> methods.
Callback = Any


class CallbackError(UserError):
    """A callback failed; the run was ended as if it had asked to stop."""


class Hooks:
    """The callbacks of one run, and what they have asked for in this cycle."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = [(name_of(callback), methods(callback)) for callback in callbacks]
        self.stopped = ""  # why
        self.failure: CallbackError | None = None
        self.save = self.evaluate = False
        self.log: dict[str, float] = {}

    def new_cycle(self) -> None:
        """Forget what was asked for in the cycle before."""
        self.save = self.evaluate = False
        self.log = {}

    def tell(self, moment: Moment) -> None:
        """Call whoever wants to know; after a failure nobody is called any more."""
        for name, functions in self._callbacks:
            if self.failure is None and moment.event in functions:
                try:
                    self._take(name, moment, functions[moment.event](moment))
                except (Exception, SystemExit) as error:  # it must not leave past the saving
                    text = f"callback {name} failed at '{moment.event}', step {moment.step:,}: "
                    self.failure = CallbackError(f"{text}{type(error).__name__}: {error}")
                    self.failure.__cause__ = error

    def _take(self, name: str, moment: Moment, answer: Any) -> None:
        ask = _as_ask(name, answer)
        self.stopped = self.stopped or (ask.stop and f"{name}: {ask.stop}")
        self.save |= ask.save
        if ask.evaluate and not moment.config.eval.num_envs:
            raise UserError("it asks for an evaluation, but --eval.num-envs is 0.")
        if ask.evaluate and moment.event != "cycle":
            raise UserError("an evaluation can be asked for at 'cycle' only.")
        self.evaluate |= ask.evaluate
        for key, value in _numbers(ask.log).items():
            if key in moment.metrics or key in self.log:
                raise UserError(f"it logs '{key}', which is logged already: use another name.")
            self.log[key] = value


def _as_ask(name: str, answer: Any) -> Ask:
    if isinstance(answer, Ask):
        return answer
    if answer is None or answer is True:
        return Ask()
    if answer is False:
        return Ask(stop="asked to stop")
    if isinstance(answer, Mapping):
        return Ask(log=answer)
    raise UserError(f"{name} returned {answer!r}: return None, False, a dict of numbers or an Ask.")


def _numbers(log: Mapping[str, float]) -> dict[str, float]:
    """Return what is to be logged as floats of the host; refuse everything else."""
    numbers = {}
    for key, value in log.items():
        if not isinstance(key, str):
            raise UserError(f"it logs under {key!r}: names must be strings.")
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"it logs '{key}' as {value!r}, which is no number.") from error
        numbers[key if "/" in key else f"custom/{key}"] = number
    return numbers


def name_of(callback: Callback) -> str:
    """Return what a callback is called in messages."""
    named = getattr(callback, "__name__", None)
    return named if isinstance(named, str) else type(callback).__name__


def methods(callback: Callback) -> dict[str, Callable[[Moment], Answer]]:
    """Return the functions of a callback by event; refuse what would never be called."""
    name = name_of(callback)
    if inspect.isclass(callback):
        raise UserError(f"callbacks: {name} is a class: give an object of it, {name}(...).")
    found = {n.removeprefix("on_"): getattr(callback, n) for n in dir(callback) if n[:3] == "on_"}
    for event in found.keys() - set(EVENTS):
        known = [f"on_{e}" for e in EVENTS]
        hint = nearest(f"on_{event}", known)
        raise UserError(f"callbacks: {name} has on_{event}; known are {', '.join(known)}.{hint}")
    if not found and not callable(callback):
        raise UserError(f"callbacks: {name} is neither a function nor has on_<event> methods.")
    alone: dict[str, Any] = {"log": callback}
    return found or alone


def best_or_none(best: float) -> float | None:
    """Return the best mean reward; None before there is one."""
    return best if math.isfinite(best) else None
