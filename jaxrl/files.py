"""Files that appear whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when all was written; else `path` stays."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with replacing(path) as file:
        file.write(text.encode())
