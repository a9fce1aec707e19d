"""The examples of the README work, and the table of presets is current."""

import re
import sys
from pathlib import Path

import numpy as np

from jaxrl import evaluate, train
from jaxrl.config import presets
from tests.helpers import tiny

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_custom_environment_of_the_readme_trains(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(import jax\n.*?)```", README, re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    (tmp_path / "reach.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own = ["--env", "reach:Reach"]
    folder = tmp_path / "run"
    small = [flag for flag in tiny.FLAGS if flag != "cartpole"]
    assert train.main([*own, *small, "--run-dir", str(folder)]) == 0
    rows = tiny.rows(folder)
    assert all("eval/success_rate" in row for row in rows if "eval/mean_reward" in row)
    with np.load(folder / "evaluations.npz") as data:
        assert data["successes"].shape == data["results"].shape
    assert evaluate.main([str(folder), "--episodes", "3", *own]) == 0


def test_preset_table_is_current():
    page = (ROOT / "docs" / "presets.md").read_text()
    assert presets.table() in page and presets.table(presets.playground_names()) in page
