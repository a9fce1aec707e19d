"""Where a run writes: metric sinks, the console, the evaluation log and the run folder.

A sink is a function of (environment steps, metrics); `open_sinks` opens those of a run, `run_dir`
creates, locks and reads run folders. This module imports no JAX.
"""

from jaxrl.loggers import run_dir
from jaxrl.loggers.sinks import Sink, open_sinks, read_jsonl

__all__ = ["Sink", "open_sinks", "read_jsonl", "run_dir"]
