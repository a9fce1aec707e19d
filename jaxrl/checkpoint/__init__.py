"""The full training state on disk: written in the background, verified, pruned."""
