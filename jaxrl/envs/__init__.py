"""Environments: by name, and the layer that vectorises them."""
