"""Algorithms, losses, networks and sinks of docs/extending.md train, resume and load."""

import importlib
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, export, train
from jaxrl.algorithms import registry
from jaxrl.config import TrainConfig, presets, validate
from jaxrl.errors import UserError
from jaxrl.loggers import sinks

# A run, its continuation and its repetition from Python have the same settings.
pytestmark = pytest.mark.usefixtures("shared_programs")

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SMALL = (
    "--devices 1 --network.hidden 8 --network.critic-hidden 8 --epochs 1 --cycles 1 --num-envs 4 "
    "--iterations 4 --eval.num-envs 0 --task.episode-length 8 --log.no-tensorboard"
)
DDPG = (
    f"rrd-quick {SMALL} --algo ddpg:make --offpolicy.reward env --task.no-episodic-reward "
    "--offpolicy.buffer-size 256 --offpolicy.warmup 8 --offpolicy.train-batches 2 "
    "--offpolicy.batch-size 8 "
    "--total-steps None"
)
PPO = f"{SMALL} --ppo.rollout-length 4 --ppo.num-minibatches 2 --ppo.update-epochs 1"
MODULES = ("ddpg", "mirror", "residual", "best_log")


def _code_block(name):
    """Return the Python block that the page shows for a file."""
    text = PAGE.read_text()
    before, _, after = text.partition(f"in `{name}`")
    assert after, name
    return re.search(r"```python\n(.*?)```", after, re.S).group(1)


