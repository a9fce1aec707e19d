"""Complete episodes of a policy and their metrics.

`episodes` plays them inside a compiled program, `gymnasium` in environments on the CPU; `recording`
keeps every step, and `analysis` evaluates what was recorded.
"""

from jaxrl.evaluation.episodes import Episodes, summarize

__all__ = ["Episodes", "summarize"]
