"""Errors of commands: exit status and message, without a traceback."""

import io
import os
import sys

import jax
import numpy as np
import pytest

from jaxrl import errors, evaluate, train
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import sharding
from tests.helpers import tiny


def fails_with(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
        RuntimeError("INTERNAL: Error preparing computation: Out of memory allocating 8 bytes."),
        RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        RuntimeError("std::bad_alloc"),
    ],
    ids=repr,
)
def test_out_of_memory_is_one_message(error, capsys):
    assert exit_status(fails_with(error)) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: Out of memory (") and "Lower the number of" in stderr


def test_numpy_allocation_failure_is_out_of_memory():
    with pytest.raises(MemoryError) as caught:
        np.empty(2**50)
    assert errors.out_of_memory(caught.value)


def test_a_full_disk_is_not_out_of_memory():
    assert not errors.out_of_memory(UserError("RESOURCE_EXHAUSTED: No space left on device"))


def test_unexpected_exceptions_propagate(capsys):
    with pytest.raises(ZeroDivisionError):
        exit_status(fails_with(ZeroDivisionError()))


def test_notes_of_an_error_are_printed(capsys):
    error = UserError("no")
    error.add_note("but saved")
    assert exit_status(fails_with(error)) == 2
    assert capsys.readouterr().err == "error: no\nbut saved\n"


@pytest.mark.parametrize("platform", ["cuda", "cpuu"])
def test_missing_platform_is_named(platform, tmp_path, monkeypatch, capsys):
    def no_devices():
        raise AssertionError  # as JAX 0.10 does for cuda; other platforms raise RuntimeError

    monkeypatch.setenv("JAX_PLATFORMS", platform)
    monkeypatch.setattr(jax, "local_devices", no_devices)
    assert train.main(tiny.flags(tmp_path / "run")) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"error: JAX_PLATFORMS={platform}: JAX finds no such device.")
    assert "Unset it" in stderr and "pip install -e '.[gpu]'" in stderr
    assert stderr.count("\n") == 1 and not list(tmp_path.iterdir())


def test_unused_gpu_is_reported(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(sharding, "_DEV", tmp_path)
    assert sharding.unused_gpu() is None
    (tmp_path / "nvidia0").touch()
    assert "pip install -e '.[gpu]'" in (sharding.unused_gpu() or "")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert sharding.unused_gpu() is None


def test_unencodable_characters_are_escaped(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert exit_status(lambda: print("1 × cpu, 9 ± 1")) == 0
    assert raw.getvalue() == b"1 \\xd7 cpu, 9 \\xb1 1\n"


def test_help_is_printed_to_a_narrow_ascii_terminal(monkeypatch):
    """tyro, which prints the help of other commands, loops forever in too few columns."""
    raw = io.BytesIO()
    monkeypatch.setenv("COLUMNS", "1")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert train.main(["--help-all"]) == 0
    with pytest.raises(SystemExit) as caught:
        evaluate.main(["--help"])
    sys.stdout.flush()
    assert caught.value.code == 0 and b"\\xd7" in raw.getvalue()
    assert os.environ["COLUMNS"] == "40"


def test_broken_pipe_exits_quietly(monkeypatch, capfd):
    monkeypatch.setattr(errors, "_discard_output", lambda: None)
    assert exit_status(fails_with(BrokenPipeError())) == 1
    assert capfd.readouterr().err == ""


def test_output_to_a_broken_pipe_is_discarded(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    assert exit_status(lambda: print("x")) == 1
    sys.stdout.close()  # otherwise Python reports a failed flush at exit


def test_closed_stdout_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_status(lambda: print("x")) == 0


def test_interrupted_commands_stop_quietly(capsys):
    assert exit_status(fails_with(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "\nStopped.\n"
