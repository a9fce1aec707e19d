"""Bad input is refused with a clear message before anything is compiled or written."""

import json
import pickle
import re
import resource
import shlex
import subprocess
import sys

import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, programs, train
from jaxrl.config import TrainConfig, presets, serialization, validate
from jaxrl.errors import UserError
from jaxrl.programs import memory_estimate
from tests.helpers import tiny

BAD_FLAGS = {
    "ant --algo spo": "--algo: unknown algorithm 'spo'. Did you mean 'ppo'?",
    "ant --lr 3": "Unknown flag --lr. Did you mean --ppo.learning-rate, or",
    "sac-ant --lr=3": "Unknown flag --lr. Did you mean --offpolicy.q-lr, or",
    "ant --algo sac --learning_rate 3": "Did you mean --offpolicy.q-lr, or --offpolicy.pi-lr, or",
    "ant --n-steps 3": "Unknown flag --n-steps. Did you mean --ppo.rollout-length, or",
    "sac-ant --tau 0.1": "Unknown flag --tau. Did you mean --offpolicy.polyak?",
    "ant --ppo.clp 3": "Unknown flag --ppo.clp. Did you mean --ppo.clip",
    "--no-such-flag": "Unknown flag --no-such-flag. --help-all lists all flags.",
    "ant --num-env 3": "Unknown flag --num-env. Did you mean --num-envs",
    "antt": "Did you mean 'ant'?",
    "--env antt": "Did you mean 'ant'?",
    "ant --backend sprng": "Did you mean 'spring'?",
    "cartpole --backend spring": "no physics backend",
    "ant --num-envs 0": "--num-envs must be at least 1",
    "ant --num-envs many": "error: --num-envs must be an integer, not 'many'. python -m",
    "ant --num-envs": "error: --num-envs needs a value.",
    "ant --network.hidden 64 x": "error: --network.hidden must be an integer, not 'x'.",
    "ant --ppo.clip x": "error: --ppo.clip must be a number, not 'x'.",
    "ant --ppo.schedule lnear": "error: --ppo.schedule: unknown 'lnear'. Did you mean 'linear'?",
    "ant extra": "error: Unexpected argument extra.",
    "ant --num-envs -5": "--num-envs must be at least 1",
    "ant --num-envs 100 --ppo.num-minibatches 8": "or --num-envs 96 or 104",
    "ant --devices 2 --num-envs 8 --ppo.num-minibatches 8": "use --ppo.num-minibatches 4, or",
    "memory --num-envs 2 --ppo.num-minibatches 64": "4 segments of 32 steps that",
    "ant --epochs 0": "--epochs must be at least 1",
    "ant --total-steps -1": "--total-steps must be at least 1",
    "ant --ppo.rollout-length 0": "--ppo.rollout-length must be at least 1",
    "ant --ppo.gamma 1.5": "--ppo.gamma must lie between 0 and 1",
    "ant --ppo.learning-rate nan": "--ppo.learning-rate must be finite",
    "ant --ppo.clip 0": "--ppo.clip must be greater than 0",
    "ant --network.hidden 64 0": "--network.hidden must be at least 1, not (64, 0)",
    "ant --task.action-repeat 0": "--task.action-repeat must be at least 1",
    "ant --task.episode-length 2 --task.action-repeat 4": "is shorter than",
    "ant --seed 99999999999": "--seed must be at most",
    "--env no_such_module_x:Env": "cannot import 'no_such_module_x'",
    "--env jaxrl.envs.tasks.probes:Nope": "has no 'Nope'",
    "--resume /does/not/exist": "does not exist",
    "--resume runs/a --num-envs 8": "--num-envs: a resumed run keeps its settings",
    "--seed 3 ant": "The preset comes first",
    "--resume /does/not/exist --epochs 3 --total-steps 5": "does not exist",
    "cartpole --devices 64 --num-envs 8192": "this machine has",
    "gym-cartpole --task.no-fresh-resets": "it resets itself",
    "cartpole --task.randomize nowhere:f": "cannot import 'nowhere'",
    "cartpole --task.randomize math:floor": "no `sys`",
    "cartpole --log.wandb": "pip install -e '.[wandb]'",
    "cartpole --log.mlflow": "pip install -e '.[mlflow]'",
    "memory --ppo.bptt-horizon 24": "use a rollout length of 48 or 72",
    "memory --ppo.accumulate 5": "use --num-envs 240 or 260",
    "arena-small --num-envs 3": "or --num-envs 2 or 4",
    "--env a:B --ppo.num-minibatches 7": "use --ppo.num-minibatches 4 or 8, or --num-envs",
    "memory --ppo.advantage vtrace --ppo.normalize-advantage batch": "use minibatch",
    "gym-cartpole --env gym:Nope-v0": "cannot make 'gym:Nope-v0'",
    "gym-cartpole --env gym::": "cannot make 'gym::'",
    "cartpole --ppo.teacher /does/not/exist": "No policy at",
    "cartpole --run-dir a\0b": "--run-dir: cannot create 'a\0b': ",
    "cartpole --task.reset-pool 2147483647": "lower --task.reset-pool",
    "cartpole --eval.num-envs 2147483640": "lower --eval.num-envs",
    "--env imitation --task.action-repeat 2": "--task.action-repeat must be 1 for imitation",
    "--env imitation --motion.resample-floor 2": "--motion.resample-floor must lie between 0 and 1",
    "--env pick_place --pick.hold 0": "--pick.hold must be at least 1",
    "--env pick_place --pick.raise-at 2": "--pick.raise-at must lie between 0 and 1",
    "--env pick_place --pick.attach-distance 0": "--pick.attach-distance must be greater than 0",
    "--env pick_place --backend mjx": "'pick_place' has no physics backend to choose",
    "cartpole --offpolicy.batch-size 64": "--offpolicy.batch-size is a setting of "
    "--algo sac or td3 or",
    "cartpole --rrd.features quadratic": "--rrd.features is a setting of --algo sac or",
    "cartpole --offpolicy.warmup 5": "--offpolicy.warmup is a setting of --algo sac or td3 or dqn",
    "rrd-quick --offpolicy.target-entropy nan": "--offpolicy.target-entropy must be finite",
    "amp-walk-tiny --amp.weight inf": "--amp.weight must be finite, not inf",
    "amp-walk-tiny --motion.weights 1 inf 1 1": "--motion.weights must be finite",
    "rrd-quick --offpolicy.v-max inf": "--offpolicy.v-max must be finite",
    "dqn-cartpole --ppo.clip 0.1": "--ppo.clip is a setting of --algo ppo, not of dqn",
    "cartpole --pick.hold 3": "--pick.hold is a setting of --env pick_place, not of cartpole",
    "cartpole --motion.substeps 2": "is a setting of --env imitation or heading, not of cartpole",
    "--env imitation --motion.resample-interval -1": "resample-interval must be at least 0",
}


