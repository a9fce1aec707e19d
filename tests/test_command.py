"""The command `jaxrl`, its help and its completion."""

import contextlib
import re
import subprocess
import sys

import pytest

import jaxrl
from jaxrl import __main__, completion, presets, train
from jaxrl.config import help_text
from jaxrl.config.settings import SETTINGS
from jaxrl.errors import UserError


def test_commands_run_the_modules_they_name(capsys):
    assert __main__.main(["presets", "iql", "cql"]) == 0
    listed = capsys.readouterr().out
    assert "`iql`" in listed and "`cql`" in listed and "`ant`" not in listed
    for name, (module, _) in __main__.COMMANDS.items():
        with contextlib.suppress(SystemExit):
            __main__.main([name, "--help"])
        assert f"python -m {module}" in capsys.readouterr().out, name


def test_unknown_commands_name_the_nearest(capsys):
    assert __main__.main(["trian", "ant"]) == 2
    assert "There is no command 'trian'. Did you mean 'train'?" in capsys.readouterr().err
    assert __main__.main([]) == 2 and "jaxrl COMMAND" in capsys.readouterr().out
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxrl {jaxrl.__version__}\n"
    assert __main__.main(["presets", "nothing-like-it"]) == 2
    assert "No preset has nothing-like-it in its name" in capsys.readouterr().err


