import jax
import pytest

from jaxrl.runtime.builder import compile_for_devices, options

OPTION = "xla_gpu_command_buffer_scheduling_mode"
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
        (CUDA, "", {OPTION: "CONCURRENT"}),
        (CUDA, f"--{OPTION}=SERIALIZE", {}),
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


def test_an_xla_without_the_option_compiles_without_it(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    lowered = Lowered(unknown=[OPTION])
    assert compile_for_devices(lowered, CUDA) == 2
    assert lowered.calls == [{OPTION: "CONCURRENT"}, {}]


def test_other_errors_are_not_hidden(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")

    class Broken:
        def compile(self, compiler_options=None):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        compile_for_devices(Broken(), CUDA)