WITHOUT_EFFECT = {
    "sac-ant --rrd.features quadratic": "--rrd.features has no effect without --offpolicy",
    "rrd-ant --rrd.sample-size 32": None,
    "rrd-ant --offpolicy.reward env": None,  # settings of the preset do not warn
    "sac-ant --offpolicy.v-max 9": "--offpolicy.v-max has no effect without --offpolicy.critic",
    "td3-ant --offpolicy.alpha-lr 1": "--offpolicy.alpha-lr has no effect without --algo sac.",
    "td3-ant --offpolicy.target-noise 0.1": None,
    "dqn-catch --offpolicy.epsilon-end 0.1": None,
    "cartpole --ppo.teacher-coef 2": "--ppo.teacher-coef has no effect without --ppo.teacher.",
    "cartpole --ppo.rho-clip 2": "--ppo.rho-clip has no effect without --ppo.advantage vtrace.",
    "cartpole --ppo.rho-clip 2 --ppo.advantage vtrace": None,
    "cartpole --ppo.desired-kl 0.1": "without --ppo.schedule adaptive_kl.",
    "ant --ppo.desired-kl 0.1": None,
    "cartpole --ppo.entropy-coef-end 0": "has no effect without --ppo.entropy-coef.",
    "cartpole --ppo.entropy-coef-end 0 --vary ppo.entropy-coef=0,1": None,
}


