"""Console output on a terminal and elsewhere."""

import io
import re

import pytest
from rich.console import Console as RichConsole

from jaxrl.loggers.console import Console
from jaxrl.utils import formatting

METRICS = {"rollout/ep_rew_mean": 12.5, "time/fps": 1000.0, "train/approx_kl": 0.0123}


@pytest.mark.parametrize(
    "value, text",
    [(1000.0, "1,000"), (0.0123456, "0.01235"), (1234.56, "1,234.6"), (float("inf"), "inf")],
)
def test_short_numbers(value, text):
    assert formatting.short(value) == text


@pytest.mark.parametrize("seconds, text", [(5.9, "5s"), (65, "1m05s"), (3700, "1h01m")])
def test_durations(seconds, text):
    assert formatting.duration(seconds) == text


def test_plain_lines_without_a_terminal(capsys):
    console = Console(total_steps=1000)
    console.training_begins(0)
    console(500, METRICS)
    console.close()
    line = capsys.readouterr().out
    assert "500 steps" in line and "return 12.5" in line and "1,000 steps/s" in line
    assert "left" in line and "\x1b" not in line


def test_table_and_progress_on_a_terminal(monkeypatch):
    out = io.StringIO()
    terminal = RichConsole(file=out, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("jaxrl.loggers.console.RichConsole", lambda **_: terminal)
    console = Console(total_steps=1000)
    console.training_begins(100)
    console(500, METRICS)
    console.close()
    text = out.getvalue()
    assert "rollout/" in text and "ep_rew_mean" in text and "12.5" in text
    assert "50%" in text and "1,000 steps/s" in text


def test_output_fits_a_narrow_terminal(monkeypatch):
    out = io.StringIO()
    terminal = RichConsole(file=out, force_terminal=True, width=20, color_system=None)
    monkeypatch.setattr("jaxrl.loggers.console.RichConsole", lambda **_: terminal)
    console = Console(total_steps=1000)
    console.training_begins(0)
    console(500, METRICS)
    console.close()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")
    assert "12.5" in plain and max(map(len, plain.splitlines())) <= 20
