"""XLA flags that jaxrl adds to the environment, by jaxlib version."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from jaxrl.utils import xla_flags

EIGEN = "--xla_cpu_multi_thread_eigen"
ALLOCATION = "XLA_PYTHON_CLIENT_PREALLOCATE"


@pytest.mark.parametrize(
    "before, jaxlib, after",
    [
        ("", "0.10.2", f"{EIGEN}=false"),
        ("--xla_a=1", "0.12.0.1", f"--xla_a=1 {EIGEN}=false"),
        (f"{EIGEN}=true", "0.12.0.1", f"{EIGEN}=true"),  # the user's value wins
        (f"{EIGEN}_more=1", "0.10.2", f"{EIGEN}_more=1 {EIGEN}=false"),  # another flag
        ("--xla_a=1", "0.13.0", "--xla_a=1"),  # may not know the flag and would fail to start
        ("--xla_a=1", "1.0.0", "--xla_a=1"),
    ],
)
def test_flags_are_added_if_jaxlib_supports_them(monkeypatch, before, jaxlib, after):
    monkeypatch.setenv("XLA_FLAGS", before)
    monkeypatch.setattr(xla_flags, "version", lambda _: jaxlib)
    xla_flags.add(xla_cpu_multi_thread_eigen=False)
    assert os.environ["XLA_FLAGS"] == after


def test_flag_removed_in_jaxlib_0_12_is_omitted(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(xla_flags, "version", lambda _: "0.12.0.1")
    xla_flags.add(xla_cpu_use_fusion_emitters=False, xla_backend_optimization_level=0)
    assert os.environ["XLA_FLAGS"] == "--xla_backend_optimization_level=0"


def run(code, **env):
    ours = ("XLA_FLAGS", ALLOCATION)
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_installed_jaxlib_accepts_every_supported_flag():
    values = {
        "xla_force_host_platform_device_count": 1,
        "xla_backend_optimization_level": 0,
        "xla_cpu_opt_preset": "FAST_COMPILE",
        "xla_cpu_parallel_codegen_split_count": 1,
    }
    supported = xla_flags.supported(version("jaxlib"))
    assert supported, "untested jaxlib version: add it to jaxrl/utils/xla_flags.py"
    flags = " ".join(f"--{name}={values.get(name, 'false')}" for name in supported)
    assert run("import jax; print(jax.device_count())", XLA_FLAGS=flags) == "1"


def test_importing_jaxrl_sets_the_flags():
    found = run("import os, jaxrl; print(os.environ['XLA_FLAGS'])")
    assert found == "--xla_cpu_enable_concurrency_optimized_scheduler=false"


@pytest.mark.parametrize(("given", "taken"), [({}, "false"), ({ALLOCATION: "true"}, "true")])
def test_importing_jaxrl_keeps_jax_from_reserving_gpu_memory(given, taken):
    assert run(f"import os, jaxrl; print(os.environ['{ALLOCATION}'])", **given) == taken
