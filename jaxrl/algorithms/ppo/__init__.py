"""Proximal policy optimisation: rollout, advantages, minibatches, loss, statistics."""
