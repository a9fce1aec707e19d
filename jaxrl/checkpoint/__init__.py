"""Checkpoints of the full training state.

`CheckpointManager` saves in the background, verifies digests when it restores, and prunes old
steps. `snapshot` turns a pytree into named arrays, `array_io` writes them with Orbax.
"""

from jaxrl.checkpoint.manager import CheckpointManager, Restored, StoredCheckpoint
from jaxrl.checkpoint.snapshot import CheckpointError, CorruptCheckpointError

__all__ = [
    "CheckpointError",
    "CheckpointManager",
    "CorruptCheckpointError",
    "Restored",
    "StoredCheckpoint",
]
