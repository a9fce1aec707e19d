"""Recorded episodes as images, videos and 3-D pages."""

SUFFIXES = (".html", ".gif", ".mp4", ".png")
