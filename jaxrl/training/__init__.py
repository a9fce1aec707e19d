"""The host loop: the only package with side effects on a run.

Reading order: `fit` (build, start or resume), `loop` (the cycles), `cycle` (what happens between
two of them), `run` (its members and when something is due), `finalize` (how it ends).

`jaxrl.fit` and `jaxrl.resume` are the functions of that name in `fit`.
"""

from jaxrl.training.run import Exchange
from jaxrl.training.summary import Result

__all__ = ["Exchange", "Result"]
