"""What a command says, and returns, when something goes wrong: a sentence, no traceback."""

import io
import os
import sys

import jax
import numpy as np
import pytest

from jaxrl import errors, train
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
def test_too_little_memory_is_a_sentence(error, capsys):
    assert exit_status(fails_with(error)) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: Out of memory (") and "Lower the number of" in said


def test_numpy_that_cannot_allocate_is_out_of_memory():
    with pytest.raises(MemoryError) as caught:
        np.empty(2**50)
    assert errors.out_of_memory(caught.value)


def test_a_full_disk_is_not_out_of_memory():
    assert not errors.out_of_memory(UserError("RESOURCE_EXHAUSTED: No space left on device"))


def test_defects_are_not_hidden(capsys):
    with pytest.raises(ZeroDivisionError):
        exit_status(fails_with(ZeroDivisionError()))


def test_notes_of_an_error_are_printed(capsys):
    error = UserError("no")
    error.add_note("but saved")
    assert exit_status(fails_with(error)) == 2
    assert capsys.readouterr().err == "error: no\nbut saved\n"


@pytest.mark.parametrize("platform", ["cuda", "cpuu"])
def test_a_platform_that_is_not_there_is_named(platform, tmp_path, monkeypatch, capsys):
    def no_devices():
        raise AssertionError  # what JAX 0.10 does with cuda; others are RuntimeErrors

    monkeypatch.setenv("JAX_PLATFORMS", platform)
    monkeypatch.setattr(jax, "local_devices", no_devices)
    assert train.main(tiny.flags(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: JAX_PLATFORMS={platform}: JAX finds no such device.")
    assert "Unset it" in said and "pip install 'jaxrl[gpu]'" in said
    assert said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_gpu_that_is_not_used_is_mentioned(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(sharding, "_DEV", tmp_path)
    assert sharding.unused_gpu() is None
    (tmp_path / "nvidia0").touch()
    assert "pip install 'jaxrl[gpu]'" in (sharding.unused_gpu() or "")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert sharding.unused_gpu() is None


def test_streams_without_a_character_show_its_code(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert exit_status(lambda: print("1 × cpu, 9 ± 1")) == 0
    assert raw.getvalue() == b"1 \\xd7 cpu, 9 \\xb1 1\n"


def test_help_is_written_in_ascii_and_in_one_column(monkeypatch):
    """tyro wraps lines for ever in fewer columns than its margins need."""
    raw = io.BytesIO()
    monkeypatch.setenv("COLUMNS", "1")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with pytest.raises(SystemExit) as caught:
        train.main(["--help"])
    sys.stdout.flush()
    assert caught.value.code == 0 and b"\\xd7" in raw.getvalue()
    assert os.environ["COLUMNS"] == "40"


def test_a_reader_that_leaves_ends_the_command_quietly(monkeypatch, capfd):
    monkeypatch.setattr(errors, "_discard_output", lambda: None)
    assert exit_status(fails_with(BrokenPipeError())) == 1
    assert capfd.readouterr().err == ""


def test_output_that_nobody_reads_is_discarded(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    assert exit_status(lambda: print("x")) == 1
    sys.stdout.close()  # or Python says at exit that it could not be flushed


def test_a_closed_stdout_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_status(lambda: print("x")) == 0


def test_interrupted_commands_stop_quietly(capsys):
    assert exit_status(fails_with(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "\nStopped.\n"
