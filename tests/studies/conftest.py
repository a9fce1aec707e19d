"""Fixtures of all tests of studies."""

import contextlib
import signal

import pytest

from jaxrl.studies import training
from jaxrl.utils import signals


@pytest.fixture
def interruption(monkeypatch):
    """A stop request, set by the first evaluation of a study, and the cycles evaluated so far."""
    stop, evaluated = signals.StopRequest(), []
    monkeypatch.setattr(signals, "listening", lambda: contextlib.nullcontext(stop))
    check = training._MetricCheck.on_evaluation

    def interrupting(self, context):
        check(self, context)
        evaluated.append(context.cycle)
        stop.signal = signal.SIGTERM if len(evaluated) == 1 else None

    monkeypatch.setattr(training._MetricCheck, "on_evaluation", interrupting)
    return stop, evaluated
