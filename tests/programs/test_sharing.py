"""Runs that share compiled programs keep their own settings."""

from jaxrl import programs, train
from tests.helpers import sharing, tiny


def _programs(*flags):
    return sharing.compile_once(programs.build(train._parse(tiny.flags("x", *flags)).config))


def test_programs_are_shared_unless_compiled_settings_differ():
    short, long = _programs("--epochs", "2"), _programs("--epochs", "5", "--seed", "3")
    assert long._cycle is short._cycle and long.program.config.seed == 3
    assert short.init_state().learner.total_iterations == 8
    assert long.init_state().learner.total_iterations == 20
    assert _programs("--ppo.gamma", "0.5")._cycle is not short._cycle
