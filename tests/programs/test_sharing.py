"""Runs that share compiled programs keep their own settings."""

from jaxrl import programs, train
from jaxrl.config import overrides
from jaxrl.training import population
from tests.helpers import sharing, tiny


def _config(*flags):
    return train._parse(tiny.flags("x", *flags)).config


def _programs(*flags):
    return sharing.compile_once(programs.build(_config(*flags)))


def test_programs_are_shared_unless_compiled_settings_differ():
    short, long = _programs("--epochs", "2"), _programs("--epochs", "5", "--seed", "3")
    assert long._cycle is short._cycle and long.program.config.seed == 3
    assert short.init_state().learner.total_iterations == 8
    assert long.init_state().learner.total_iterations == 20
    other = programs.build(_config("--ppo.gamma", "0.5"))
    assert sharing._key(other) != sharing._key(short.program)


def test_runs_without_evaluation_share_programs_but_evaluate_nothing(monkeypatch):
    with_evaluation = _programs()
    # Other tests may have compiled the same training with evaluations of another size.
    only = {sharing._key(with_evaluation.program): with_evaluation}
    monkeypatch.setattr(sharing, "_COMPILED", only)
    without = _programs("--eval.num-envs", "0")
    assert without._cycle is with_evaluation._cycle
    assert with_evaluation._evaluate is not None and without._evaluate is None


def test_populations_share_programs_unless_their_number_or_static_settings_differ():
    def key(number, *vary):
        return sharing._key(population.build(overrides.members(_config(), number, vary)))

    assert key(2) == key(1, "ppo.learning-rate=0.001,0.01") != key(3)
    assert key(1, "ppo.bound-coef=0.1,0.2") != key(2)  # 0 elsewhere, where it is left out
