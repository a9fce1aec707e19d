"""Worlds: Brax environments by name, our own, and the layer that vectorises them."""
