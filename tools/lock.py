"""Print one lock file, with markers, that holds for each of the given Python interpreters.

Usage: python tools/lock.py python3.11 python3.12 python3.13 > requirements.lock

Each interpreter resolves the core and the dev extra in a fresh environment; what they froze is
then merged. The lock has names and versions only, so it installs from any index.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Core and dev packages for Linux x86-64. Written by `make lock`; do not edit."
# A local pip configuration must not decide what everyone else installs.
ENV = {k: v for k, v in os.environ.items() if k not in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL")}
ENV["PIP_CONFIG_FILE"] = os.devnull
# A dependency of Playground (150 MB) that neither our tests nor its physics in JAX import. The lock
# names all other packages, and is installed without looking for more.
LEFT_OUT = ("warp-lang",)


def freeze(interpreter: str) -> tuple[str, list[str]]:
    """Resolve with one interpreter: its "major.minor" version and its `name==version` lines."""

    def run(*command: str) -> str:
        done = subprocess.run(command, env=ENV, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    with tempfile.TemporaryDirectory() as venv:
        python = f"{venv}/bin/python"
        run(interpreter, "-m", "venv", venv)
        run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip")
        run(python, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[dev]")
        version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        # --all: Python 3.11 leaves setuptools out, which dev asks for.
        lines = run(
            python, "-m", "pip", "freeze", "--all", "--exclude", "jaxrl", "--exclude", "pip"
        ).splitlines()
    return version, [line for line in lines if "==" in line and _name(line) not in LEFT_OUT]


def _name(line: str) -> str:
    return line.partition("==")[0].lower().replace("_", "-")


def merge(frozen: dict[str, list[str]]) -> list[str]:
    """Merge the frozen lines, marking each that does not hold for every Python version."""
    versions = sorted(frozen, key=lambda version: [int(part) for part in version.split(".")])
    holds = defaultdict(list)
    for version in versions:
        for line in frozen[version]:
            holds[line].append(version)

    def marker(pythons: list[str]) -> str:
        # Consecutive versions are one range, open at the oldest and the newest.
        first, last = versions.index(pythons[0]), versions.index(pythons[-1])
        if versions[first : last + 1] != pythons:
            return " or ".join(f'python_version == "{version}"' for version in pythons)
        bounds = [f'python_version >= "{versions[first]}"'] if first > 0 else []
        if last + 1 < len(versions):
            bounds.append(f'python_version < "{versions[last + 1]}"')
        return " and ".join(bounds)

    marked = ((line, marker(pythons)) for line, pythons in holds.items())
    return sorted((f"{line} ; {mark}" if mark else line for line, mark in marked), key=str.lower)


if __name__ == "__main__":
    print(HEADER, *merge(dict(map(freeze, sys.argv[1:]))), sep="\n")
