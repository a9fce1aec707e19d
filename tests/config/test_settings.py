"""A setting is declared once: a new one needs its line in the schema and the code that uses it."""

import re
import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import pytest

from jaxrl import programs, train
from jaxrl.algorithms import registry as registry_of_algorithms
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import (
    MotionConfig,
    NetworkConfig,
    PPOConfig,
    TrainConfig,
    algorithm_names,
    env_names,
    metadata,
    overrides,
    presets,
)
from jaxrl.config import settings as declared
from jaxrl.config.metadata import setting
from jaxrl.config.settings import SECTIONS, SETTINGS
from jaxrl.config.validate import validate
from jaxrl.envs import registry
from jaxrl.envs.tasks import probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.networks import actor_critic
from tests.docs import reading
from tests.helpers import tiny

# These accept any finite number.
UNBOUNDED = {"motion.speeds"} | {
    f"{section}.{name}"
    for section in ("offpolicy", "reppo")
    for name in ("v_min", "v_max", "target_entropy")
}
NUMBERS = (int, float)


def hint_of(path) -> Any:
    """Return the type of a setting, of a tuple's first element, without None."""
    cls, *names = TrainConfig, *path.split(".")
    for name in names:
        cls = typing.get_type_hints(cls)[name]
    options = [each for each in typing.get_args(cls) if each not in (type(None), ...)]
    is_choice = typing.get_origin(cls) is Literal
    return cls if is_choice or not options else options[0]


def test_every_setting_is_declared_completely():
    for path, each in SETTINGS.items():
        assert re.fullmatch(r"\S.*\.", each.help), path
        assert "(traced)" not in each.help and "Needs" not in each.help, path
        is_number = hint_of(path) in NUMBERS
        assert each.has_range == (is_number and path not in UNBOUNDED), path
        assert not each.traced or hint_of(path) in (float, bool), path
        assert not each.zero_is_static or each.traced, path
        assert not each.identity or not each.compiled, path
    assert list(SETTINGS) == list(declared.values(TrainConfig()))


def test_conditions_name_settings_and_values_that_exist():
    for each in (*SETTINGS.values(), *SECTIONS.values()):
        if not each.only_if:
            continue
        path, *choices = each.only_if
        if choices and path != "env":
            known = algorithm_names.ALGORITHMS if path == "algo" else typing.get_args(hint_of(path))
            assert set(choices) <= set(known)


def out_of_range(each):
    """Return the nearest numbers outside a setting's range."""
    bounds = [
        None if each.at_least is None else each.at_least - 1,
        each.above,
        None if each.at_most is None else each.at_most + 1,
        each.below,
    ]
    return [bound for bound in bounds if bound is not None]


@pytest.mark.parametrize("path", [path for path, each in SETTINGS.items() if each.has_range])
def test_out_of_range_value_is_refused_naming_its_flag(path):
    config, kind = TrainConfig(), hint_of(path)
    for number in out_of_range(SETTINGS[path]):
        value, default = kind(number), declared.get(config, path)
        value = (*default[1:], value) if isinstance(default, tuple) else value
        problems = validate(overrides.changed(config, {path: value}))
        assert any(problem.startswith(f"{declared.flag(path)} must ") for problem in problems)
    if isinstance(default, tuple) and hint_of(path) is int:
        (problem,) = validate(overrides.changed(config, {path: ()}))
        assert problem == f"{declared.flag(path)} needs one or more values, not ()."


def test_range_messages():
    texts = {
        "must be at least 1": setting(1, "", at_least=1),
        "must be greater than 0": setting(1, "", above=0),
        "must lie between 0 and 1": setting(1, "", at_least=0, at_most=1),
        "must be at least 0 and below 1": setting(1, "", at_least=0, below=1),
    }
    for text, field in texts.items():
        assert field.metadata["setting"].requirement == text


def test_help_lists_every_flag_and_marks_traced_ones(capsys):
    assert train.main(["--help-all"]) == 0
    blocks = re.split(r"\n {2}(?=--)", capsys.readouterr().out)
    help_of = {block.split(",")[0].split()[0]: " ".join(block.split()) for block in blocks}
    for path, each in SETTINGS.items():
        if path != "preset":
            text = help_of[declared.flag(path)]
            assert ("(traced)." in text) == each.traced, path
            assert (" Needs" in text) == bool(each.only_if), path


