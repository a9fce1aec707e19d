"""Values given by name in one word, as wind=0.3."""

import ast
from collections.abc import Sequence
from typing import Any

from jaxrl.errors import UserError


def parse(flag: str, words: Sequence[str], *, dotted: bool = False) -> dict[str, Any]:
    """Return what words such as wind=0.3 assign: Python's literals, and strings.

    Args:
      flag: the flag that has these words, for messages.
      words: the assignments.
      dotted: whether names may be paths, as noise.level=0.3.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        parts = name.split(".") if dotted else [name]
        if not equals or not all(part.isidentifier() for part in parts):
            example = "noise.level=0.3" if dotted else "wind=0.3"
            raise UserError(f"{flag}: write {example}, not '{word}'.")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found
