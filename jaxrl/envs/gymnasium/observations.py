"""Observations of Gymnasium environments, as networks take them.

    Box of bytes with 2 or 3 axes    image, uint8 [height, width, channels]
    other Box                        vector, float32
    Discrete                         one-hot vector, float32
    Dict of these                    dict of these; `action_mask` in it stays bytes, 1 if valid

Nothing here imports JAX: processes of environments use it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrl.config.obs_keys import ACTION_MASK

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Space

Obs = Any  # an array, or a dict of arrays; [environments, ...]


def unsupported(space: "Space") -> "Space | None":
    """Return the part of a space that cannot be observed; None if all of it can."""
    from gymnasium.spaces import Box, Dict, Discrete

    if isinstance(space, Dict):
        parts = [part for key, part in space.spaces.items() if key != ACTION_MASK]
        return next((part for part in parts if not isinstance(part, Box | Discrete)), None)
    return None if isinstance(space, Box | Discrete) else space


def shapes(space: Any) -> Any:
    """Return (shape, dtype) of one observation, in a dict if the space is one."""
    from gymnasium.spaces import Dict, Discrete

    if isinstance(space, Dict):
        return {
            key: (part.shape, np.uint8) if key == ACTION_MASK else shapes(part)
            for key, part in space.spaces.items()
        }
    if isinstance(space, Discrete):
        return (int(space.n),), np.float32
    if is_image(space):
        return as_image(space, np.zeros((1, *space.shape), np.uint8)).shape[1:], np.uint8
    return (int(np.prod(space.shape)),), np.float32


def convert(space: Any, obs: Any) -> Obs:
    """Return observations of all environments of a group."""
    from gymnasium.spaces import Dict, Discrete

    if isinstance(space, Dict):
        return {
            key: np.asarray(obs[key], np.uint8) if key == ACTION_MASK else convert(part, obs[key])
            for key, part in space.spaces.items()
        }
    obs = np.asarray(obs)
    if isinstance(space, Discrete):
        return np.eye(int(space.n), dtype=np.float32)[obs - space.start]
    if is_image(space):
        return as_image(space, obs)
    with np.errstate(over="ignore"):
        return obs.reshape(len(obs), -1).astype(np.float32)


def is_image(space: "Box") -> bool:
    """Tell whether a box is an image: bytes with two or three axes."""
    return space.dtype == np.uint8 and len(space.shape) in (2, 3)


def as_image(space: "Box", obs: np.ndarray) -> np.ndarray:
    """Return images with their channels last: [environments, height, width, channels]."""
    if len(space.shape) == 2:
        return obs[..., None]
    channels_first = space.shape[0] < min(space.shape[1:])
    return np.moveaxis(obs, 1, -1) if channels_first else obs


def map_parts(function: Callable, *obs: Obs) -> Obs:
    """Apply a function to every part of observations."""
    if isinstance(obs[0], dict):
        return {key: function(*(each[key] for each in obs)) for key in obs[0]}
    return function(*obs)


def each_env(function: Callable[[np.ndarray], np.ndarray], obs: Obs) -> np.ndarray:
    """Return bool [environments]: whether a function of elements is true for all of them."""
    parts = obs.values() if isinstance(obs, dict) else [obs]
    found = [function(part).reshape(len(part), -1).all(axis=1) for part in parts]
    return np.logical_and.reduce(found)
