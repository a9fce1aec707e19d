"""Helpers that know nothing of reinforcement learning; import the modules you need.

Files (atomic_io, npz), memory (host_memory, device_memory), statistics (stats), text (formatting),
pytrees and devices (trees, sharding, streams), XLA (xla_flags, xla_options, profiling).
"""
