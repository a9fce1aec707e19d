"""Every preset trains; all but the quick ones run only in a manual sweep.

python -m pytest -m sweep tests/config/test_presets.py
"""

import math
from dataclasses import replace

import numpy as np
import pytest

import jaxrl
from jaxrl.config import presets
from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode
from jaxrl.errors import UserError
from tests.docs.shrinking import small
from tests.helpers import tiny

QUICK = ("fast",)


@pytest.fixture
def recording(tmp_path):
    """Recorded episodes of eight steps, for the offline preset."""
    rng, path = np.random.default_rng(0), tmp_path / "data.hdf5"
    episodes = []
    for _ in range(20):
        state = rng.normal(size=(9, 2)).astype(np.float32)
        action = rng.uniform(-1, 1, (8, 1)).astype(np.float32)
        episodes.append(Episode({"state": state[:-1]}, {"state": state[1:]}, action, state[:-1, 0]))
    hdf5.write(path, episodes, {}, {})
    return path


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.sweep) for n in presets.PRESETS],
)
def test_a_preset_trains(name, recording, tmp_path):
    """Run at least two iterations with updates, with the preset's own networks and rewards."""
    config = small(replace(presets.get(name), epochs=1, run_dir=tmp_path / "run"))
    if config.offline:
        config = replace(config, data=replace(config.data, path=recording))
    jaxrl.fit(config)
    (row,) = tiny.rows(tmp_path / "run")
    assert row["time/iterations"] == config.iterations >= 2
    assert row["train/n_updates"] >= 2 and row["train/n_skipped"] == 0
    assert row.get("rollout/diverged", 0) == 0
    losses = [v for k, v in row.items() if k.startswith("train/") and "loss" in k]
    assert losses and all(map(math.isfinite, losses))
    assert (tmp_path / "run" / "checkpoints").is_dir()


def test_changes_of_the_wrong_type_are_refused():
    with pytest.raises(UserError, match="--num-envs must be an integer, not '64'"):
        presets.get("cartpole", num_envs="64")
