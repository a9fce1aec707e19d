"""The wheel has the package with its data, and works outside of the repository."""

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("jaxrl", "pyproject.toml", "LICENSE", "README.md")
SETUPTOOLS = int(metadata.version("setuptools").partition(".")[0])


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, built from a copy and installed without network; a folder with nothing else."""
    if SETUPTOOLS < 77:
        pytest.skip(f"the wheel needs setuptools>=77, here is {SETUPTOOLS}: run `make train`")
    place = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        _copy(ROOT / name, place / "source" / name)
    offline = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    _pip("wheel", *offline, "--no-build-isolation", "-w", place / "dist", place / "source")
    (wheel,) = (place / "dist").glob("*.whl")
    _pip("install", *offline, "--no-compile", "--target", place / "installed", wheel)
    return place / "installed"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    if source.is_file():
        shutil.copy(source, target)
    else:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def _pip(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)


def _run(installed: Path, folder: Path, *words: str) -> str:
    """Run Python in a folder; dependencies come from the environment of the tests."""
    env = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout


def test_wheel_has_every_file_of_the_package(installed):
    def files(package: Path) -> set[Path]:
        found = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
        return {path for path in found if "__pycache__" not in path.parts}

    made = files(installed / "jaxrl")
    assert made == files(ROOT / "jaxrl")
    assert {"py.typed", "motion/humanoid.xml", "rendering/web/three.min.js"} <= set(map(str, made))
    assert {path.suffix for path in made} >= {".xml", ".html", ".js"}


def test_command_line_of_the_wheel_runs_in_another_folder(installed, tmp_path):
    code = "import jaxrl; print(jaxrl.__file__)"
    assert _run(installed, tmp_path, "-c", code).startswith(str(installed))
    assert "--ppo.clip" in _run(installed, tmp_path, "-m", "jaxrl.train", "--help")
    assert "jaxrl COMMAND" in _run(installed, tmp_path, str(installed / "bin" / "jaxrl"), "--help")


def test_the_command_imports_modules_of_the_current_folder(installed, tmp_path):
    (tmp_path / "mine.py").write_text("from jaxrl.envs.tasks.classic import Pendulum as Task\n")
    words = ("train", "--env", "mine:Task", "--num-envs", "16", "--ppo.num-minibatches", "2")
    out = _run(installed, tmp_path, str(installed / "bin" / "jaxrl"), *words, "--dry-run")
    assert "mine:Task" in out


def test_wheel_has_the_licences(installed):
    (info,) = installed.glob("jaxrl-*.dist-info")
    assert {path.name for path in info.rglob("*LICENSE")} == {"LICENSE", "three.LICENSE"}
