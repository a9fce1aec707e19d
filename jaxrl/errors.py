"""Errors that a user can fix: printed as one message, without a traceback."""

import contextlib
import difflib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "out_of_memory", "bad_alloc")

_MIN_COLUMNS = 40


class UserError(Exception):
    """A request of the user cannot be met; the message names the field and the fix."""


class TrainingStopped(UserError):
    """A run cannot go on, and nothing more can be saved than has been."""


def exit_status(work: Callable[[], int | None]) -> int:
    """Run a command and return its exit status; errors that a user can fix are printed.

    Args:
      work: parses the arguments and does everything else; returns an exit status, or None for 0.
    """
    _prepare_output()
    try:
        status = work()
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
        return status or 0
    except BrokenPipeError:
        _discard_output()
        return 1  # the reader of our output is gone
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except Exception as error:
        text = message(error)
        if text is None:
            raise
        # JAX adds notes about its tracebacks to other errors.
        ours = isinstance(error, UserError | OSError)
        notes = getattr(error, "__notes__", []) if ours else []
        print("\n".join([f"error: {text}", *notes]), file=sys.stderr)
        return 2


def message(error: Exception) -> str | None:
    """Return the message of an error; None if it is a defect of the program."""
    if isinstance(error, UserError):
        return str(error)
    if out_of_memory(error):
        return (
            f"Out of memory ({first_line(error)}). Lower the number of environments or episodes, "
            "or close other programs."
        )
    if isinstance(error, OSError):
        if error.strerror is None:
            return str(error)
        return f"{error.strerror}: {error.filename or 'writing'}"
    return _missing_platform()


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the machine or a device ran out of memory."""
    if isinstance(error, UserError | OSError):  # a full disk can be RESOURCE_EXHAUSTED, too
        return False
    # XLA raises RESOURCE_EXHAUSTED, or INTERNAL with "Out of memory"; NumPy a MemoryError.
    text = str(error)
    return isinstance(error, MemoryError) or any(
        words in variant for words in _OUT_OF_MEMORY for variant in (text, text.lower())
    )


def _missing_platform() -> str | None:
    """Return a message if JAX_PLATFORMS names a missing device: JAX then fails in many ways."""
    platforms, jax = os.environ.get("JAX_PLATFORMS"), sys.modules.get("jax")
    if not platforms or jax is None:
        return None
    try:
        jax.local_devices()
    except Exception as error:
        reason = f" ({first_line(error).partition(' (set JAX_PLATFORMS')[0]})" if str(error) else ""
        return (
            f"JAX_PLATFORMS={platforms}: JAX finds no such device{reason}. Unset it, or "
            f"install JAX for that device; for an NVIDIA GPU: {install('gpu')}."
        )
    return None


def install(extra: str) -> str:
    """Return the command that installs an extra: the package is in no index."""
    return f"pip install -e '.[{extra}]' (in a clone of jaxrl)"


def _prepare_output() -> None:
    """Make output printable on every terminal: in ASCII, with LC_ALL=C, or in few columns."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if shutil.get_terminal_size().columns < _MIN_COLUMNS:  # tyro would wrap lines for ever
        os.environ["COLUMNS"] = str(_MIN_COLUMNS)


def _discard_output() -> None:
    """Discard buffered output: Python would fail to flush it at exit, with a message."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def first_line(error: BaseException) -> str:
    """Return the first line of an error, short enough to be part of a message."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def check_range(flag: str, value: int, least: int, most: int) -> None:
    """Raise a UserError unless an integer lies in its range."""
    if not least <= value <= most:
        raise UserError(f"{flag} must lie between {least:,} and {most:,}, not {value}.")


def check_episodes(episodes: int, seed: int) -> None:
    """Raise a UserError unless --episodes and --seed are in range."""
    check_range("--episodes", episodes, 1, 2**31 - 1)
    check_range("--seed", seed, 0, 2**32 - 1)


def nearest(name: str, names: Iterable[str], prefix: str = "", *, cutoff: float = 0.5) -> str:
    """Return " Did you mean 'x'?" for the closest name, or an empty string."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f" Did you mean '{prefix}{matches[0]}'?" if matches else ""
