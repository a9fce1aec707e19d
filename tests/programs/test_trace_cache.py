"""Trace cache: a second run with the same settings traces nothing and trains identically."""

import os
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import export

from jaxrl import train
from jaxrl.config import presets
from jaxrl.envs import registry
from jaxrl.envs.env_state import PackedEnvState, Template
from jaxrl.programs import device, trace_cache
from jaxrl.types import ActionSpec
from jaxrl.utils import compilation_cache, sharding
from tests.helpers import sharing, tiny

pytestmark = pytest.mark.usefixtures("no_plots")

MESH = sharding.make_mesh(1)
FLAGS = ("--devices", "2", "--epochs", "1")


@pytest.fixture
def cache_dir(tmp_path, monkeypatch):
    """Enable the trace cache in a temporary folder."""
    monkeypatch.setenv("JAXRL_CACHE_PROGRAMS", "1")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "jaxrl"
    jax.config.update("jax_compilation_cache_dir", before)


def no_environment(*_, **__):
    raise AssertionError("the environment was built")


@pytest.fixture
def plain(tmp_path):
    """A run without the trace cache, which is off by default in tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "compile_programs", sharing.compile_once)
        return tiny.run(tmp_path / "plain", *FLAGS)


def test_second_run_builds_no_environment_and_is_identical(plain, cache_dir, tmp_path, monkeypatch):
    """Also if the first run finds an unreadable file, which it replaces.

    On one device, the resumed processes of tests/training/test_processes.py use cached traces.
    """
    config = train._parse([*tiny.FLAGS, *FLAGS]).config
    path = trace_cache.location(config, sharding.make_mesh(2))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not what it should be")
    assert trace_cache.load(path) is None
    first = tiny.run(tmp_path / "first", *FLAGS)
    assert list(cache_dir.glob("*.npz")) == [path]
    assert set(trace_cache.load(path).programs) == {"run_cycle", "sample", "init", "play"}
    monkeypatch.setattr(registry, "make", no_environment)
    second = tiny.run(tmp_path / "second", *FLAGS)
    for run in (first, second):
        assert tiny.rows(run) == tiny.rows(plain)
        tiny.assert_same_policy(run, plain)


def test_trace_cache_can_be_disabled(cache_dir, monkeypatch):
    assert trace_cache.find(presets.get("cartpole"), MESH) is not None
    monkeypatch.setenv("JAXRL_CACHE_PROGRAMS", "0")
    assert trace_cache.find(presets.get("cartpole"), MESH) is None


def test_cache_key_covers_what_programs_depend_on(cache_dir, monkeypatch):
    base = presets.get("cartpole")
    path = trace_cache.location(base, MESH)
    assert path == trace_cache.location(base, MESH)
    irrelevant = [
        replace(base, seed=5),
        replace(base, preset="other"),
        replace(base, log=replace(base.log, tensorboard=False)),
        replace(base, checkpoint=replace(base.checkpoint, keep=1)),
    ]
    assert {trace_cache.location(config, MESH) for config in irrelevant} == {path}
    relevant = [
        replace(base, num_envs=512),
        replace(base, ppo=replace(base.ppo, gamma=0.5)),
        replace(base, network=replace(base.network, hidden=(7,))),
        replace(base, task=replace(base.task, episode_length=77)),
        replace(base, eval=replace(base.eval, num_envs=3)),
        replace(base, epochs=77),
    ]
    paths = {trace_cache.location(config, MESH) for config in relevant}
    assert len(paths) == len(relevant) and path not in paths
    assert trace_cache.location(base, sharding.make_mesh(2)) != path
    monkeypatch.setattr(trace_cache, "_version", lambda name: "another")
    assert trace_cache.location(base, MESH) != path


def test_custom_code_is_never_cached(cache_dir):
    base = presets.get("cartpole")
    assert trace_cache.location(replace(base, env="module:Class"), MESH) is None
    custom = replace(base, task=replace(base.task, randomize="module:function"))
    assert trace_cache.location(custom, MESH) is None
    custom = replace(base, ppo=replace(base.ppo, extra_loss="module:function"))
    assert trace_cache.location(custom, MESH) is None


def shape(*dims, dtype=np.float32):
    return jax.ShapeDtypeStruct(dims, np.dtype(dtype))


@pytest.mark.parametrize("obs", [shape(3), {"state": shape(2), "pixels": shape(4, 4, dtype="u1")}])
def test_template_round_trip(tmp_path, obs):
    shapes = PackedEnvState(obs, {"success": shape()}, (shape(2, 3), shape(dtype=np.int32)))
    stored = trace_cache.CachedPrograms(
        Template(
            shapes,
            ActionSpec(4, True),
            55,
            (0, 2),
            curriculum={"level": np.float32(0.1)},
            last_curriculum={"level": np.float32(1.0)},
        ),
        {"sample": b"\x00\xff program"},
    )
    trace_cache.save(tmp_path / "x.npz", stored)
    assert trace_cache.load(tmp_path / "x.npz") == stored


@pytest.fixture(scope="module")
def cached_programs():
    """Trivial exported programs under the names that a run needs."""
    program = bytes(export.export(jax.jit(lambda x: x + 1))(shape(2)).serialize())
    return dict.fromkeys(("run_cycle", "sample", "init", "play"), program)


def corrupt_files(path, stored):
    """Replace the cache file by many kinds of corrupt content in turn."""
    trace_cache.save(path, stored)
    whole = path.read_bytes()
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    changes = [{name: np.zeros(9, np.uint8)} for name in stored.programs]
    changes += [{"header": np.array(text)} for text in ("", "[" * 50_000, "{}", "3")]
    changes += [{"digest": np.array("x")}, {"header": np.zeros(3)}, {"extra": np.zeros(3)}]
    for change in changes:
        np.savez(path, **arrays | change)
        yield change
    for name in arrays:
        np.savez(path, **{key: value for key, value in arrays.items() if key != name})
        yield f"no {name}"
    for data in (b"", b"junk", whole[:-50], whole[:100] + bytes(8) + whole[108:]):
        path.write_bytes(data)
        yield data[:10]
    programs = dict.fromkeys(stored.programs, b"no program")  # with a valid digest
    trace_cache.save(path, stored._replace(programs=programs))
    yield "no program"
    trace_cache.save(path, stored._replace(programs={}))
    yield "nothing"
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    yield "a folder"
    path.unlink()
    os.mkfifo(path)
    yield "a pipe"


def test_corrupt_files_are_ignored_and_replaced(cache_dir, cached_programs):
    config = presets.get("cartpole")
    path = trace_cache.location(config, MESH)
    template = Template(PackedEnvState(shape(4), {}, ()), ActionSpec(2, True), 500, ())
    stored = trace_cache.CachedPrograms(template, cached_programs)
    for corruption in corrupt_files(path, stored):
        assert trace_cache.find(config, MESH) == (path, None), corruption
        trace_cache.save(path, stored)
        assert trace_cache.find(config, MESH) == (path, stored), corruption


def test_oldest_files_are_evicted(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_cache, "MAX_FILES", 2)
    shapes = PackedEnvState(shape(1), {}, ())
    stored = trace_cache.CachedPrograms(Template(shapes, ActionSpec(1, False), 1, ()), {})
    for name in "abc":
        trace_cache.save(tmp_path / f"{name}.npz", stored)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["b", "c"]


@pytest.mark.parametrize("given, whole", [(None, False), ("true", True)])
def test_full_tracebacks_are_off_unless_set_by_the_user(given, whole, monkeypatch):
    name = "JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS"
    monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv(name, given)
    before = jax.config.jax_include_full_tracebacks_in_locations
    jax.config.update("jax_include_full_tracebacks_in_locations", True)
    compilation_cache.enable()
    after = jax.config.jax_include_full_tracebacks_in_locations
    jax.config.update("jax_include_full_tracebacks_in_locations", before)
    assert after == whole
