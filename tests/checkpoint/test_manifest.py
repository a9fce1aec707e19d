"""Invalid manifests count as damaged checkpoints, even with a valid digest."""

import copy
import json
import math
import os

import jax
import jax.numpy as jnp
import pytest

from jaxrl.checkpoint import manager
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.checkpoint.snapshot import CorruptCheckpointError
from jaxrl.errors import UserError
from jaxrl.training import resume
from jaxrl.utils import host_memory

STATE = {
    "w": jnp.ones((2, 3)),
    "small": jnp.ones(2, jnp.float8_e4m3fn),
    "key": jax.random.key(0),
    "keys": jax.random.split(jax.random.key(0, impl="rbg"), 3),
    "count": 3,
    "flag": jnp.array(True),
    "none": jnp.zeros((0, 2)),
}
WRONG = [None, True, -1, 1.5, 2**70, 10**400, math.nan, math.inf, "x", [], {}, [[]], ["x"], [-1]]
WRONG += [[2**40, 2**40], {"x": 1}]


def write(folder, body, digest=None):
    document = {"digest": digest or manager._body_digest(body), "body": body}
    (folder / "manifest.json").write_text(json.dumps(document))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints of the same state; tests corrupt the manifest of the second."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with CheckpointManager(folder) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, STATE, {"at": step}, metric=1.0, block=True)
    return folder


@pytest.fixture(scope="module")
def body(saved):
    return json.loads((saved / "1" / "manifest.json").read_text())["body"]


def paths(part, prefix=()):
    """Yield the path to every value of a JSON document."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*prefix, key))


def changed(body, path, *value):
    """Return a body with a value replaced or removed."""
    body = copy.deepcopy(body)
    part = body
    for key in path[:-1]:
        part = part[key]
    if value:
        part[path[-1]] = value[0]
    else:
        del part[path[-1]]
    return body


def is_valid(path, value):
    """Tell whether a manifest with this value is still valid."""
    name = path[-1]
    return (
        (name in ("path", "digest") and isinstance(value, str))
        or (name == "metric" and (value is None or value in (-1, 1.5, 2**70)))
        or (name == "metadata" and isinstance(value, dict))
        or "metadata" in path[:-1]
        or (path in (("leaves",), ("parts",)) and value == [])
        or (name == "parts" and isinstance(value, list) and all(type(x) is str for x in value))
    )


def test_wrongly_typed_values_are_damage(body):
    manager._parse_manifest(body)
    tried = 0
    for path in paths(body):
        original = body
        for key in path:
            original = original[key]
        for value in WRONG:
            same = type(value) is type(original) and value == original
            if same or is_valid(path, value):
                continue
            tried += 1
            with pytest.raises(CorruptCheckpointError):
                manager._parse_manifest(changed(body, path, value))
    assert tried > 800


def test_missing_values_are_damage(saved, body):
    for path in paths(body):
        if (
            path in (("metric",), ("parts",))
            or "metadata" in path[:-1]
            or isinstance(path[-1], int)
        ):
            continue
        write(saved / "2", changed(body, path))
        with pytest.raises(CorruptCheckpointError):
            manager.read_manifest(saved / "2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        '"x"',
        "null",
        "[" * 100_000,
        '{"body":' * 100_000,
        '{"body": ' + "[" * 900 + "]" * 900 + ', "digest": "x"}',
        '{"body": {}, "digest": null}',
        '{"body": 1' + "0" * 5000 + "}",
    ],
)
def test_invalid_documents_fall_back(saved, text):
    (saved / "2" / "manifest.json").write_text(text)
    restored = CheckpointManager(saved).restore(STATE)
    assert restored.step == 1 and "2 is damaged and was skipped" in restored.warnings[0]


def test_a_pipe_in_place_of_a_manifest_does_not_block(saved):
    (saved / "2" / "manifest.json").unlink()
    os.mkfifo(saved / "2" / "manifest.json")
    assert CheckpointManager(saved).restore(STATE).step == 1
    (saved / "2" / "manifest.json").unlink()


def test_huge_declared_leaves_are_not_allocated(saved, body):
    """Even when reading without a target."""
    place = next(i for i, leaf in enumerate(body["leaves"]) if leaf["path"] == "w")

    def read(shape):
        huge = changed(body, ("leaves", place, "shape"), shape)
        write(saved / "2", changed(huge, ("leaves", place, "stored_shape"), shape))
        return CheckpointManager(saved).read()

    for impossible in ([2**62, 2**62], [2**20] * 100):
        found = read(impossible)
        assert found.step == 1 and "a leaf of its manifest" in found.warnings[0]
    with pytest.raises(UserError, match="2' is 4,096.0 GiB, too large to be read"):
        read([2**40])


def test_intact_checkpoint_that_is_too_large_for_memory_is_not_called_damaged(saved, monkeypatch):
    monkeypatch.setattr(host_memory, "available", lambda: 10)
    with pytest.raises(UserError, match="too large to be read: .* available"):
        CheckpointManager(saved).restore(STATE, 1)


def test_duplicate_leaf_paths_are_damage(saved, body):
    write(saved / "2", changed(body, ("leaves", 1, "path"), body["leaves"][0]["path"]))
    with pytest.raises(CorruptCheckpointError, match="two leaves of the same path"):
        manager.read_manifest(saved / "2")


METADATA = {
    "elapsed": 1.5,
    "devices": 1,
    "settings": {"seed": 0},
    "best": None,
    "episodes": 3,
    "losses": [[1.0, 2.0]],
    "recent": [0.5],
    "last_evaluation": {"eval/mean_reward": 1.0},
}


def test_wrongly_typed_metadata_falls_back(saved, body):
    resume.check_metadata(0, METADATA)
    resume.check_metadata(0, {})
    allowed = {"elapsed": (-1, 1.5, 2**70), "devices": (), "settings": ({}, {"x": 1})}
    allowed |= {"best": (None, -1, 1.5, 2**70), "episodes": (), "losses": ([],)}
    allowed |= {"recent": ([], [-1], [2**40, 2**40]), "last_evaluation": ({}, {"x": 1})}
    for name in METADATA:
        for value in WRONG:
            if any(type(value) is type(v) and value == v for v in allowed[name]):
                continue
            with pytest.raises(CorruptCheckpointError, match=f"its metadata has '{name}'"):
                resume.check_metadata(0, METADATA | {name: value})
    write(saved / "2", body | {"metadata": {"best": "x"}})
    check = lambda metadata: resume.check_metadata(0, metadata)  # noqa: E731
    assert CheckpointManager(saved).restore(STATE, check_metadata=check).step == 1


def test_metadata_of_every_member_is_checked(saved):
    whole = METADATA | {"members": [METADATA] * 2, "settings_of_members": [{}] * 2}
    resume.check_metadata(2, whole)
    for change in (
        {"members": [METADATA]},
        {"members": "xx"},
        {"members": [METADATA, {"best": "x"}]},
        {"members": [METADATA, []]},
        {"settings_of_members": [{}, []]},
        {"settings_of_members": [{}] * 3},
    ):
        with pytest.raises(CorruptCheckpointError):
            resume.check_metadata(2, whole | change)