@pytest.mark.parametrize("flags", WITHOUT_EFFECT)
def test_flags_without_effect_warn(flags, capsys):
    assert train._parse(shlex.split(flags))
    stderr = capsys.readouterr().err
    assert (WITHOUT_EFFECT[flags] or "") in stderr and bool(WITHOUT_EFFECT[flags]) == bool(stderr)


@pytest.mark.parametrize("arguments", BAD_FLAGS)
def test_bad_flags_are_named_and_refused(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train.main(arguments.split()) == 2
    assert BAD_FLAGS[arguments] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_all_problems_are_reported_together(capsys):
    assert train.main(shlex.split("ant --num-envs 0 --ppo.lam 2 --backend mjxx")) == 2
    message = capsys.readouterr().err
    assert all(flag in message for flag in ("--num-envs", "--ppo.lam", "--backend"))
    assert (
        train.main(shlex.split("ant --backend sprng --num-envs 100 --ppo.num-minibatches 8")) == 2
    )
    message = capsys.readouterr().err
    assert "'spring'" in message and "or --num-envs 96 or 104" in message


@pytest.mark.parametrize("steps", [200_000, 1_600_000, 10**7])
def test_total_steps_of_own_environments_are_about_ten_epochs(steps):
    flags = ["--env", "a:B", "--total-steps", str(steps)]
    config = train._parse(flags).config
    epochs = [i for i in range(1, config.total_cycles + 1) if config.is_epoch_end(i)]
    assert 10 <= len(epochs) <= 13
    assert train._parse([*flags, "--cycles", "7"]).config.iterations == 10  # as given


@pytest.mark.parametrize("flag", ["--env {}", "--env={}"])
def test_env_flag_alone_selects_its_preset(flag):
    assert train._parse(flag.format("cartpole").split()).config == presets.get("cartpole")
    own = train._parse(flag.format("mine:Env").split()).config
    assert own.env == "mine:Env" and own.backend is None


@pytest.mark.parametrize("flag", ["--episodes", "--seed", "--only"])
@pytest.mark.parametrize("value", [-1, 2**63])
def test_episodes_and_seeds_out_of_range_are_refused(flag, value, capsys):
    assert evaluate.main(["run", flag, str(value)]) == 2
    assert f"error: {flag} must lie between" in capsys.readouterr().err


def test_more_episodes_than_fit_in_memory_are_refused(monkeypatch):
    program = programs.build(train._parse(tiny.FLAGS).config)
    memory_estimate.refuse_episodes(program.env, 100)
    with pytest.raises(UserError, match="--only: 100,000,000,000 episodes side by side need"):
        memory_estimate.refuse_episodes(program.env, 10**11, "--only")


def test_missing_policy_is_named(tmp_path, capsys):
    assert evaluate.main([str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(UserError, match="No policy at"):
        jaxrl.load_policy(".")


class Malicious:
    """Runs code when unpickled."""

    def __reduce__(self):
        return pytest.fail, ("code in a file was run",)


def test_loading_a_policy_runs_no_code(tmp_path, capsys):
    path = tmp_path / "policy.npz"
    np.savez(path, allow_pickle=True, **{"policy.json": np.array(Malicious(), object)})
    with pytest.raises(UserError, match="policy.npz"):
        jaxrl.load_policy(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(UserError, match="policy.npz"):
        jaxrl.load_policy(path)


def test_resume_folder_must_be_a_run(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("x")
    empty = tmp_path / "empty"
    empty.mkdir()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"learning": "else"}')
    binary = tmp_path / "binary"
    binary.mkdir()
    (binary / "config.json").write_bytes(b"\xff\xfe\x00")
    expected = {file: "but a file", empty: "no config.json", foreign: "not written by this version"}
    for path, text in (expected | {binary: "not a text file"}).items():
        assert train.main(["--resume", str(path)]) == 2
        assert text in capsys.readouterr().err
        assert evaluate.main([str(path)]) == 2
        capsys.readouterr()


def test_run_dir_is_never_overwritten(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert train.main(tiny.flags(tmp_path)) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_text() == "{}"


def test_unwritable_run_dir(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert train.main(tiny.flags(tmp_path / "file" / "run")) == 2
    assert "--run-dir: cannot create" in capsys.readouterr().err


def test_custom_environment_of_a_config_file_is_not_imported(tmp_path, capsys):
    config = train._parse(["--env", "evil_module:Env"]).config
    (tmp_path / "config.json").write_text(serialization.to_json(config))
    for main in (
        lambda: train.main(["--resume", str(tmp_path)]),
        lambda: evaluate.main([str(tmp_path)]),
    ):
        assert main() == 2
        assert "--env evil_module:Env" in capsys.readouterr().err


def test_env_flag_must_match_the_run(tmp_path, capsys):
    (tmp_path / "config.json").write_text(serialization.to_json(presets.get("cartpole")))
    for main in (train.main, evaluate.main):
        words = ["--resume", str(tmp_path)] if main is train.main else [str(tmp_path)]
        assert main([*words, "--env", "ant"]) == 2
        assert f"--env ant: the run in '{tmp_path}' has --env cartpole" in capsys.readouterr().err


def test_help_is_fast_and_does_not_import_jax():
    code = (
        "import sys, jaxrl.train as t\n"
        "try: t.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'jax' not in sys.modules and 'brax' not in sys.modules\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "--num-envs" in done.stdout and "quickstart" in done.stdout
    # CPU time, not wall-clock: tests share their cores.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


def test_dry_run_shows_sizes_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train.main([*tiny.FLAGS, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "estimated peak" in text and "float32[4]" in text and '"num_envs"' not in text
    assert text.startswith("preset cartpole, with\n  --num-envs 8   (preset: 256)\n")
    assert "--network.hidden 8   (preset: 32 32)\n" in text
    # 8 iterations of 2 epochs over 2 minibatches
    assert re.search(r"gradient steps in all +32\n", text) and "not known: no earlier run" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_valid_and_round_trips_through_json(name):
    config = presets.get(name)
    assert validate.validate(config) == []
    assert serialization.from_json(serialization.to_json(config)) == config
    assert validate.validate(config, device_count=8) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d | {"surprise": 1},
        lambda d: d | {"num_envs": "many"},
        lambda d: d | {"num_envs": True},
        lambda d: d | {"ppo": 3},
        lambda d: d | {"ppo": d["ppo"] | {"gamma": "high"}},
        lambda d: d | {"network": d["network"] | {"hidden": [1, "x"]}},
        lambda d: d | {"motion": d["motion"] | {"speeds": [1.0]}},
        lambda d: d | {"format": 99},
        lambda d: [d],
    ],
)
def test_malformed_config_files_are_refused(change):
    data = json.loads(serialization.to_json(TrainConfig()))
    with pytest.raises(UserError):
        serialization.from_json(json.dumps(change(data)))


def test_truncated_and_deeply_nested_config_files_are_refused():
    text = serialization.to_json(TrainConfig())
    for bad in (text[:-20], "", "[" * 100_000):
        with pytest.raises(UserError):
            serialization.from_json(bad)


def test_config_files_without_new_fields_get_defaults():
    data = json.loads(serialization.to_json(presets.get("ant")))
    del data["network"]["rnn"], data["task"]["async_factor"]
    assert serialization.from_json(json.dumps(data)) == presets.get("ant")
