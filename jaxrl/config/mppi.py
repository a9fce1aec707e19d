"""Settings of the search for feasible motion; like all settings, without JAX."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MPPIConfig:
    """Settings of the search for a plan."""

    samples: int = 300
    """Sequences sampled in every round."""
    frames: int = 20
    """Length of the sequences, in frames."""
    rounds: int = 3
    """Rounds for each frame, each sampled more narrowly than the one before."""
    action_range: float = 0.5
    """Largest offset of servo targets from the clip's pose, in radians."""
    spread: float = 0.4
    """Standard deviation of the first round's samples, as a fraction of the action range."""
    seed: int = 0
    """Seed of the samples."""
