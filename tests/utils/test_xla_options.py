import jax
import pytest

from jaxrl.utils.xla_options import compile_for_devices, options

OPTION = "xla_gpu_command_buffer_scheduling_mode"
SEARCH = "xla_gpu_experimental_enable_fusion_autotuner"
UNROLL = "xla_gpu_command_buffer_unroll_loops"
WITH = "xla_gpu_enable_command_buffer"
CUDA = "PJRT C API\ncuda 13000"


class Lowered:
    """Notes what it was compiled with; an option in `unknown` is refused in XLA's words."""

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
        (CUDA, "", {OPTION: "CONCURRENT", SEARCH: False}),
        (CUDA, f"--{OPTION}=SERIALIZE", {SEARCH: False}),
        ("cpu", "", {}),
        ("rocm 60000", "", {}),
    ],
)
def test_options_follow_the_devices_and_the_users_flags_win(monkeypatch, version, flags, options):
    monkeypatch.setenv("XLA_FLAGS", flags)
    lowered = Lowered()
    compile_for_devices(lowered, version)
    assert lowered.calls == [options]


def test_processors_do_not_split_operations_of_physics_that_loops(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert options("cpu", loops=True) == {"xla_cpu_multi_thread_eigen": False}
    assert options("cpu") == {}
    assert options(CUDA, loops=True) == options(CUDA)


def test_only_cuda_writes_loops_out(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    more = options(CUDA, unrolled=True)
    assert set(more) - set(options(CUDA)) == {UNROLL, WITH}
    assert "WHILE" in more[WITH].split(",")
    assert options("cpu", unrolled=True) == {}


@pytest.mark.parametrize("unknown, gone", [(OPTION, {OPTION}), (UNROLL, {UNROLL, WITH})])
def test_an_xla_without_an_option_compiles_without_it(monkeypatch, unknown, gone):
    monkeypatch.setenv("XLA_FLAGS", "")
    lowered = Lowered(unknown=[unknown])
    assert compile_for_devices(lowered, CUDA, unrolled=True) == 2
    first, second = lowered.calls
    assert first == options(CUDA, unrolled=True)
    assert set(first) - set(second) == gone


def test_other_errors_are_not_hidden(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")

    class NonFiniteCapture:
        def compile(self, compiler_options=None):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        compile_for_devices(NonFiniteCapture(), CUDA)
