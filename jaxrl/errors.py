"""Errors that are the user's to fix: shown as one readable message, without a traceback."""

import contextlib
import difflib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "out_of_memory", "bad_alloc")

_NARROWEST = 40  # columns


class UserError(Exception):
    """Something the user asked for cannot be done; the message names the field and the fix."""


class TrainingStopped(UserError):
    """A run cannot go on, and nothing more can be saved than has been."""


def exit_status(work: Callable[[], int | None]) -> int:
    """Do the work of a command, and return its exit status; errors that can be fixed are printed.

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
        return 1  # whoever read our output is gone
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
    """Return what to tell the user about an error; None if it is a defect of the program."""
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
    """Tell whether an error means that the machine or a device had too little memory."""
    if isinstance(error, UserError | OSError):  # a full disk is RESOURCE_EXHAUSTED to some, too
        return False
    # XLA raises RESOURCE_EXHAUSTED, or INTERNAL with "Out of memory"; NumPy a MemoryError.
    text = str(error)
    return isinstance(error, MemoryError) or any(
        words in variant for words in _OUT_OF_MEMORY for variant in (text, text.lower())
    )


def _missing_platform() -> str | None:
    """Say that JAX_PLATFORMS names what is not there, if so: JAX then fails in several ways."""
    asked, jax = os.environ.get("JAX_PLATFORMS"), sys.modules.get("jax")
    if not asked or jax is None:
        return None
    try:
        jax.local_devices()
    except Exception as error:
        why = f" ({first_line(error).partition(' (set JAX_PLATFORMS')[0]})" if str(error) else ""
        return (
            f"JAX_PLATFORMS={asked}: JAX finds no such device{why}. Unset it to use what is "
            "there, or install JAX for that device; for an NVIDIA GPU: pip install 'jaxrl[gpu]'."
        )
    return None


def _prepare_output() -> None:
    """Let every terminal show what we write: in ASCII, with LC_ALL=C, or in a few columns."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if shutil.get_terminal_size().columns < _NARROWEST:  # tyro would wrap lines for ever
        os.environ["COLUMNS"] = str(_NARROWEST)


def _discard_output() -> None:
    """Send what is still buffered nowhere: Python would fail to flush it at exit, and say so."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def first_line(error: BaseException) -> str:
    """Return what an error says, short enough to be part of a message."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def check_range(flag: str, value: int, least: int, most: int) -> None:
    """Raise a UserError unless an integer lies in its range."""
    if not least <= value <= most:
        raise UserError(f"{flag} must lie between {least:,} and {most:,}, not {value}.")


def check_episodes(episodes: int, seed: int) -> None:
    """Raise a UserError unless so many episodes can be counted, and drawn by this seed."""
    check_range("--episodes", episodes, 1, 2**31 - 1)
    check_range("--seed", seed, 0, 2**32 - 1)


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return " Did you mean 'x'?" for the closest known name, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{prefix}{matches[0]}'?" if matches else ""
