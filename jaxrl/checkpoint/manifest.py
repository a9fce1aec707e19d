"""What lies beside the arrays of a checkpoint: its leaves, with digests, and what the host knew."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.checkpoint import snapshot
from jaxrl.checkpoint.snapshot import CorruptCheckpointError
from jaxrl.errors import UserError, first_line
from jaxrl.utils import atomic_io

_FORMAT = 1
_FILE = "manifest.json"


class Manifest(NamedTuple):
    """What is known of one checkpoint."""

    metadata: dict
    metric: float | None
    leaves: list[snapshot.Leaf]


def _body_digest(body: dict) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder, down to the disk."""
    leaves = [leaf._asdict() for leaf in manifest.leaves]
    body = {"format": _FORMAT, **manifest._asdict(), "leaves": leaves}
    atomic_io.write_text(folder / _FILE, json.dumps({"digest": _body_digest(body), "body": body}))
    sync(folder)


def read(folder: Path) -> Manifest:
    """Read it back; raise DamagedError unless it is what was written."""
    try:
        document = json.loads(atomic_io.read_text(folder / _FILE))
        body = document["body"]
        whole = document["digest"] == _body_digest(body)
    except (UserError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(f"{_FILE} cannot be read ({first_line(error)})") from error
    if not whole:
        raise CorruptCheckpointError(f"{_FILE} does not match its digest")
    return _parsed(body)


def _parsed(body: Any) -> Manifest:
    """Check what a manifest says: a digest proves only that nothing was changed by accident."""
    if not isinstance(body, dict):
        raise CorruptCheckpointError(f"{_FILE} holds {body!r:.40}, not an object")
    if body.get("format") != _FORMAT or isinstance(body["format"], bool):
        raise CorruptCheckpointError(
            f"format {body.get('format')!r:.40} is unknown to this version of jaxrl"
        )
    metadata, metric, leaves = (body.get(name) for name in ("metadata", "metric", "leaves"))
    if not isinstance(metadata, dict) or not isinstance(leaves, list):
        raise CorruptCheckpointError(f"{_FILE} has no metadata, or no list of leaves")
    if metric is not None and not snapshot.is_number(metric):
        raise CorruptCheckpointError(
            f"{_FILE} has the metric {metric!r:.40}, which is not a finite number"
        )
    parsed = [snapshot.Leaf.from_json(leaf) for leaf in leaves]
    if len({leaf.path for leaf in parsed}) < len(parsed):
        raise CorruptCheckpointError(f"{_FILE} has two leaves of the same path")
    return Manifest(metadata, metric, parsed)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
