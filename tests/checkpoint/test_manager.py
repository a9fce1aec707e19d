"""CheckpointManager: round trips, mismatches, damage, retention and failing disks."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import struct
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from orbax.checkpoint import v1

from jaxrl.checkpoint import array_io, manager, snapshot
from jaxrl.checkpoint.manager import CheckpointError, CheckpointManager
from jaxrl.errors import UserError
from jaxrl.utils import atomic_io

ROOT = Path(__file__).resolve().parents[2]


class AdamMoments(NamedTuple):
    mean: Any
    unused: Any


@struct.dataclass
class State:
    params: dict
    moments: AdamMoments
    keys: Any
    name: str = struct.field(pytree_node=False)


def small(seed=0, width=4):
    return {"learner": {"kernel": jax.random.normal(jax.random.key(seed), (3, width))}}


def all_leaf_types():
    """A state with every kind of leaf that a training state has."""
    rng = np.random.default_rng(0)
    params = {
        "f32": jnp.asarray([1.5, np.nan, -0.0, np.inf, 1e-42], jnp.float32),
        "bf16": jnp.asarray(rng.standard_normal((3, 5)), jnp.bfloat16),
        "f8": jnp.asarray(rng.standard_normal(7), jnp.float8_e4m3fn),
        "u4": jnp.arange(9, dtype=jnp.uint4),
        "i4_scalar": jnp.int4(-3),
        "f16": jnp.asarray(rng.standard_normal(4), jnp.float16),
        "c64": jnp.asarray([1 + 2j], jnp.complex64),
        "i32": jnp.arange(-3, 3),
        "u32": jnp.asarray([2**32 - 1], jnp.uint32),
        "i8": jnp.asarray([-128], jnp.int8),
        "bool": jnp.asarray([[True, False]]),
        "scalar": jnp.float32(0.1),
        "weak": jnp.asarray(0.1),
        "empty": jnp.zeros((4, 0, 2), jnp.bfloat16),
        "empty f8": jnp.zeros((0,), jnp.float8_e5m2),
        "numpy f64": rng.standard_normal((2, 3)).T,
        "numpy i64": np.asarray(2**40),
        "numpy scalar": np.float64(0.1),
        "python": [True, 2**62, 0.1, 1j],
        "a/b": jnp.ones(1),
        "a": {"b": jnp.zeros(1)},
    }
    keys = {
        "one": jax.random.key(1),
        "batch": jax.random.split(jax.random.key(2), (4, 2)),
        "rbg": jax.random.key(3, impl="rbg"),
        "none": jax.random.split(jax.random.key(4), 0),
        "raw": jax.random.PRNGKey(5),
    }
    return State(params, AdamMoments(jnp.ones((2, 2)), None), keys, "run")


def as_numpy(leaf):
    key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if key else leaf)


def assert_identical(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert isinstance(a, jax.Array) == isinstance(e, jax.Array)
        assert isinstance(a, jax.Array) or type(a) is type(e)
        assert getattr(a, "dtype", None) == getattr(e, "dtype", None)
        assert getattr(a, "weak_type", None) == getattr(e, "weak_type", None)
        assert as_numpy(a).shape == as_numpy(e).shape
        assert as_numpy(a).tobytes() == as_numpy(e).tobytes()


def save_all(directory, states, metrics=None, **options):
    with CheckpointManager(directory, **options) as checkpoints:
        for step, state in states.items():
            checkpoints.save(step, state, {"at": step}, metric=(metrics or {}).get(step))
    return CheckpointManager(directory, **options)


def data_files(folder):
    """Return the files with array data, largest first."""
    files = [f for f in (folder / "arrays").rglob("*") if f.is_file() and f.parent.name == "d"]
    return sorted(files, key=lambda f: -f.stat().st_size)


def run_python(code, *args, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, **options)


# Round trips


def other_values(leaf):
    if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.zeros_like(leaf)
    return type(leaf)(0) if isinstance(leaf, int | float | complex) else leaf


def test_round_trip_of_every_leaf_type(tmp_path):
    state = all_leaf_types()
    metadata = {"note": "ü\n", "lr": 0.1, "none": None, "list": [1, {"a": True}]}
    with CheckpointManager(tmp_path) as checkpoints:
        checkpoints.save(7, state, metadata)
    restored = CheckpointManager(tmp_path).restore(jax.tree.map(other_values, state))
    assert (restored.step, restored.metadata, restored.warnings) == (7, metadata, [])
    assert_identical(restored.state, state)
    assert restored.state.name == "run"


def test_restore_into_abstract_target(tmp_path):
    state = all_leaf_types()
    # eval_shape turns NumPy arrays into 32-bit JAX arrays: these need a concrete target.
    params = {name: leaf for name, leaf in state.params.items() if not name.startswith("numpy")}
    state = state.replace(params={**params, "python": [True, 3, 0.1, 1j]})
    target = jax.eval_shape(lambda: state)
    target.params["python"][0] = True  # a bool is never weakly typed
    assert_identical(save_all(tmp_path, {1: state}).restore(target).state, state)


def test_donation_after_save_does_not_change_the_checkpoint(tmp_path, monkeypatch):
    changed = threading.Event()
    digests = snapshot.with_digests
    monkeypatch.setattr(snapshot, "with_digests", lambda copy: changed.wait(30) and digests(copy))
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = {"big": jnp.arange(1_000_000.0), "numpy": np.zeros(10)}
    expected = {"big": np.arange(1_000_000, dtype=np.float32), "numpy": np.zeros(10)}
    with CheckpointManager(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        big = state["big"]
        for _ in range(5):
            big = step(big)
        jax.block_until_ready(big)
        state["numpy"][:] = 9
        changed.set()
    assert state["big"].is_deleted()
    assert_identical(CheckpointManager(tmp_path).restore(expected).state, expected)


def test_restored_state_may_be_donated(tmp_path):
    step = jax.jit(lambda x: jax.tree.map(lambda y: y + 1, x), donate_argnums=0)
    state = small()
    checkpoints = save_all(tmp_path, {1: state})
    once, again = (checkpoints.restore(state).state for _ in range(2))
    assert_identical(step(step(once)), step(step(jax.tree.map(jnp.copy, again))))
    assert_identical(checkpoints.restore(state).state, state)


def test_shardings_of_the_target_are_honoured(tmp_path):
    devices = jax.devices()
    assert len(devices) == 8
    mesh = jax.make_mesh((8,), ("d",))
    split = NamedSharding(mesh, PartitionSpec("d"))
    whole = NamedSharding(mesh, PartitionSpec())
    state = {
        "x": jax.device_put(jnp.arange(32.0).reshape(16, 2), split),
        "keys": jax.device_put(jax.random.split(jax.random.key(0), 8), split),
        "replicated": jax.device_put(jnp.ones(3), whole),
        "free": jnp.ones(2),
    }
    checkpoints = save_all(tmp_path, {1: state})

    same = checkpoints.restore(state).state
    assert_identical(same, state)
    for name in state:
        assert same[name].sharding == state[name].sharding
        assert same[name].committed == state[name].committed

    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    assert checkpoints.restore(abstract).state["keys"].sharding == split

    third = SingleDeviceSharding(devices[3])
    one = checkpoints.restore(jax.tree.map(lambda x: jax.device_put(x, third), state)).state
    assert_identical(one, state)
    assert all(leaf.sharding == third for leaf in jax.tree.leaves(one))

    half = jax.sharding.Mesh(np.asarray(devices[:4]), ("d",))
    halved = NamedSharding(half, PartitionSpec("d"))
    other = {**state, "x": jax.ShapeDtypeStruct((16, 2), jnp.float32, sharding=halved)}
    assert checkpoints.restore(other).state["x"].sharding == halved

    nowhere = jax.eval_shape(lambda x: x, state)
    with pytest.raises(CheckpointError, match="abstract mesh"):
        checkpoints.restore(nowhere)


@pytest.fixture(scope="module")
def restored_and_saved(tmp_path_factory):
    """The folder of a process that restores on one device what eight have saved, saves, and exits.

    It does not wait for its second save.
    """
    folder, mesh = tmp_path_factory.mktemp("process"), jax.make_mesh((8,), ("d",))
    x = jax.device_put(jnp.arange(16.0), NamedSharding(mesh, PartitionSpec("d")))
    save_all(folder / "given", {3: {"x": x}})
    code = """if True:
        import os, sys
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
        import jax
        from jax import numpy as jnp
        from jaxrl.checkpoint.manager import CheckpointManager
        assert jax.device_count() == 1
        state = CheckpointManager(sys.argv[1] + "/given").restore({"x": jnp.zeros(16)}).state
        checkpoints = CheckpointManager(sys.argv[1] + "/saved")
        checkpoints.save(1, state, {}, block=True)
        checkpoints.save(2, {"x": jnp.arange(1000.0)}, {})
    """
    done = run_python(code, folder)
    assert done.returncode == 0, done.stderr
    return folder / "saved"


def test_saved_on_eight_devices_restored_in_a_process_with_one(restored_and_saved):
    state = CheckpointManager(restored_and_saved).restore({"x": np.zeros(16, np.float32)}, 1).state
    np.testing.assert_array_equal(state["x"], np.arange(16.0))


def test_exit_without_close_finishes_the_save(restored_and_saved):
    restored = CheckpointManager(restored_and_saved).restore({"x": jnp.zeros(1000)})
    assert restored.warnings == [] and restored.step == 2
    np.testing.assert_array_equal(restored.state["x"], np.arange(1000.0))


def test_state_without_data(tmp_path):
    state = {"nothing": None, "empty": jnp.zeros((0, 3))}
    assert_identical(save_all(tmp_path, {1: state}).restore(state).state, state)
    assert_identical(save_all(tmp_path / "2", {1: {}}).restore({}).state, {})


@pytest.mark.parametrize("name", ["with space", "ünïcode-模型", "a/deeper/path"])
def test_paths(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = 2**31 + 5
    assert save_all(Path(name), {step: small()}).restore(small(1)).step == step
    assert CheckpointManager(tmp_path / name).steps() == [step]


def test_steps_are_ordered_as_numbers(tmp_path):
    checkpoints = save_all(tmp_path, {9: small(9), 10: small(10), 2**33: small(1)})
    assert checkpoints.steps() == [9, 10, 2**33]
    assert_identical(checkpoints.restore(small(), step=9).state, small(9))


# Unsupported leaves and metadata


@pytest.mark.parametrize(
    ("leaf", "why"),
    [
        ("text", "it is a str"),
        (object(), "it is a object"),
        (np.asarray(["a"]), "its dtype <U1"),
        (np.asarray([None]), "its dtype object"),
        (np.longdouble(1), "its dtype"),
        (np.zeros(2, ">f4"), "its dtype >f4"),
        (2**63, "the integer 9223372036854775808 needs more than 64"),
    ],
)
def test_unsupported_leaf_is_named(tmp_path, leaf, why):
    with CheckpointManager(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match=f"state leaf a/0 cannot be saved: {why}"):
            checkpoints.save(1, {"a": [leaf], "b": jnp.ones(1)}, {})
        assert list(tmp_path.iterdir()) == []


def test_deleted_and_traced_leaves_are_named(tmp_path):
    with CheckpointManager(tmp_path) as checkpoints:
        gone = jnp.ones(3)
        gone.delete()
        with pytest.raises(CheckpointError, match="leaf x cannot be saved: its buffer was deleted"):
            checkpoints.save(1, {"x": gone}, {})
        with pytest.raises(CheckpointError, match="traced"):
            jax.jit(lambda x: checkpoints.save(1, x, {}))(jnp.ones(1))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"a": {"b": float("nan")}}, "metadata/a/b is nan"),
        ({"a": [1.0, float("-inf")]}, "metadata/a/1 is -inf"),
        ({"a": np.int32(3)}, "metadata/a is a int32"),
        ({3: 1}, "metadata has the key 3"),
    ],
)
def test_metadata_must_be_plain_json(tmp_path, metadata, message):
    with CheckpointManager(tmp_path) as checkpoints, pytest.raises(CheckpointError, match=message):
        checkpoints.save(1, small(), metadata)


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="keep must be at least 1, or all, not 0"):
        CheckpointManager(tmp_path, keep=0)
    checkpoints = CheckpointManager(tmp_path)
    with pytest.raises(CheckpointError, match="must not be negative: -1"):
        checkpoints.save(-1, small(), {})
    checkpoints.close()
    checkpoints.close()
    with pytest.raises(CheckpointError, match="closed"):
        checkpoints.save(1, small(), {})


# Directories


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_path_is_a_file(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UserError, match=f"{file} is a file"):
        CheckpointManager(file / below)
    assert file.read_text() == "x"


def test_unwritable_directory(tmp_path, monkeypatch):
    folder = tmp_path / "shut"
    folder.mkdir(mode=0o500)
    if os.geteuid() == 0:  # root may write everywhere
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(CheckpointError, match="shut is not writable; change its permissions"):
        CheckpointManager(folder)


def test_no_checkpoint(tmp_path):
    folder = tmp_path / "none yet"
    with pytest.raises(CheckpointError, match=f"no checkpoint in {folder}$"):
        CheckpointManager(folder).restore(small())
    assert not folder.exists()  # reading creates nothing
    checkpoints = save_all(folder, {1: small(), 5: small()})
    with pytest.raises(
        CheckpointError, match="no checkpoint of step 4 in .*; there are steps 1, 5"
    ):
        checkpoints.restore(small(), step=4)


# Targets that do not fit


def test_shape_mismatch_names_the_leaf_and_does_not_fall_back(tmp_path):
    checkpoints = save_all(tmp_path, {1: small(width=8), 2: small(width=4)})
    with pytest.raises(CheckpointError) as caught:
        checkpoints.restore(small(width=8))
    assert str(caught.value) == (
        "checkpoint leaf learner/kernel is float32[3,4], this configuration needs float32[3,8]; "
        "resume with the settings of the run or start a new run"
    )


@pytest.mark.parametrize(
    ("stored", "target", "message"),
    [
        (jnp.ones(2), jnp.ones(2, jnp.bfloat16), r"is float32\[2\], .* needs bfloat16\[2\]"),
        (jnp.ones(2), np.ones(2), r"is float32\[2\], .* needs float64\[2\]"),
        (jnp.int32(1), jnp.uint32(1), r"is int32\[\], .* needs uint32\[\]"),
        (jax.random.key(0), jax.random.key(0, impl="rbg"), r"is key<fry>\[\], .* needs key<rbg>"),
        (jax.random.key(0), jax.random.PRNGKey(0), r"is key<fry>\[\], .* needs uint32\[2\]"),
        (1, 1.0, r"is python int\[\], .* needs python float\[\]"),
        (1, jax.ShapeDtypeStruct((), jnp.float32, weak_type=True), "is python int"),
        (jnp.zeros((0, 2)), jnp.zeros((0, 3)), r"is float32\[0,2\], .* needs float32\[0,3\]"),
        (None, jnp.ones(2), r"checkpoint has no leaf x, this configuration needs float32\[2\]"),
        (jnp.ones(2), None, r"checkpoint leaf x \(float32\[2\]\) is not in this configuration"),
    ],
)
def test_other_mismatches(tmp_path, stored, target, message):
    checkpoints = save_all(tmp_path, {1: {"x": stored}})
    with pytest.raises(CheckpointError, match=message):
        checkpoints.restore({"x": target})


def test_many_mismatches_are_counted(tmp_path):
    checkpoints = save_all(tmp_path, {1: {str(i): jnp.ones(1) for i in range(9)}})
    with pytest.raises(CheckpointError) as caught:
        checkpoints.restore({str(i): jnp.ones(2) for i in range(9)})
    assert str(caught.value).count("checkpoint leaf") == 5
    assert "\nand 4 more; resume with the settings" in str(caught.value)


# Damage


def flip_data_bit(folder):
    file = data_files(folder)[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate_data(folder):
    os.truncate(data_files(folder)[0], 10)


def delete_data(folder):
    data_files(folder)[0].unlink()


def delete_arrays(folder):
    (folder / "arrays").rename(folder.parent / "gone")


def flip_manifest_bit(folder):
    text = (folder / "manifest.json").read_text()
    assert '"at": 2' in text
    (folder / "manifest.json").write_text(text.replace('"at": 2', '"at": 3'))


def truncate_manifest(folder):
    os.truncate(folder / "manifest.json", 50)


def delete_manifest(folder):
    (folder / "manifest.json").unlink()


def empty_folder(folder):
    folder.rename(folder.parent / "gone")
    folder.mkdir()


def binary_manifest(folder):
    (folder / "manifest.json").write_bytes(b"\xff\xfe\x00")


def unknown_format(folder):
    body = {"format": 99}
    document = {"digest": manager._body_digest(body), "body": body}
    (folder / "manifest.json").write_text(json.dumps(document))


DAMAGES = [
    flip_data_bit,
    truncate_data,
    delete_data,
    delete_arrays,
    flip_manifest_bit,
    truncate_manifest,
    delete_manifest,
    empty_folder,
    binary_manifest,
    unknown_format,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_step_falls_back_and_is_replaced_by_next_save(tmp_path, damage):
    old, new = ({"x": jnp.arange(5000.0) * i} for i in (1, 2))
    checkpoints = save_all(tmp_path, {1: old, 2: new}, keep=1, metrics={1: 1.0})
    damage(tmp_path / "2")
    restored = checkpoints.restore(old)
    assert (restored.step, restored.metadata) == (1, {"at": 1})
    assert_identical(restored.state, old)
    assert len(restored.warnings) == 1
    assert f"{tmp_path}/2 is damaged and was skipped" in restored.warnings[0]
    assert checkpoints.steps() == [1, 2]  # nothing was deleted
    with pytest.raises(CheckpointError, match="no intact checkpoint .*\n.*2 is damaged"):
        checkpoints.restore(old, step=2)

    checkpoints.save(2, new, {"at": 2}, block=True)
    assert checkpoints.steps() == [1, 2]
    assert (tmp_path / "2.damaged-1").is_dir()
    restored = CheckpointManager(tmp_path).restore(old)
    assert (restored.step, restored.warnings) == (2, [])
    assert_identical(restored.state, new)


def test_digest_names_the_leaf(tmp_path):
    state = {"a": {"big": jax.random.normal(jax.random.key(0), (5000,))}, "b": jnp.ones(1)}
    checkpoints = save_all(tmp_path, {1: state, 2: state})
    flip_data_bit(tmp_path / "2")
    warning = checkpoints.restore(state).warnings[0]
    assert "leaf a/big does not match its digest" in warning or "cannot be read" in warning


def test_all_damaged(tmp_path):
    state = {"x": jnp.arange(5000.0)}
    checkpoints = save_all(tmp_path, {1: state, 2: state, 3: state})
    for step, damage in {1: truncate_data, 2: delete_manifest, 3: empty_folder}.items():
        damage(tmp_path / str(step))
    with pytest.raises(CheckpointError, match=f"no intact checkpoint in {tmp_path}") as caught:
        checkpoints.restore(state)
    for step in (1, 2, 3):
        assert f"{tmp_path}/{step} is damaged" in str(caught.value)
    assert checkpoints.steps() == [1, 2, 3]


def test_damaged_steps_do_not_count_for_retention(tmp_path):
    state = {"x": jnp.arange(5000.0)}
    save_all(tmp_path, {10: state, 20: state})
    flip_data_bit(tmp_path / "20")
    with CheckpointManager(tmp_path, keep=2) as checkpoints:
        assert checkpoints.restore(state).step == 10
        checkpoints.save(15, state, {})
        checkpoints.wait()
        assert checkpoints.steps() == [10, 15, 20]
        checkpoints.save(16, state, {})
    assert checkpoints.steps() == [15, 16, 20]
    assert CheckpointManager(tmp_path).restore(state).step == 16


def test_leftover_folders_are_ignored_and_removed_on_save(tmp_path):
    checkpoints = save_all(tmp_path, {1: small(1)})
    (tmp_path / "1").rename(tmp_path / ".saving-9")
    (tmp_path / ".deleting-3").mkdir()
    (tmp_path / "12.damaged-1").mkdir()
    (tmp_path / "007").mkdir()
    (tmp_path / "5").write_text("a file")
    assert checkpoints.steps() == []
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        checkpoints.restore(small())
    assert (tmp_path / ".saving-9").exists()
    checkpoints.save(2, small(2), {}, block=True)
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {"2", "12.damaged-1", "007", "5"}


# Retention and repeated saves


@pytest.mark.parametrize(
    ("metrics", "kept"),
    [
        ({}, [5, 6]),
        ({1: 1.0, 2: 5.0, 3: 4.0, 4: 3.0}, [2, 5, 6]),
        ({1: 1.0, 2: float("nan"), 3: float("inf"), 4: float("-inf")}, [1, 5, 6]),
        ({2: float("nan")}, [5, 6]),
        ({2: -5.0, 3: -4.0}, [3, 5, 6]),
        ({2: 1.0, 6: 1.0}, [5, 6]),
    ],
)
@pytest.mark.parametrize("reopen", [False, True])
def test_newest_and_best_are_kept(tmp_path, metrics, kept, reopen):
    checkpoints = CheckpointManager(tmp_path, keep=2)
    for step in range(1, 7):
        checkpoints.save(step, small(step), {}, metric=metrics.get(step))
        if reopen:
            checkpoints.close()
            checkpoints = CheckpointManager(tmp_path, keep=2)
    checkpoints.close()
    assert checkpoints.steps() == kept
    for step in kept:
        assert_identical(checkpoints.restore(small(), step).state, small(step))
    assert {entry.name for entry in tmp_path.iterdir()} == set(map(str, kept))


def test_old_steps_are_removed_only_after_the_new_save(tmp_path, monkeypatch):
    checkpoints = save_all(tmp_path, {1: small(1)}, keep=1)
    monkeypatch.setattr(atomic_io, "sync", lambda folder: 1 / 0)
    with pytest.raises(CheckpointError, match="division"):
        checkpoints.save(2, small(2), {}, block=True)
    assert checkpoints.steps() == [1]


def test_interrupted_removal_leaves_no_partial_step(tmp_path, monkeypatch):
    monkeypatch.setattr(manager.shutil, "rmtree", lambda path, ignore_errors: None)
    checkpoints = save_all(tmp_path, {1: small(1), 2: small(2)}, keep=1)
    assert checkpoints.steps() == [2]
    monkeypatch.undo()
    checkpoints.save(3, small(3), {}, block=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["3"]


def test_step_older_than_retained_ones_is_still_saved(tmp_path):
    checkpoints = save_all(tmp_path, {8: small(8), 9: small(9)}, keep=2)
    checkpoints.save(3, small(3), {}, block=True)
    assert checkpoints.steps() == [3, 8, 9]


def test_saving_an_intact_step_again_does_nothing(tmp_path):
    checkpoints = save_all(tmp_path, {1: small(1)})
    before = (tmp_path / "1").stat()
    checkpoints.save(1, small(1), {"other": True}, metric=3.0, block=True)
    assert (tmp_path / "1").stat() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]
    assert checkpoints.restore(small()).metadata == {"at": 1}


def test_saving_another_state_moves_the_old_step_aside(tmp_path):
    checkpoints = save_all(tmp_path, {1: small(1)})
    checkpoints.save(1, small(2), {}, block=True)
    assert {entry.name for entry in tmp_path.iterdir()} == {"1", "1.replaced-1"}
    assert_identical(checkpoints.restore(small()).state, small(2))


# Failing disks


def fail_with(code):
    def save(path, tree):
        Path(path).mkdir()
        raise OSError(code, os.strerror(code))

    return save


@pytest.mark.parametrize("surface", ["save", "wait", "close", "block", "context"])
def test_full_disk_raises_once_and_keeps_earlier_steps(tmp_path, monkeypatch, surface):
    save_all(tmp_path, {1: small(1)})
    checkpoints = CheckpointManager(tmp_path, keep=1)
    monkeypatch.setattr(v1, "save", fail_with(errno.ENOSPC))
    message = f"step 2 could not be written to {tmp_path}: .*No space left.*; free some disk space"
    with pytest.raises(CheckpointError, match=message):
        if surface == "context":
            with checkpoints:
                checkpoints.save(2, small(2), {})
        checkpoints.save(2, small(2), {}, block=surface == "block")
        getattr(checkpoints, surface)(*((3, small(), {}) if surface == "save" else ()))
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]  # the failed save was removed
    if surface in ("save", "wait", "block"):
        checkpoints.save(4, small(4), {}, block=True)
        assert checkpoints.steps() == [4]
    checkpoints.close()


def test_error_of_the_run_is_not_hidden_by_a_failing_save(tmp_path, monkeypatch):
    monkeypatch.setattr(v1, "save", fail_with(errno.EIO))
    with pytest.raises(ZeroDivisionError) as caught, CheckpointManager(tmp_path) as checkpoints:
        checkpoints.save(2, small(2), {})
        raise ZeroDivisionError
    assert "check the disk and its permissions" in caught.value.__notes__[0]


def test_os_write_errors_do_not_hang_the_process(tmp_path):
    code = """if True:
        import resource, sys
        from jax import numpy as jnp
        from jaxrl.checkpoint.manager import CheckpointError, CheckpointManager
        checkpoints = CheckpointManager(sys.argv[1])
        checkpoints.save(1, {"x": jnp.arange(10.0)}, {}, block=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        many = {str(i): jnp.arange(100_000.0) + i for i in range(20)}
        checkpoints.save(2, many, {})
        try:
            checkpoints.wait()
        except CheckpointError as error:
            print("failed:", error)
        checkpoints.save(3, many, {})
    """
    done = run_python(code, tmp_path)
    assert "failed: the checkpoint of step 2 could not be written" in done.stdout, done.stderr
    assert "free some disk space" in done.stdout
    assert done.stdout.count("\n") == 1 and not done.stderr  # no traceback of Orbax's threads
    assert CheckpointManager(tmp_path).restore({"x": jnp.zeros(10)}).step == 1


# Every line of input starts a process that saves until it is killed. Imports come first: they take
# most of the time, and the kill is to hit a write.
KILLED = """if True:
    import itertools, os, sys
    import jax, numpy as np
    from jax import numpy as jnp
    from orbax.checkpoint import v1
    from jaxrl.checkpoint.manager import CheckpointManager

    def save():
        print(os.getpid(), flush=True)
        checkpoints = CheckpointManager(sys.argv[1], keep=2)
        target = {"x": jnp.zeros(200_000), "step": jnp.int32(0)}
        first = checkpoints.restore(target).step if checkpoints.steps() else 0
        for step in itertools.count(first + 1):
            state = {"x": jnp.full(200_000, step, jnp.float32), "step": jnp.int32(step)}
            checkpoints.save(step, state, {"step": step}, metric=-abs(step - 3))
            print("saving", flush=True)

    for _ in sys.stdin:
        child = os.fork()  # JAX is imported but not initialised: it has no threads yet
        if not child:
            save()
        os.waitpid(child, 0)
        print("killed", flush=True)
"""


def test_checkpoints_survive_sigkill_at_random_times(tmp_path):
    target = {"x": jnp.zeros(200_000), "step": jnp.int32(0)}
    rng = random.Random(0)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    last = 0
    with subprocess.Popen(command, env=env, start_new_session=True, **pipes) as parent:
        try:
            for _ in range(5):
                _kill_while_saving(parent, rng.uniform(0.0, 0.5))
                reader = CheckpointManager(tmp_path)
                restored = reader.restore(target)
                assert restored.warnings == []
                assert restored.step == reader.steps()[-1] > last
                assert restored.metadata == {"step": restored.step}
                assert int(restored.state["step"]) == restored.step
                np.testing.assert_array_equal(restored.state["x"], np.float32(restored.step))
                assert len(reader.steps()) <= 4  # two newest, the best, and one not yet removed
                last = restored.step
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
    assert 3 in CheckpointManager(tmp_path).steps()


def _kill_while_saving(parent, seconds):
    """Start a process that saves, and kill it some seconds after its second save began."""
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    for _ in range(2):  # the second save begins when the first is done
        assert parent.stdout.readline() == "saving\n"
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    while (line := parent.stdout.readline()) != "killed\n":
        assert line == "saving\n"  # printed before


def test_save_during_interpreter_exit_needs_no_threads(tmp_path, monkeypatch):
    class Exiting:
        def save(self, *_):
            raise RuntimeError("can't create new thread at interpreter shutdown")

    state = all_leaf_types()
    with CheckpointManager(tmp_path) as checkpoints, monkeypatch.context() as patch:
        patch.setattr(array_io, "_orbax", Exiting)
        patch.setattr(array_io, "_can_start_threads", lambda: False)
        checkpoints.save(1, state, {}, block=True)
    assert_identical(CheckpointManager(tmp_path).restore(state).state, state)
    # Its digests are checked too.
    file = max(tmp_path.glob("1/arrays/*.raw"), key=lambda file: file.stat().st_size)
    file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(CheckpointError, match="does not match its digest"):
        CheckpointManager(tmp_path).restore(state)


def test_a_save_survives_a_suspended_process(tmp_path, monkeypatch):
    """Orbax's deadlines pass while a process is suspended: its save then gives up."""
    from orbax.checkpoint._src.futures import future

    def give_up(*_, **__):
        raise TimeoutError("ChainedFuture completed 0/2 futures but timed out")

    state = all_leaf_types()
    with CheckpointManager(tmp_path) as checkpoints:
        with monkeypatch.context() as patch:
            patch.setattr(future.ChainedFuture, "result", give_up)
            checkpoints.save(1, state, {}, block=True)
        checkpoints.save(2, state, {}, block=True)
    assert list(tmp_path.glob("1/arrays/*.raw")) and not list(tmp_path.glob("2/arrays/*.raw"))
    for step in (1, 2):
        assert_identical(CheckpointManager(tmp_path).restore(state, step).state, state)


def test_other_errors_of_orbax_are_not_hidden(tmp_path, monkeypatch):
    class Failing:
        def save(self, *_):
            raise RuntimeError("something else")

    monkeypatch.setattr(array_io, "_orbax", Failing)
    with (
        CheckpointManager(tmp_path) as checkpoints,
        pytest.raises(CheckpointError, match="something"),
    ):
        checkpoints.save(1, {"x": jnp.ones(3)}, {}, block=True)
