"""Helpers that know nothing of reinforcement learning: files, memory, sharding, statistics."""
