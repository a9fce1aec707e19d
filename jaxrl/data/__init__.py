"""Recorded episodes: reading, keeping and writing them."""
