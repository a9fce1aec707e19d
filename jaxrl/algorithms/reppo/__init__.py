"""Relative entropy pathwise policy optimisation: `algorithm.train_step` first, then `batch`,
`update` and `loss`.
"""
