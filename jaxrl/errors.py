"""Errors that are the user's to mend: shown as one readable message, without a traceback."""

import difflib
import sys
from collections.abc import Callable, Iterable


class UserError(Exception):
    """Something the user asked for cannot be done; the message names the field and the fix."""


def exit_status(work: Callable[[], None]) -> int:
    """Do the work of a command; say in one line what the user can mend."""
    try:
        work()
    except BrokenPipeError:
        return 1  # whoever read our output is gone
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def first_line(error: BaseException) -> str:
    """Return what an error says, short enough to be part of a message."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return " Did you mean 'x'?" for the closest known name, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{prefix}{matches[0]}'?" if matches else ""
