"""What lies beside the arrays of a checkpoint: its leaves, with digests, and what the host knew."""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from jaxrl import files
from jaxrl.errors import first_line
from jaxrl.runtime import snapshot
from jaxrl.runtime.snapshot import DamagedError

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
    files.write_text(folder / _FILE, json.dumps({"digest": _body_digest(body), "body": body}))
    sync(folder)


def read(folder: Path) -> Manifest:
    """Read it back; raise DamagedError unless it is what was written."""
    try:
        document = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        body = document["body"]
        if document["digest"] != _body_digest(body):
            raise DamagedError(f"{_FILE} does not match its digest")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{_FILE} cannot be read ({first_line(error)})") from error
    if body["format"] != _FORMAT:
        raise DamagedError(f"format {body['format']} is unknown to this version of jaxrl")
    leaves = [snapshot.Leaf.from_json(leaf) for leaf in body["leaves"]]
    return Manifest(body["metadata"], body["metric"], leaves)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
