"""Runs callbacks between cycles, collects what they ask for, and keeps the loop safe from them."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxrl.callbacks import EVENTS, Callback, CallbackAction, CallbackContext, CallbackResult
from jaxrl.errors import UserError, nearest


class CallbackError(UserError):
    """A callback failed; the run was ended as if it had asked to stop."""


class CallbackRunner:
    """The callbacks of one run, and what they have asked for in this cycle."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        if not isinstance(callbacks, Sequence):
            raise UserError(f"callbacks: give a list, as callbacks=[{name_of(callbacks)}].")
        self._callbacks = [(name_of(callback), methods(callback)) for callback in callbacks]
        self.stopped = ""  # why
        self.failure: CallbackError | None = None
        self.save = self.evaluate = False
        self.log: dict[str, float] = {}

    def add(self, callback: Callback) -> None:
        """Add a callback after the others."""
        self._callbacks.append((name_of(callback), methods(callback)))

    def new_cycle(self) -> None:
        """Forget what was asked for in the cycle before."""
        self.save = self.evaluate = False
        self.log = {}

    def emit(self, context: CallbackContext) -> None:
        """Call the callbacks of an event; one that has failed is not called again."""
        for callback in list(self._callbacks):
            name, functions = callback
            if context.event not in functions:
                continue
            try:
                self._apply(name, context, functions[context.event](context))
            except (Exception, SystemExit) as error:  # it must not leave past the saving
                self._callbacks.remove(callback)
                if self.failure is None:
                    text = f"callback {name} failed at '{context.event}', step {context.step:,}: "
                    self.failure = CallbackError(f"{text}{type(error).__name__}: {error}")
                    self.failure.__cause__ = error

    def _apply(self, name: str, context: CallbackContext, answer: CallbackResult) -> None:
        action = _as_action(name, answer)
        self.stopped = self.stopped or (action.stop and f"{name}: {action.stop}")
        self.save |= action.save
        if action.evaluate and not context.config.evaluates:
            raise UserError("this callback needs evaluations; set --eval.num-envs > 0.")
        if action.evaluate and context.event != "cycle":
            raise UserError("an evaluation can be asked for at 'cycle' only.")
        self.evaluate |= action.evaluate
        for key, value in _numbers(action.log).items():
            if key in context.metrics or key in self.log:
                raise UserError(f"it logs '{key}', which is logged already: use another name.")
            self.log[key] = value


def _as_action(name: str, answer: CallbackResult) -> CallbackAction:
    if isinstance(answer, CallbackAction):
        return answer
    if answer is None or answer is True:
        return CallbackAction()
    if answer is False:
        return CallbackAction(stop="asked to stop")
    if isinstance(answer, Mapping):
        return CallbackAction(log=answer)
    raise UserError(
        f"{name} returned {answer!r}: return None, False, a dict of numbers or a CallbackAction."
    )


def _numbers(log: Mapping[str, float]) -> dict[str, float]:
    """Return the values to log as Python floats; refuse everything else."""
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


def methods(callback: Callback) -> dict[str, Callable[[CallbackContext], CallbackResult]]:
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
