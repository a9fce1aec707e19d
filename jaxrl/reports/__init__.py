"""HTML reports and plots of run folders.

`pages.write` makes a page about one or more runs from what `load_runs` reads; `plots` draws PNGs,
`clips` reports on motion clips. This module imports no JAX.
"""

from jaxrl.reports import load_runs, pages

__all__ = ["load_runs", "pages"]
