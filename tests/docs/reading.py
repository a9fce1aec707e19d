"""What the documents show: commands, and blocks of Python, in the order in which they stand."""

import re
from pathlib import Path
from typing import NamedTuple

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
# What a command begins with. Whoever shows another program adds it here, and a rule for it.
PROGRAMS = r"(?:python3? |onnx/bin/|make |pip |git |cd |tensorboard |jupyter )"
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class Shown(NamedTuple):
    """A command, or Python; the file it is to be put into, if the text before it names one."""

    kind: str  # "command" or "python"
    text: str
    file: str | None = None


def shown(text: str) -> list[Shown]:
    """Return everything in a document that can be run."""
    found, end = [], 0
    for block in _FENCED.finditer(text):
        before = text[end : block.start()]
        found += _inline(before)
        language, inside = block.groups()
        if language == "python":
            found.append(Shown("python", inside, _file(before)))
        elif language in ("", "sh", "bash"):
            found += [one for line in inside.splitlines() for one in _commands(line)]
        end = block.end()
    return found + _inline(text[end:])


def _file(before: str) -> str | None:
    """Return the file that a block is in, if the paragraph before it says "in `file.py`"."""
    named = re.findall(r"\b[Ii]n\s+`([\w/]+\.py)`", before.strip().rpartition("\n\n")[2])
    return named[-1] if named else None


def _inline(text: str) -> list[Shown]:
    """Return the commands inside of sentences and tables; names of programs alone are none."""
    spans = (" ".join(span.split()) for span in _INLINE.findall(text))
    return [one for span in spans if re.match(PROGRAMS, span) for one in _commands(span)]


def _commands(line: str) -> list[Shown]:
    """Return the commands of a line, without what is said beside them."""
    start = re.search(rf"^{PROGRAMS}|(?<=\s)(?:python -m |tensorboard --)", line)
    if not start or line.lstrip().startswith("#"):
        return []
    said = re.split(r"\s#\s", line[start.start() :])[0]
    return [Shown("command", part.strip()) for part in said.split("&&")]
