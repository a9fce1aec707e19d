"""Errors that are the user's to mend: shown as one readable message, without a traceback."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user asked for cannot be done; the message names the field and the fix."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the closest known name, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{matches[0]}'?" if matches else ""
