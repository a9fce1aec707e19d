"""Pictures: what is seen as pictures and what as numbers, and how pictures become numbers."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

# (channels, width of the window, stride).  Mnih et al., 2015.
_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_FEATURES = 512


class Seen(NamedTuple):
    """An observation with pictures: [..., height, width, channels] each, and [..., numbers]."""

    pictures: tuple[Array, ...]
    numbers: Array


def is_picture(leaf: jax.ShapeDtypeStruct) -> bool:
    """Tell pictures from other parts of an observation: bytes with height, width and channels."""
    return leaf.dtype == jnp.uint8 and len(leaf.shape) == 3


def split(obs: PyTree, shapes: PyTree) -> Seen:
    """Sort the parts of an observation, whose shapes for one agent are known."""
    leaves, kinds = jax.tree.leaves(obs), [is_picture(s) for s in jax.tree.leaves(shapes)]
    pictures = tuple(leaf for leaf, picture in zip(leaves, kinds, strict=True) if picture)
    numbers = [leaf for leaf, picture in zip(leaves, kinds, strict=True) if not picture]
    lead = pictures[0].shape[:-3]
    joined = jnp.concatenate(numbers, axis=-1) if numbers else jnp.zeros((*lead, 0), jnp.float32)
    return Seen(pictures, joined)


def change(before: Seen, after: Seen) -> Seen:
    """Return what is seen together with how it changes: s and s − s'."""
    pictures = tuple(
        with_change(_light(a), _light(b))
        for a, b in zip(before.pictures, after.pictures, strict=True)
    )
    return Seen(pictures, with_change(before.numbers, after.numbers))


def with_change(before: Array, after: Array) -> Array:
    """Return numbers beside how they change, s and s − s', along the last axis."""
    # Bytes would wrap: 0 − 1 = 255.
    before, after = before.astype(jnp.float32), after.astype(jnp.float32)
    return jnp.concatenate([before, before - after], axis=-1)


def _light(picture: Array) -> Array:
    """Return bytes as numbers from 0 to 1; other pictures as they are."""
    return picture.astype(jnp.float32) / 255.0 if picture.dtype == jnp.uint8 else picture


class Pixels(nn.Module):
    """Convolutions for each picture, then all numbers side by side."""

    @nn.compact
    def __call__(self, seen: Seen) -> Array:
        """Return [..., numbers + features of every picture]."""
        parts = [seen.numbers]
        for x in map(_light, seen.pictures):
            for channels, width, stride in _LAYERS:
                x = nn.relu(nn.Conv(channels, (width, width), (stride, stride))(x))
            x = x.reshape(*x.shape[:-3], -1)
            parts.append(nn.relu(nn.Dense(_FEATURES)(x)))
        return jnp.concatenate(parts, axis=-1)
