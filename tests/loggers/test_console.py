"""Console output on a terminal and elsewhere."""

import io
import re

import pytest
from rich.console import Console as RichConsole

from jaxrl.config import TrainConfig
from jaxrl.config.algorithms import PPOConfig
from jaxrl.loggers.console import Console
from jaxrl.utils import formatting

METRICS = {"rollout/ep_rew_mean": 12.5, "time/fps": 1000.0, "train/approx_kl": 0.0123}
# Two epochs of two cycles, of 250 steps each.
CONFIG = TrainConfig(
    num_envs=25, epochs=2, cycles=2, iterations=1, ppo=PPOConfig(rollout_length=10)
)


@pytest.mark.parametrize(
    "value, text",
    [(1000.0, "1,000"), (0.0123456, "0.01235"), (1234.56, "1,234.6"), (float("inf"), "inf")],
)
def test_short_numbers(value, text):
    assert formatting.short(value) == text


@pytest.mark.parametrize("seconds, text", [(5.9, "5s"), (65, "1m05s"), (3700, "1h01m")])
def test_durations(seconds, text):
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize("number, text", [(0, "0 steps"), (1, "1 step"), (2000, "2,000 steps")])
def test_plurals(number, text):
    assert formatting.plural(number, "step") == text


def test_plain_lines_without_a_terminal(capsys):
    console = Console(CONFIG)
    console.training_begins(0)
    console(500, METRICS)
    console.close()
    line = capsys.readouterr().out
    assert "500 steps" in line and "return 12.5" in line and "1,000 steps/s" in line
    assert "left" in line and "\x1b" not in line


def test_lines_of_a_population_say_whose_steps_and_speed(capsys):
    console = Console(CONFIG, members=3)
    console(500, METRICS)
    line = capsys.readouterr().out
    assert "500 steps each" in line and "1,000 steps/s of all 3" in line


def test_table_and_progress_on_a_terminal(monkeypatch):
    out = io.StringIO()
    terminal = RichConsole(file=out, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("jaxrl.loggers.console.RichConsole", lambda **_: terminal)
    console = Console(CONFIG)
    console.compiling("compiling it ...")
    assert "0:00:00" in out.getvalue()  # seconds are counted
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
    console = Console(CONFIG)
    console.training_begins(0)
    console(500, METRICS)
    console.close()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")
    assert "12.5" in plain and max(map(len, plain.splitlines())) <= 20


def _print_all(*, verbose):
    """Print four cycles, and the losses of two iterations in the first."""
    console = Console(CONFIG, verbose)
    console.training_begins(0)
    console.say("a remark")
    console.say("warning signs are remarks, too")
    console.warn("beware")
    console.iterations(1, [0.5, 0.25])
    for cycle in range(1, 5):
        value = {"rollout/ep_rew_mean": 10.0 * cycle, "time/cycle": cycle}
        evaluated = {} if cycle % 2 else {"eval/mean_reward": 1.0 * cycle}
        console(250 * cycle, METRICS | value | evaluated)


def test_lines_say_epoch_and_cycle_and_end_epochs_with_a_summary(capsys):
    _print_all(verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "R_loss of iterations 1 to 2: 0.5 0.25"
    assert [" ".join(line.split()[:4]) for line in lines[4:]] == [
        *("epoch 1/2 cycle 1/2", "epoch 1/2 cycle 2/2", "epoch 1/2 ends: 500"),
        *("epoch 2/2 cycle 1/2", "epoch 2/2 cycle 2/2", "epoch 2/2 ends: 1,000"),
    ]
    assert "return 15  eval 2 " in lines[6] and "return 35  eval 4 " in lines[9]


def test_quiet_console_prints_warnings_only(capsys):
    _print_all(verbose=0)
    assert capsys.readouterr().out == "warning: beware\n"


def test_verbose_console_prints_all_metrics_and_iterations(capsys):
    _print_all(verbose=2)
    out = capsys.readouterr().out
    assert "iteration 1/4: R_loss 0.5\niteration 2/4: R_loss 0.25" in out
    assert out.count("ep_rew_mean") == 4 and "epoch 2/2 ends" in out


def test_losses_of_many_iterations_are_averaged_in_groups(capsys):
    Console(CONFIG).iterations(101, [float(i // 10) for i in range(100)])
    out = capsys.readouterr().out
    assert out == "R_loss of iterations 101 to 200, 10 means: 0 1 2 3 4 5 6 7 8 9\n"
