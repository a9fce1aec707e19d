"""Extract the commands and Python blocks of the documents, in order."""

import re
from pathlib import Path
from typing import NamedTuple

from jaxrl.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (
        ROOT / "README.md",
        ROOT / "benchmarks" / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("experiments/**/README.md"),
    )
)
# Prefixes of commands. A document with another program needs it here, and a rule in running.py.
PROGRAMS = (
    r"(?:python3? |jaxrl [a-z]|onnx/bin/|make |pip |uv |docker |git |cd |tensorboard |jupyter )"
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class Example(NamedTuple):
    """A command or a Python block, and the file it belongs in if the text before it names one."""

    kind: str  # "command" or "python"
    text: str
    file: str | None = None


def examples(text: str) -> list[Example]:
    """Return the commands and Python blocks of a document."""
    found, end = [], 0
    for block in _FENCED.finditer(text):
        before = text[end : block.start()]
        found += _inline(before)
        language, code = block.groups()
        if language == "python":
            found.append(Example("python", code, _file(before)))
        elif language in ("", "sh", "bash"):
            found += [one for line in code.splitlines() for one in _commands(line)]
        end = block.end()
    return found + _inline(text[end:])


def _file(before: str) -> str | None:
    """Return the file of a block, if the paragraph before it says "in `file.py`"."""
    named = re.findall(r"\b[Ii]n\s+`([\w/]+\.py)`", before.strip().rpartition("\n\n")[2])
    return named[-1] if named else None


def _inline(text: str) -> list[Example]:
    """Return the commands in sentences and tables; a program name alone is not a command."""
    spans = (" ".join(span.split()) for span in _INLINE.findall(text))
    return [one for span in spans if re.match(PROGRAMS, span) for one in _commands(span)]


def _commands(line: str) -> list[Example]:
    """Return the commands of a line, without comments."""
    start = re.search(rf"^{PROGRAMS}|(?<=\s)(?:python -m |tensorboard --)", line)
    if not start or line.lstrip().startswith("#"):
        return []
    command = re.split(r"\s#\s", line[start.start() :])[0]
    if found := re.match(r"jaxrl ([a-z][a-z-]*)", command):
        module, _ = COMMANDS.get(found[1], (f"nothing.{found[1]}", ""))
        command = f"python -m {module}{command[found.end() :]}"
    return [Example("command", part.strip()) for part in command.split("&&")]
