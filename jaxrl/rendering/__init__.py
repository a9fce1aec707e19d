"""Recorded episodes as images, videos and interactive 3-D pages.

`run.render_run` plays the policy of a run and writes a file; `episodes` records, `video` draws.
This module imports no JAX: the command lines need only the suffixes.
"""

__all__ = ["SUFFIXES"]

SUFFIXES = (".html", ".gif", ".mp4", ".png")
