"""Everything with side effects: the host loop, checkpoints, evaluation, sinks."""
