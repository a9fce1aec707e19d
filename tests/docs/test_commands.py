"""Every command and every Python block of the documents is tried, most of them by running them."""

import importlib
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl import export
from jaxrl.config import presets
from jaxrl.errors import UserError
from jaxrl.programs import device
from jaxrl.training import fit
from tests.docs import reading, running
from tests.docs.shrinking import shrunk

# Clips that the reader is to have, or to have planned; nobody reads them.
GIVEN = ("humanoid3d_walk.txt", "motions", "planned")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run, with its policy exported: what documents call RUN, or runs/ant-s0-..."""
    folder = tmp_path_factory.mktemp("documents") / "run"
    config = replace(presets.get("ant"), epochs=1, run_dir=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "compile_programs", running.compile_once)
        fit.fit(shrunk(config))
    assert export.main([str(folder)]) == 0
    return folder


@pytest.fixture
def commands(trained, tmp_path, monkeypatch):
    """What tries commands, in a directory with the files that a reader is to have."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shutil.copytree(trained / "exported", tmp_path, dirs_exist_ok=True)
    for name in GIVEN:
        Path(name).touch()
    before = set(sys.modules)
    yield running.Commands(trained, monkeypatch)
    for name in set(sys.modules) - before:  # modules of this directory, by names others may use
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.mark.parametrize("document", reading.DOCUMENTS)
def test_everything_shown_runs(document, commands):
    for one in reading.shown((reading.ROOT / document).read_text()):
        try:
            if one.kind == "command":
                commands.attempt(one.text)
            else:
                _execute(commands.placed(one.text), one.file)
        except Exception as error:
            error.add_note(f"{document}: {one.text}")
            raise


def _execute(code: str, file: str | None) -> None:
    """Run Python as a script would, or put it where the document says."""
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(code)
        importlib.invalidate_caches()
        return
    names = {"observation": np.zeros(3, np.float32), "observations": np.zeros((2, 3), np.float32)}
    exec(compile(code, "document", "exec"), names | {"__name__": "__main__"})


def test_commands_are_found_wherever_they_stand():
    text = """
Say `make train`, or `python -m benchmarks.throughput
ant`, in a table | `pip install 'jaxrl[gym]'` |, not `python`.

```
python -m jaxrl.train ant   # a preset
python3 -m venv onnx && onnx/bin/pip install jax2onnx
watch            tensorboard --logdir runs/x
runs/<preset>/   no command
```

In `reach.py`:

```python
import jax
```
"""
    found = [(one.kind, one.text.strip(), one.file) for one in reading.shown(text)]
    assert found == [
        ("command", "make train", None),
        ("command", "python -m benchmarks.throughput ant", None),
        ("command", "pip install 'jaxrl[gym]'", None),
        ("command", "python -m jaxrl.train ant", None),
        ("command", "python3 -m venv onnx", None),
        ("command", "onnx/bin/pip install jax2onnx", None),
        ("command", "tensorboard --logdir runs/x", None),
        ("python", "import jax", "reach.py"),
    ]


def test_files_that_are_shown_are_new_and_used():
    """A block that is taken for a file by mistake would never run."""
    for document in reading.DOCUMENTS:
        found = reading.shown((reading.ROOT / document).read_text())
        commands = " ".join(one.text for one in found if one.kind == "command")
        for file in filter(None, (one.file for one in found)):
            assert not (reading.ROOT / file).exists(), f"{document} writes to {file}"
            assert re.search(rf"\b{Path(file).stem}\b", commands), f"{document}: {file}"


def test_every_command_has_a_rule():
    """Also where a document fails before it comes to them."""
    missing = [
        f"{document}: {one.text}"
        for document in reading.DOCUMENTS
        for one in reading.shown((reading.ROOT / document).read_text())
        if one.kind == "command" and not running.rule_for(one.text)
    ]
    assert not missing


class _Everything(dict):
    """Whatever is asked for was run before."""

    def __contains__(self, _):
        return True


@pytest.mark.parametrize(
    "wrong",
    [
        "make nothing",
        "pip install 'jaxrl[nothing]'",
        "python -m jaxrl.train ant --ppo.clp 0.1",
        "python -m jaxrl.train ant --num-envs 100 --ppo.num-minibatches 8",
        "python -m jaxrl.train ant --num-seeds 0",
        "python -m jaxrl.train ant --num-seeds 8 --vary ppo.gama=0.9,0.8",
        "python -m jaxrl.train cartpole --num-seeds 3 --vary nosuch=2,3",
        "python -m jaxrl.evaluate RUN --episode 3",
        "python -m jaxrl.nothing RUN",
        "python -m benchmarks.throughput antt",
        "python -m benchmarks.minibatches arena --counts x",
        "python -m benchmarks.throughput ant --ppo.clip 0.3",
        "python -m benchmarks.seeds sac-hopper --ppo.clp 0.3",
        "python -m experiments.run cartpole_basic",
        "python -m experiments.search cartpole_basic",
        "onnx/bin/python tools/nothing.py",
        "python -m nothing",
    ],
)
def test_what_is_wrong_is_noticed(wrong, commands, monkeypatch):
    monkeypatch.setattr(running.Commands, "known", _Everything())  # earlier commands hide nothing
    with pytest.raises((AssertionError, ImportError, SystemExit, UserError)):
        commands.attempt(wrong)
