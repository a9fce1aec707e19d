"""Where a run writes: metric sinks, the console, the evaluation log and the run folder.

A sink is a function of (environment steps, metrics); `sinks.open_sinks` opens those of a run.
`run_dir` creates, locks and reads run folders. This module imports no JAX.
"""

__all__ = ["console", "eval_log", "lock_file", "metrics_log", "run_dir", "sinks", "tensorboard"]
