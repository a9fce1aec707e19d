"""Trained policies and rewards as files: save, load, export."""
