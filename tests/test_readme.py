"""The examples of the README work, and the table of presets is current."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, train
from jaxrl.config import presets
from tests.helpers import tiny

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


# A small network that learns it from 51,200 steps.
LEARNS = shlex.split(
    "--num-envs 64 --iterations 8 --ppo.rollout-length 25 --ppo.num-minibatches 8 "
    "--ppo.update-epochs 4 --ppo.learning-rate 0.003 --ppo.gamma 0.9 --eval.num-envs 32 "
    "--network.hidden 32 32 --network.critic-hidden 32 32 --task.episode-length 50"
)


@pytest.mark.learning
def test_custom_environment_of_the_readme_is_learnt(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(import jax\n.*?)```", README, re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    (tmp_path / "reach.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own = ["--env", "reach:Reach"]
    folder = tmp_path / "run"
    small = [flag for flag in tiny.FLAGS if flag != "cartpole"]
    assert train.main([*own, *small, *LEARNS, "--run-dir", str(folder)]) == 0
    rows = tiny.rows(folder)
    assert rows[-1]["eval/success_rate"] >= 0.9
    assert all("eval/success_rate" in row for row in rows if "eval/mean_reward" in row)
    with np.load(folder / "evaluations.npz") as data:
        assert data["successes"].shape == data["results"].shape
    assert evaluate.main([str(folder), "--episodes", "3", *own]) == 0


def test_readme_is_short_and_names_the_version_to_cite():
    assert len(README.splitlines()) <= 150
    citation = (ROOT / "CITATION.cff").read_text()
    assert "(CITATION.cff)" in README and f"\nversion: {jaxrl.__version__}\n" in citation


def test_preset_table_is_current():
    page = (ROOT / "docs" / "presets.md").read_text()
    assert presets.table() in page and presets.table(presets.playground_names()) in page