def test_wrong_arguments_are_named_by_the_command_that_was_typed(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/jaxrl"])
    for words, problem in {
        "evaluate": "PATH is missing: Run folder, or zoo:NAME. jaxrl evaluate --help",
        "evaluate r --epsiodes 3": "Unknown flag --epsiodes. Did you mean '--episodes'? jaxrl",
        "evaluate r --episodes x": "--episodes must be an integer, not 'x'.",
        "study": "STUDY is missing: Python file, or its name in studies/. jaxrl study --help",
        "search s --trials x": "--trials must be an integer, not 'x'.",
        "zoo wach": "action: unknown 'wach'. Did you mean 'watch'? Known: list, watch. jaxrl zoo",
        "ant": "There is no command 'ant'.",
    }.items():
        assert __main__.main(words.split()) == 2
        assert f"error: {problem}" in capsys.readouterr().err
    assert __main__.main(["train", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: jaxrl train [PRESET]")


def _flags(text):
    return {word for line in text.splitlines() for word in line.split()[:1] if word[:2] == "--"}


@pytest.mark.parametrize(
    "words, shown, hidden",
    [
        (
            "quickstart",
            "--ppo.gamma --backend --physics --task.randomize --network.rnn --network.sde",
            "--offpolicy.gamma --motion.clips --pick.hold --amp.weight --data.path "
            "--task.num-agents --task.async-factor --checkpoint.replay",
        ),
        (
            "sac-ant",
            "--offpolicy.alpha-lr --data.path --checkpoint.replay --network.sde",
            "--ppo.gamma --offpolicy.target-noise --network.rnn --amp.weight",
        ),
        (
            "dqn-cartpole",
            "--offpolicy.double --network.hidden",
            "--network.critic-hidden --backend",
        ),
        ("arena", "--task.num-agents --env-args", "--backend --physics --task.randomize"),
        ("pick-place", "--pick.hold --physics", "--backend --env-args --amp.weight"),
        ("imitate", "--motion.clips --ppo.gamma --amp.weight", "--pick.hold --rrd.features"),
        ("amp-walk", "--amp.weight --amp.batch-size", "--pick.hold"),
        ("imitate --algo sac", "--motion.clips --data.path", "--amp.weight --amp.batch-size"),
        ("--env gym:CartPole-v1", "--task.async-factor", "--task.randomize --backend"),
        (
            "--env mine:Task",
            "--task.num-agents --task.async-factor --amp.weight --pick.hold",
            "--rrd",
        ),
        ("rrd-quick", "--rrd.features --offpolicy.r-lr", "--ppo.gamma --motion.clips"),
        (
            "ant --ppo.schedule adaptive_kl",
            "--ppo.desired-kl",
            "--ppo.prio-alpha --ppo.schedule-floor",
        ),
        ("reppo-pendulum", "--reppo.schedule", "--reppo.schedule-floor"),
    ],
)
def test_help_shows_what_a_run_reads(words, shown, hidden, capsys):
    assert train.main([*words.split(), "--help"]) == 0
    flags = _flags(capsys.readouterr().out)
    known = {help_text.flag(path) for path in SETTINGS}
    assert set(shown.split()) <= flags
    assert not flags & set(hidden.split())
    assert {"--num-seeds", "--resume", "--num-envs"} <= flags
    assert train.main([*words.split(), "--help-all"]) == 0
    assert known - {"--preset"} <= _flags(capsys.readouterr().out)


def test_help_has_the_values_of_the_run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    train.main(["cartpole", "--num-envs", "77", "--network.hidden", "3", "4", "--help"])
    text = capsys.readouterr().out
    assert "Number of parallel environments. [77]" in text
    assert "[3 4]" in text and "this help shows 'cartpole'" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    "typed, found",
    {
        "ev": "evaluate",
        "train pend": "pendulum",
        "train ant --ppo.ga": "--ppo.gamma",
        "train sac-ant --g": "",  # every flag has its section
        "train ant --offpolicy.ga": "--offpolicy.gamma",  # not read: where nothing else fits
        "train ant --ppo.no-norm": "--ppo.no-normalize-obs",  # is on
        "train ant --network.rnn-": "--network.rnn-size --network.rnn-timescale "
        "--network.rnn-layers --network.rnn-of",
        "train --offpolicy.critic ": "mse c51",
        "train ant --network.distribution ": "tanh_normal normal",
        "train --algo=s": "--algo=sac",  # in zsh; bash splits the words
        "train --algo = s": "sac",
        "train --algo =": "ppo reppo pqn sac td3 dqn iql bc",
        "train --nothing.here ": "",
        "train --resume runs/a --to": "--total-steps",
        "train --distributed.c": "--distributed.coordinator",
        "launch --processes 2 -- cartpole --ppo.cl": "--ppo.clip",
        "evaluate runs": "",  # paths are the shell's
        "evaluate zoo:hum": "zoo:humanoid",
        "evaluate zoo : hum": "humanoid",
        "evaluate r --policy ": "best final",
        "evaluate r --network": "--network.module",
        "zoo --no": "--no-open",
        "zoo watch hum": "humanoid",
        "study s --s": "--smoke --shared --set",
        "clips-plan a b --s": "--substeps --samples --spread --seed",
        "completion ": "",
        "nothing ": "",
    }.items(),
)
def test_words_are_completed(typed, found):
    assert completion.candidates(typed.split(" ")) == found.split()


def test_flags_of_training_are_those_that_the_run_reads():
    def offered(*words):
        return {word.replace("no-", "") for word in completion.candidates([*words, "--"])}

    ours = {"--network.state-dependent-std", "--network.rnn"}
    assert ours <= offered("train", "ant") and not ours & offered("train", "dqn-cartpole")
    assert "--network.rnn-size" in offered("train", "ant", "--network.rnn", "gru")
    assert "--offpolicy.gamma" in offered("train", "ant", "--algo", "sac")
    assert "--offpolicy.gamma" in offered("train", "ant", "--algo=sac")
    assert {"--num-seeds", "--dry-run", "--help-all"} <= offered("train")


@pytest.mark.parametrize("command", [name for name in __main__.COMMANDS if name != "completion"])
def test_flags_of_every_command_are_completed(command, capsys):
    with contextlib.suppress(SystemExit):
        __main__.main([command, "--help"])
    text = capsys.readouterr().out
    listed = set(re.findall(r"^(?:│|  ) ?(?:-h, )?(--[\w.-]+)", text, re.MULTILINE)) - {"--help"}
    completed = {word.replace("no-", "") for word in completion.candidates([command, "--"])}
    assert completed - {"--help", "--help-all"} == listed


def test_shell_asks_for_words():
    """In bash, which splits words at : and =, and replaces only what follows."""
    asked = "jaxrl() { shift 2; printf '%s\\n' \"$#:$*\" two; }\n"
    typed = 'COMP_WORDS=(jaxrl train --algo = s); COMP_CWORD=4; _jaxrl; echo "${COMPREPLY[*]}"'
    script = f"{completion._output([])}\n{asked}{typed}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "4:train --algo = s two\n"
    assert completion._output(["zsh"]) == completion._output([])
    with pytest.raises(UserError, match="not fish"):
        completion._output(["fish"])


def test_commands_are_ready_without_jax():
    """Help, errors about arguments and completion come at once."""
    modules = [module for module, _ in __main__.COMMANDS.values()]
    code = f"""
import sys, {", ".join(modules)}
from jaxrl import __main__
for words in ("evaluate x", "render x", "record x --out y", "report x"):
    assert __main__.main(words.split()) == 2
assert not {{"jax", "mujoco", "matplotlib", "optuna"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_presets_take_changes():
    config = presets.get("cartpole", num_envs=64, **{"ppo.lam": 0.8, "network.hidden": [8, 8]})
    assert (config.num_envs, config.ppo.lam, config.network.hidden) == (64, 0.8, (8, 8))
    with pytest.raises(UserError, match="There is no setting 'ppo.lamda'. Did you mean 'ppo.lam'"):
        presets.get("cartpole", **{"ppo.lamda": 0.9})


def test_exports_are_listed():
    assert set(jaxrl.__all__) < set(dir(jaxrl))
    for name in jaxrl.__all__:
        assert getattr(jaxrl, name) is not None
