"""Showing what happens in a world: pictures without a graphics driver, and pages in 3-D."""
