"""Folders without read or write permission are named in the error and left unchanged."""

import os
from pathlib import Path

import pytest

from jaxrl import evaluate, export, render, report, train
from jaxrl.config import presets, serialization
from tests.helpers import ordinary_user, tiny


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A read-only folder, an inaccessible one, and runs with such parts."""
    config = serialization.to_json(presets.get("cartpole"))
    for name in ("readonly", "closed", "run", "saved", "unreadable"):
        (tmp_path / name).mkdir()
        if name not in ("readonly", "closed"):
            (tmp_path / name / "config.json").write_text(config)
    (tmp_path / "saved" / "checkpoints").mkdir()
    modes = {
        "readonly": 0o555,
        "closed": 0o000,
        "run": 0o555,
        "saved/checkpoints": 0o555,
        "unreadable/config.json": 0o000,
    }
    for name, mode in modes.items():
        (tmp_path / name).chmod(mode)
    before = _contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    for name in modes:
        (tmp_path / name).chmod(0o755)
    assert _contents(tmp_path) - {tmp_path / "saved" / ".lock"} == before


def _contents(place: Path) -> set[Path]:
    return set(place.rglob("*"))


NEW = " ".join(tiny.FLAGS)
DENIED = {
    f"train {NEW} --run-dir readonly": ["'readonly'", "not writable"],
    f"train {NEW} --run-dir readonly/run": ["cannot create 'readonly/run'", "Permission denied"],
    f"train {NEW} --run-dir closed": ["closed/config.json", "Permission denied"],
    "train --resume closed": ["closed/config.json", "Permission denied"],
    "train --resume run": ["'run'", "not writable"],
    "train --resume saved": ["saved/checkpoints", "not writable", "change its permissions"],
    "train --resume unreadable": ["unreadable/config.json", "Permission denied"],
    "evaluate closed": ["closed/config.json", "Permission denied"],
    "evaluate unreadable": ["unreadable/config.json", "Permission denied"],
    "export closed": ["closed/", "Permission denied"],
    "render closed": ["closed/config.json", "Permission denied"],
    "report closed": ["closed/config.json", "Permission denied"],
}
COMMANDS = {each.__name__.rpartition(".")[2]: each for each in (train, evaluate, export, render)}
COMMANDS["report"] = report


@pytest.mark.parametrize("command", DENIED)
@pytest.mark.usefixtures("folders")
def test_denied_paths_are_named_and_unchanged(command, capsys):
    name, *words = command.split()
    assert ordinary_user.call(lambda: COMMANDS[name].main(words)) == 2
    message = capsys.readouterr().err
    assert all(text in message for text in DENIED[command]) and "Traceback" not in message


def test_capabilities_are_dropped_in_the_thread_only(tmp_path):
    """The tests above would be meaningless if root could still write."""
    tmp_path.chmod(0o555)
    assert not ordinary_user.call(lambda: os.access(tmp_path, os.W_OK))
    with pytest.raises(PermissionError):
        ordinary_user.call((tmp_path / "file").touch)
    tmp_path.chmod(0o755)
    (tmp_path / "file").touch()
