"""Missing optional packages are named, with the command that installs them.

FFmpeg is tested in tests/rendering/test_episodes.py, optuna in tests/studies/test_search.py.
"""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from jaxrl import train
from tests.helpers import tiny

ROOT = Path(__file__).parent.parent
MISSING = {
    ("gymnasium", "gym"): "gym-cartpole",
    ("wandb", "wandb"): f"{' '.join(tiny.FLAGS)} --log.wandb",
    ("h5py", "offline"): "rrd-offline --data.path data.hdf5",
}


@pytest.mark.parametrize("package, extra", MISSING)
def test_missing_package_is_named_before_a_folder_is_made(
    package, extra, tmp_path, monkeypatch, capsys
):
    (tmp_path / "data.hdf5").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    assert train.main(MISSING[package, extra].split()) == 2
    message = capsys.readouterr().err
    assert f"pip install -e '.[{extra}]'" in message and package in message.lower()
    assert not (tmp_path / "runs").exists()


def test_every_hint_names_an_existing_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = set(extras["optional-dependencies"])
    files = [path for part in ("jaxrl", "experiments") for path in (ROOT / part).rglob("*.py")]
    hint = re.compile(r"""install\(["'](\w+)["']\)""")
    named = {name for path in files for name in hint.findall(path.read_text())}
    assert {"gym", "wandb", "offline", "video", "search"} <= named <= known
