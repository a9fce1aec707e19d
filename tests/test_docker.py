"""What the Dockerfile copies exists, and its commands are those of the documents."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
PAGE = (ROOT / "docs" / "install.md").read_text()


def _instructions(name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in LINES if line.startswith(f"{name} ")]


def test_copied_files_exist_and_are_sent_to_docker():
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = [source for line in _instructions("COPY") for source in line.split()[:-1]]
    assert {"jaxrl", "pyproject.toml", "requirements.lock"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert {f"!{source}" for source in copied} == {line for line in ignored if line[0] == "!"}


def test_image_has_all_that_the_package_needs_to_be_built():
    """`pyproject.toml` names files that must be there."""
    copied = [source for line in _instructions("COPY") for source in line.split()[:-1]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [*project["license-files"], *filter(None, [project.get("readme")])]
    assert all(file in copied or file.split("/")[0] in copied for file in files)


def test_versions_are_the_locked_ones():
    (install,) = [line for line in _instructions("RUN") if "pip install" in line]
    assert "-c /src/requirements.lock" in install


def test_command_is_that_of_the_readme():
    (command,) = _instructions("CMD")
    assert shlex.join(json.loads(command)) in (ROOT / "README.md").read_text()


def test_user_is_not_root():
    (user,) = _instructions("USER")
    created = [line for line in _instructions("RUN") if re.search(rf"useradd .* {user}\b", line)]
    assert user != "root" and created
    after = [line.split()[0] for line in LINES[LINES.index(f"USER {user}") :] if line]
    assert not {"RUN", "COPY"} & set(after)


def test_documented_builds_and_runs_are_possible():
    builds = re.findall(r"^docker build .*", PAGE, re.M)
    arguments = {name for line in builds for name in re.findall(r"--build-arg (\w+)=", line)}
    assert arguments == {line.partition("=")[0] for line in _instructions("ARG")}
    extras = set(re.findall(r"EXTRAS=(\w+)", PAGE)) | set(re.findall(r"EXTRAS=(\w+)", LINES[0]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras == {"gpu", "gpu12"} and extras <= set(project["optional-dependencies"])
    tags = set(re.findall(r"docker build -t (\S+)", PAGE))
    assert set(re.findall(r"^docker run .* (jaxrl\S*) jaxrl train", PAGE, re.M)) == tags
    assert f"{_instructions('WORKDIR')[0]}/runs" in PAGE


def test_lock_can_constrain_versions():
    """Of constraints pip takes no extras and no paths."""
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line and not line.startswith("#"):
            wanted = Requirement(line)
            assert not wanted.extras and not wanted.url and "==" in str(wanted.specifier), line


@pytest.mark.parametrize("extras, installed", [("", "/src"), ("gpu", "/src[gpu]")])
def test_commands_are_valid_and_install_the_extras(extras, installed):
    commands = [re.sub(r"^(--\S+ +)+", "", line) for line in _instructions("RUN")]
    (install,) = [command for command in commands if "pip install" in command]
    for command in commands:
        subprocess.run(["sh", "-nc", command], check=True)
    # In place of both programs, their words are printed.
    said = subprocess.run(
        ["sh", "-ec", f'pip() {{ echo "$@"; }}; rm() {{ :; }}; {install}'],
        env={"EXTRAS": extras},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split()[-1] == installed
