"""XLA compiler options, by type of device."""

import jax
import pytest

from jaxrl.utils import xla_options
from jaxrl.utils.xla_options import compile_for_devices, options

OPTION = "xla_gpu_command_buffer_scheduling_mode"
AUTOTUNER = "xla_gpu_experimental_enable_fusion_autotuner"
UNROLL = "xla_gpu_command_buffer_unroll_loops"
COMMAND_BUFFER = "xla_gpu_enable_command_buffer"
CUDA = "PJRT C API\ncuda 13000"


class Lowered:
    """Fake program that records its compiler options and refuses those in `unknown` as XLA does."""

    def __init__(self, unknown=()):
        self.unknown, self.calls = unknown, []

    def compile(self, compiler_options=None):
        self.calls.append(compiler_options or {})
        for name in set(self.unknown) & set(compiler_options or {}):
            raise jax.errors.JaxRuntimeError(f"INVALID_ARGUMENT: No such compile option: '{name}'")
        return len(self.calls)


@pytest.mark.parametrize(
    ("version", "flags", "options"),
    [
        (CUDA, "", {OPTION: "CONCURRENT", AUTOTUNER: False}),
        (CUDA, f"--{OPTION}=SERIALIZE", {AUTOTUNER: False}),
        ("cpu", "", {}),
        ("rocm 60000", "", {}),
    ],
)
def test_options_depend_on_device_and_user_flags_win(monkeypatch, version, flags, options):
    monkeypatch.setenv("XLA_FLAGS", flags)
    lowered = Lowered()
    compile_for_devices(lowered, version)
    assert lowered.calls == [options]


def test_cpu_disables_eigen_threads_for_loops(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert options("cpu", loops=True) == {"xla_cpu_multi_thread_eigen": False}
    assert options("cpu") == {}
    assert options(CUDA, loops=True) == options(CUDA)


def test_only_cuda_unrolls_loops(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    more = options(CUDA, unrolled=True)
    assert set(more) - set(options(CUDA)) == {UNROLL, COMMAND_BUFFER}
    assert "WHILE" in more[COMMAND_BUFFER].split(",")
    assert options("cpu", unrolled=True) == {}


@pytest.mark.parametrize(
    "unknown, dropped", [(OPTION, {OPTION}), (UNROLL, {UNROLL, COMMAND_BUFFER})]
)
def test_unknown_options_are_dropped(monkeypatch, unknown, dropped):
    monkeypatch.setenv("XLA_FLAGS", "")
    lowered = Lowered(unknown=[unknown])
    assert compile_for_devices(lowered, CUDA, unrolled=True) == 2
    first, second = lowered.calls
    assert first == options(CUDA, unrolled=True)
    assert set(first) - set(second) == dropped


def test_other_errors_are_not_hidden(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")

    class FailingLowered:
        def compile(self, compiler_options=None):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        compile_for_devices(FailingLowered(), CUDA)


@pytest.mark.parametrize("failures, succeeds", [(1, True), (3, True), (4, False)])
def test_compiler_busy_is_retried(monkeypatch, failures, succeeds):
    monkeypatch.setenv("XLA_FLAGS", "")
    pauses, message = [], "INTERNAL: Failed to launch ptxas"
    monkeypatch.setattr(xla_options.time, "sleep", pauses.append)

    class BusyLowered(Lowered):
        def compile(self, compiler_options=None):
            if len(self.calls) < failures:
                self.calls.append(compiler_options)
                raise jax.errors.JaxRuntimeError(message)
            return "program"

    lowered = BusyLowered()
    if succeeds:
        assert compile_for_devices(lowered, CUDA) == "program"
    else:
        with pytest.raises(xla_options.CompilerBusyError, match="ptxas"):
            compile_for_devices(lowered, CUDA)
    assert lowered.calls == [options(CUDA)] * failures
    assert pauses == list(xla_options._PAUSES[:failures])