@pytest.fixture
def user_code(tmp_path, monkeypatch):
    """Write the page's modules to a folder on the import path."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(_code_block(f"{name}.py"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def _rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_docs_page_imports_only_exported_names():
    for name in ("ddpg.py", "residual.py"):
        code = _code_block(name)
        for module, names in re.findall(r"from (jaxrl\.\w+) import (.+)", code):
            exported = importlib.import_module(module).__all__
            assert set(names.split(", ")) <= set(exported), f"{name}: {module}"
    lines = _code_block("ddpg.py").partition("def make")[2].splitlines()
    assert len([line for line in lines if line.strip()]) < 25


def test_custom_algorithm_trains_resumes_and_evaluates(user_code, capsys):
    run = user_code / "run"
    assert train.main([*DDPG.split(), "--run-dir", str(run)]) == 0
    assert f"--resume {run} --epochs 2 --algo ddpg:make" in capsys.readouterr().out
    assert _rows(run)[-1]["train/q_mean"] != 0.0
    # A module named in the run folder is not imported without its flag.
    sys.modules.pop("ddpg", None)
    resume = ["--resume", str(run), "--epochs", "2"]
    assert train.main(resume) == 2
    assert "To allow its import, add --algo ddpg:make" in capsys.readouterr().err
    assert train.main([*resume, "--algo", "ddpg:other"]) == 2
    assert "ddpg" not in sys.modules
    assert train.main([*resume, "--algo", "ddpg:make"]) == 0
    assert len(_rows(run)) == 2
    sys.modules.pop("ddpg", None)
    assert evaluate.main([str(run), "--episodes", "2"]) == 0
    assert "ddpg" not in sys.modules


def test_ddpg_example_learns_the_target_action(user_code):
    """The critics fit the reward of a one-step task, and the actor maximizes them."""
    from jaxrl.envs.tasks import probes
    from jaxrl.envs.vector_env import VectorEnv

    config = TrainConfig(algo="ddpg:make")
    settings = replace(
        config.offpolicy,
        buffer_size=4096,
        batch_size=64,
        warmup=64,
        train_batches=4,
        pi_lr=3e-3,
        q_lr=3e-3,
    )
    network = replace(config.network, hidden=(16,), critic_hidden=(16,), activation="tanh")
    config = replace(config, offpolicy=settings, network=network)
    env = VectorEnv(probes.PROBES["continuous_action"](), 16, 1, pool_size=16)
    networks = registry.build_networks(config, env.spec)
    algorithm = registry.make(config, env, networks)

    @jax.jit
    def run(key):
        state, _ = jax.lax.scan(
            lambda state, _: algorithm.train_step(state), algorithm.init(key), length=150
        )
        params = algorithm.policy_params(state.learner)
        return algorithm.policy(True)(params, target, (), key)[0]

    target = jnp.array([[-0.6], [0.0], [0.6]])
    action = run(jax.random.key(0))
    np.testing.assert_allclose(action, target, atol=0.2)


def test_custom_loss_is_trained_on_and_needed_by_training_only(user_code, capsys):
    run, flags = user_code / "run", ["--ppo.extra-loss", "mirror:symmetric"]
    command = f"pendulum {PPO}".split()
    assert train.main([*command, *flags, "--run-dir", str(run)]) == 0
    assert f"--resume {run} --epochs 2 --ppo.extra-loss mirror:symmetric" in capsys.readouterr().out
    assert all(row["train/extra_loss"] > 0 for row in _rows(run))
    sys.modules.pop("mirror", None)
    assert evaluate.main([str(run), "--episodes", "2"]) == 0
    assert export.main([str(run)]) == 0
    resume = ["--resume", str(run), "--epochs", "2"]
    assert train.main(resume) == 2
    assert "To allow its import, add --ppo.extra-loss mirror:symmetric" in capsys.readouterr().err
    assert "mirror" not in sys.modules
    assert train.main([*resume, *flags]) == 0
    assert len(_rows(run)) == 2


def test_custom_loss_may_be_a_function_and_returns_a_scalar(user_code):
    config = train._parse(f"pendulum {PPO}".split()).config

    def shrink(networks, params, batch, output, value):
        return jnp.mean(jnp.square(output))

    run = jaxrl.fit(config, extra_loss=shrink, run_dir=user_code / "run", verbose=0).folder
    assert _rows(run)[0]["train/extra_loss"] > 0
    jaxrl.resume(run, extra_loss=shrink, epochs=2, verbose=0)
    with pytest.raises(UserError, match="To allow its import, add --ppo.extra-loss"):
        jaxrl.resume(run, epochs=3, verbose=0)

    def wrong(networks, params, batch, output, value):
        return value

    with pytest.raises(UserError, match=r"wrong' returned an array .*: return a scalar"):
        jaxrl.fit(config, extra_loss=wrong, verbose=0)


def test_population_has_one_sink_which_is_closed(user_code):
    (user_code / "best_log.py").write_text(
        "made, rows, closed = [], [], []\n"
        "def make(config, folder):\n"
        "    made.append(folder)\n"
        "    def log(step, row): rows.append(step)\n"
        "    log.close = lambda: closed.append(len(rows))\n"
        "    return log\n"
    )
    importlib.invalidate_caches()
    run = user_code / "run"
    command = f"cartpole {PPO} --num-seeds 2 --cycles 2 --log.sink best_log:make --run-dir {run}"
    assert train.main(command.split()) == 0
    import best_log

    assert best_log.made == [run] and best_log.closed == [2]
    assert best_log.rows == [row["step"] for row in _rows(run)]


def test_custom_networks_and_sinks_train_resume_load_and_export(user_code, capsys):
    run = user_code / "run"
    module, sink = ["--network.module", "residual:build"], ["--log.sink", "best_log:BestReturns"]
    command = [*f"cartpole {PPO} --eval.num-envs 4".split(), *module, *sink, "--run-dir", str(run)]
    assert train.main([*command, "--dry-run"]) == 0 and not run.exists()
    assert train.main(command) == 0
    assert f"--resume {run} --epochs 2 {' '.join(module + sink)}" in capsys.readouterr().out
    assert not any("train/extra_loss" in row for row in _rows(run))
    for name in ("residual", "best_log"):
        sys.modules.pop(name, None)
    for main in (evaluate.main, export.main):
        assert main([str(run)]) == 2
        assert "add --network.module residual:build" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"has networks of residual:build, not of jaxrl: add --net"):
        jaxrl.load_policy(run)
    resume = ["--resume", str(run), "--epochs", "2"]
    for given, missing in ((module, sink), (sink, module)):
        assert train.main([*resume, *given]) == 2
        added = f"To allow its import, add {' '.join(missing)}"
        assert added in capsys.readouterr().err
    assert "residual" not in sys.modules and "best_log" not in sys.modules
    assert evaluate.main([str(run), "--episodes", "2", *module]) == 0
    assert export.main([str(run), *module]) == 0
    assert "No NumPy version" in capsys.readouterr().out
    assert "best_log" not in sys.modules
    import residual

    policy = jaxrl.load_policy(run, network=residual.build)
    assert int(policy(np.zeros((1, 4), np.float32))[0]) in (0, 1)
    assert "LayerNorm_0" in policy.params.actor["params"]
    assert train.main([*resume, *module, *sink]) == 0
    lines = (run / "best.txt").read_text().splitlines()
    evaluated = {str(row["step"]): row["eval/mean_reward"] for row in _rows(run)}
    assert len(lines) == 2  # its best is its own, and starts again
    for line in lines:
        step, reward = line.split()
        assert float(reward) == pytest.approx(evaluated[step])


def test_fit_accepts_algorithm_functions_and_sinks(user_code):
    import ddpg

    config = train._parse(DDPG.split()).config
    config = replace(config, algo="td3", run_dir=user_code / "run")
    rows = []
    result = jaxrl.fit(
        config, algorithm=ddpg.make, sinks=[lambda step, row: rows.append((step, row))]
    )
    written = json.loads((result.folder / "config.json").read_text())
    assert written["algo"] == "ddpg:make"
    logged = _rows(result.folder)
    assert [step for step, _ in rows] == [row["step"] for row in logged]
    assert rows[-1][1]["train/q_mean"] == pytest.approx(logged[-1]["train/q_mean"])
    shutil.rmtree(result.folder)
    with pytest.raises(UserError, match="algorithm: .* is no named function"):
        jaxrl.fit(config, algorithm=lambda *parts: None)


def test_invalid_algorithms_and_networks_are_rejected(user_code):
    config = presets.get("cartpole")
    wrong = replace(config, algo="sacc")
    assert any(
        "unknown algorithm 'sacc'. Did you mean 'sac'" in p for p in validate.validate(wrong)
    )
    wrong = replace(config, network=replace(config.network, module="residual"))
    assert any("--network.module: 'residual' is no function" in p for p in validate.validate(wrong))
    (user_code / "parts.py").write_text("def make(*parts):\n    return 3\n\nnumber = 3\n")
    importlib.invalidate_caches()
    for name, text in {
        "parts:mak": "module 'parts' has no 'mak'. Did you mean 'make'?",
        "parts:number": "'parts:number' is int, not a class or function",
        "parts:make": "'parts:make' returned int: return an Algorithm",
        "nowhere:make": "cannot import 'nowhere'",
    }.items():
        with pytest.raises(UserError, match=f"--algo: {re.escape(text)}"):
            registry.make(replace(config, algo=name), None, None)
    for flag, path in (("--log.sink", "log.sink"), ("--ppo.extra-loss", "ppo.extra_loss")):
        wrong = presets.get("cartpole", **{path: "residual"})
        assert any(f"{flag}: 'residual' is no function" in p for p in validate.validate(wrong))
    with pytest.raises(UserError, match="--log.sink: module 'parts' has no 'sink'"):
        jaxrl.fit("cartpole", **{"log.sink": "parts:sink"})
    with pytest.raises(UserError, match="--log.sink: 'parts:make' returned int: return a function"):
        sinks.custom(presets.get("cartpole", **{"log.sink": "parts:make"}), user_code, None)
    network = replace(config.network, module="parts:make")
    with pytest.raises(UserError, match="--network.module: 'parts:make' returned int"):
        registry.build_networks(replace(config, network=network), None)
    sys.modules.pop("parts", None)
