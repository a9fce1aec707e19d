"""Where a run writes: its folder, metrics, evaluations, the console."""
