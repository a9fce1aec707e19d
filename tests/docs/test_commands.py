"""Commands and Python blocks of the documents work."""

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

pytestmark = pytest.mark.usefixtures("no_plots")

# Motion files that the documents assume; no test reads them.
INPUT_FILES = ("humanoid3d_walk.txt", "motions", "planned")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run with an exported policy: RUN or runs/ant-s0-... in the documents."""
    folder = tmp_path_factory.mktemp("documents") / "run"
    config = replace(presets.get("ant"), epochs=1, run_dir=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "compile_programs", running.compile_once)
        fit.fit(shrunk(config))
    assert export.main([str(folder)]) == 0
    return folder


@pytest.fixture
def commands(trained, tmp_path, monkeypatch):
    """A `Commands` in a directory with the files that the documents assume."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shutil.copytree(trained / "exported", tmp_path, dirs_exist_ok=True)
    for name in INPUT_FILES:
        Path(name).touch()
    before = set(sys.modules)
    yield running.Commands(trained, monkeypatch)
    for name in (
        set(sys.modules) - before
    ):  # modules of this directory: other tests may use the names
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.mark.parametrize("document", reading.DOCUMENTS)
def test_documented_commands_and_code_run(document, commands):
    examples = reading.examples((reading.ROOT / document).read_text())
    for number, one in enumerate(examples):
        later = "\n".join(each.text for each in examples[number + 1 :])
        try:
            if one.kind == "command":
                commands.run(one.text, later)
            else:
                _execute(commands.substitute_runs(one.text), one.file)
        except Exception as error:
            error.add_note(f"{document}: {one.text}")
            raise


def _execute(code: str, file: str | None) -> None:
    """Run Python as a script, or write it to the file that the document names."""
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(code)
        importlib.invalidate_caches()
        return
    names = {"observation": np.zeros(3, np.float32), "observations": np.zeros((2, 3), np.float32)}
    exec(compile(code, "document", "exec"), names | {"__name__": "__main__"})


def test_commands_are_found_in_text_tables_and_blocks():
    text = """
Say `make train`, or `python -m benchmarks.throughput
ant`, in a table | `pip install -e '.[gym]'` |, not `python`.

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
    found = [(one.kind, one.text.strip(), one.file) for one in reading.examples(text)]
    assert found == [
        ("command", "make train", None),
        ("command", "python -m benchmarks.throughput ant", None),
        ("command", "pip install -e '.[gym]'", None),
        ("command", "python -m jaxrl.train ant", None),
        ("command", "python3 -m venv onnx", None),
        ("command", "onnx/bin/pip install jax2onnx", None),
        ("command", "tensorboard --logdir runs/x", None),
        ("python", "import jax", "reach.py"),
    ]


def test_files_in_documents_are_new_and_used():
    """A block taken for a file by mistake would never run."""
    for document in reading.DOCUMENTS:
        found = reading.examples((reading.ROOT / document).read_text())
        commands = " ".join(one.text for one in found if one.kind == "command")
        for file in filter(None, (one.file for one in found)):
            assert not (reading.ROOT / file).exists(), f"{document} writes to {file}"
            assert re.search(rf"\b{Path(file).stem}\b", commands), f"{document}: {file}"


def test_every_command_has_a_rule():
    """Also checked for commands after one that fails."""
    missing = [
        f"{document}: {one.text}"
        for document in reading.DOCUMENTS
        for one in reading.examples((reading.ROOT / document).read_text())
        if one.kind == "command" and not running.rule_for(one.text)
    ]
    assert not missing


class _ContainsAll(dict):
    """Contains every key: every program ran already."""

    def __contains__(self, _):
        return True


@pytest.mark.parametrize(
    "command",
    [
        "make nothing",
        "pip install -e '.[nothing]'",
        "python -m jaxrl.train ant --ppo.clp 0.1",
        "python -m jaxrl.train ant --num-envs 100 --ppo.num-minibatches 8",
        "python -m jaxrl.train ant --num-seeds 0",
        "python -m jaxrl.train ant --num-seeds 8 --vary ppo.gama=0.9,0.8",
        "python -m jaxrl.train cartpole --num-seeds 3 --vary nosuch=2,3",
        "python -m jaxrl.evaluate RUN --episode 3",
        "python -m jaxrl.nothing RUN",
        "python -m jaxrl.zoo watch atn",
        "python -m jaxrl.evaluate zoo:atn",
        "python -m benchmarks.throughput antt",
        "python -m benchmarks.minibatches arena --counts x",
        "python -m benchmarks.throughput ant --ppo.clip 0.3",
        "python -m benchmarks.seeds sac-hopper --ppo.clp 0.3",
        "python -m jaxrl.studies.run cartpole_basic",
        "python -m jaxrl.studies.search cartpole_basic",
        "onnx/bin/python tools/nothing.py",
        "python -m nothing",
    ],
)
def test_invalid_commands_fail(command, commands, monkeypatch):
    monkeypatch.setattr(running.Commands, "known", _ContainsAll())  # no program is run
    with pytest.raises((AssertionError, ImportError, SystemExit, UserError)):
        commands.run(command)
