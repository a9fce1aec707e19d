"""HTML reports and plots of run folders.

`pages.write` makes a page about one or more runs from what `load_runs` reads; `plots` draws PNGs.
This module imports no JAX.
"""

__all__ = ["clips", "load_runs", "pages", "plots"]
