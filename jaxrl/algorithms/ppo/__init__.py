"""Proximal policy optimisation: `algorithm.train_step` first, then `batch`, `update` and `loss`."""
