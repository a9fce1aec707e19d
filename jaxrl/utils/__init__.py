"""Helpers that know nothing of reinforcement learning.

Files (atomic_io, npz), memory (host_memory, device_memory), statistics (stats), text (formatting),
pytrees and devices (trees, sharding, streams), XLA (xla_flags, xla_options, profiling).
"""

__all__ = [
    "atomic_io",
    "device_memory",
    "formatting",
    "host_memory",
    "npz",
    "profiling",
    "sharding",
    "stats",
    "streams",
    "trees",
    "xla_flags",
    "xla_options",
]
