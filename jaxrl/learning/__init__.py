"""The mathematics of reinforcement learning: arrays in, arrays out.

Losses, advantages, targets, distributions, running statistics, optimiser steps and replay. Modules
here know no configuration, network, environment or file.
"""

from jaxrl.learning import (
    discriminator,
    distributions,
    episode_index,
    exploration,
    gae,
    losses,
    minibatch,
    normalizer,
    optimizer,
    prioritized_sampling,
    replay_buffer,
    return_scale,
    reward_regression,
    rrd,
    schedules,
    sde,
    segments,
    td,
)

__all__ = [
    "discriminator",
    "distributions",
    "episode_index",
    "exploration",
    "gae",
    "losses",
    "minibatch",
    "normalizer",
    "optimizer",
    "prioritized_sampling",
    "replay_buffer",
    "return_scale",
    "reward_regression",
    "rrd",
    "schedules",
    "sde",
    "segments",
    "td",
]
