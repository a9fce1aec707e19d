"""Print the path of an interpreter of one Python version, or fail.

Usage: python tools/find_python.py 3.12

Looks on the PATH, then among the versions that pyenv and uv have installed.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def candidates(version: str) -> Iterator[str]:
    """Yield paths that may be an interpreter of this version, the most likely first."""
    if found := shutil.which(f"python{version}"):
        yield found
    for root in (".pyenv/versions", ".local/share/uv/python"):
        folders = sorted((Path.home() / root).glob(f"*{version}.*"), reverse=True)
        yield from (str(folder / "bin" / "python3") for folder in folders)


def is_version(interpreter: str, version: str) -> bool:
    """Run an interpreter to see whether it works and has this version."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True)
    except OSError:
        return False
    return done.stdout.strip() == version


def main() -> None:
    """Print the first interpreter that works."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    version = sys.argv[1]
    found = next((path for path in candidates(version) if is_version(path, version)), None)
    if found is None:
        sys.exit(f"Python {version} is not installed; install it, or leave it out: PYTHONS=...")
    print(found)


if __name__ == "__main__":
    main()