@pytest.mark.parametrize(
    "words",
    [
        "cartpole",
        "ant",
        "pendulum --algo reppo",
        "pqn-cartpole",
        "sac-ant",
        "td3-ant",
        "dqn-catch",
        "imitate-walk",
        "--env gym:CartPole-v1",
    ],
)
def test_flags_that_the_help_shows_are_accepted(words, capsys):
    """Every switch, choice and number can be another one without a note that it has no effect."""
    assert train.main([*words.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert " Needs " not in text
    shown, config = re.findall(r"^  (--\S+)", text, re.M), train._parse(words.split()).config
    for path in SETTINGS:
        if declared.flag(path) in shown:
            for value in others(path, declared.get(config, path)):
                changed = overrides.changed(config, {path: value})
                overrides.refuse_unused(changed, config)
                assert overrides.unused_notes(changed, config, []) == []
                problems = [p for p in validate(changed) if REFUSED.search(p)]
                assert not problems, (path, value)


REFUSED = re.compile(r"\b(for|of|leave|always|no meaning|takes none|chosen)\b")


def others(path, value):
    """Return values that a setting does not have and that are in its range."""
    hint = hint_of(path)
    if typing.get_origin(hint) is Literal:
        return set(declared.choices(path)) - {value}
    if hint is bool:
        return [not value]
    numbers = [hint(2 * value), hint(value / 2)] if type(value) in NUMBERS else []
    return [n for n in numbers if n != value and SETTINGS[path].problem(n) is None][:1]


def test_environments_with_discrete_actions_are_known():
    found = {name for name in env_names.CLASSIC if hasattr(registry.make(name), "num_actions")}
    assert found == set(env_names.DISCRETE)
    std = [declared.reads(presets.get(p), "network.init_std") for p in ("cartpole", "pendulum")]
    assert std == [False, True]


def test_settings_page_is_up_to_date():
    """`python -m jaxrl.config` prints the tables of docs/settings.md."""
    page = (reading.ROOT / "docs" / "settings.md").read_text()
    assert page.endswith(f"\n\n{declared.tables()}\n")


@pytest.mark.parametrize("preset", ["cartpole", "reppo-pendulum", "rrd-quick"])
def test_traced_settings_are_arrays_of_the_learner(preset):
    program = programs.build(replace(presets.get(preset), num_envs=8, devices=1))
    learner = program.abstract_state().learner
    names = {path.partition(".")[2] for path in declared.traced(program.config)}
    assert names and set(learner.hparams) == names


def test_a_new_float_needs_only_its_declaration():
    @dataclass(frozen=True)
    class Own(PPOConfig):
        temperature: float = setting(0.5, "Temperature.", above=0, traced=True)

    @dataclass(frozen=True)
    class OwnTrainConfig(TrainConfig):
        ppo: Own = metadata.section(Own, only_if=("algo", "ppo"))  # type: ignore[assignment]

    own = metadata.walk(OwnTrainConfig)["ppo.temperature"]
    assert own.problem(0.0) == "must be greater than 0" and own.problem(0.1) is None
    assert own.full_help == "Temperature (traced)." and own.compiled
    env = VectorEnv(probes.ConstantValue(), 2, 4)
    networks = actor_critic.build(env.spec, NetworkConfig((4,), (4,)))
    algorithm = ppo.make(Own(), env, networks, 1)
    state = jax.eval_shape(algorithm.init, jax.random.PRNGKey(0))
    assert "temperature" in state.learner.hparams


def test_settings_of_the_users_own_code_and_files():
    """Declared once: imports, refusals, resume commands, caches and the zoo read it."""
    code = {path: each.code.form for path, each in SETTINGS.items() if each.code}
    config = overrides.changed(TrainConfig(), dict.fromkeys(code, "own:name"))
    assert declared.own_code(config) == dict.fromkeys(code, "own:name")
    assert {path for path in code if path not in declared.own_code(TrainConfig())} == set(code)
    named = re.findall(r"(\w+:\w+)", " ".join(SETTINGS[path].help for path in code))
    assert set(code.values()) <= set(named)
    # Every setting whose help names a module is one of them.
    assert {p for p, each in SETTINGS.items() if re.search(r"module:\w+", each.help)} == set(code)
    assert set(declared.TRAINING_CODE) == {"--algo", "--ppo.extra-loss", "--log.sink"}
    for path, compiled in {"log.sink": False, "ppo.extra_loss": True, "algo": True}.items():
        assert declared.compiles_own(overrides.changed(TrainConfig(), {path: "a:b"})) == compiled
    for path, compiled in {"run_dir": False, "reward_from": True, "ppo.teacher": True}.items():
        own = overrides.changed(TrainConfig(), {path: Path("here")})
        assert declared.compiles_own(own) == compiled
        assert declared.named_files(own) == {path: Path("here")}


def test_algorithms_are_described_and_registered():
    names = algorithm_names.ALGORITHMS
    assert set(registry_of_algorithms.OFF_POLICY) == set(algorithm_names.OFF_POLICY)
    assert {info.section for info in names.values()} <= set(SECTIONS)
    for name, info in names.items():
        network = registry_of_algorithms.network_config(TrainConfig(algo=name))
        assert (network.distribution != "tanh_normal") == info.chooses_distribution, name


def test_files_that_playing_needs_have_absolute_paths():
    """A policy may be played from another folder than the one that it was trained from."""
    motion = MotionConfig(clips=Path("walk.npz"), model=Path("~/body.xml"))
    assert motion.clips == Path.cwd() / "walk.npz"
    assert motion.model == Path.home() / "body.xml"
    assert PPOConfig(teacher=Path("zoo:ant")).teacher == Path("zoo:ant")  # only training reads it


def test_members_share_a_program_unless_a_static_setting_differs():
    config = train._parse(tiny.FLAGS).config
    same = {"seed": 5, "preset": "x", "ppo.gamma": 0.5, "ppo.entropy_coef": 0.1}
    assert declared.static(overrides.changed(config, same)) == declared.static(config)
    for path, value in {"num_envs": 16, "ppo.value_clip": 0.2, "checkpoint.keep": 9}.items():
        other = declared.static(overrides.changed(config, {path: value}))
        assert {k for k, v in other.items() if v != declared.static(config)[k]} == {path}
    clipped = overrides.changed(config, {"ppo.value_clip": 0.2})
    wider = overrides.changed(config, {"ppo.value_clip": 0.3})
    assert declared.static(clipped) == declared.static(wider)


def test_settings_that_are_compiled_or_fixed_on_resume():
    config = TrainConfig()
    compiled, fixed = declared.compiled(config), declared.fixed_on_resume(config)
    assert {"num_envs", "ppo.gamma", "eval.num_envs", "log.episodes"} <= compiled.keys()
    assert not {"seed", "run_dir", "eval.every", "log.wandb", "checkpoint.replay"} & compiled.keys()
    assert {"seed", "num_envs", "cycles", "ppo.gamma", "network.hidden"} <= fixed.keys()
    assert not {"epochs", "total_steps", "devices", "eval.num_envs", "log.wandb"} & fixed.keys()
    assert fixed["network.hidden"] == [64, 64, 64]  # as in JSON
