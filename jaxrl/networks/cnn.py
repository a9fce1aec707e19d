"""Image observations: which parts are images, and a CNN that maps them to features."""

import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree

# (channels, kernel size, stride).  Mnih et al., 2015.
_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_FEATURES = 512


class ImageObs(NamedTuple):
    """An observation with images: [..., height, width, channels] each, and a vector [..., n]."""

    images: tuple[Array, ...]
    vector: Array


def is_image(leaf: jax.ShapeDtypeStruct) -> bool:
    """Return whether a part of an observation is an image: uint8 [height, width, channels]."""
    return leaf.dtype == jnp.uint8 and len(leaf.shape) == 3


def split(obs: PyTree, shapes: PyTree) -> ImageObs:
    """Split an observation into images and one vector, by the shapes of its parts."""
    leaves, kinds = jax.tree.leaves(obs), [is_image(s) for s in jax.tree.leaves(shapes)]
    images = tuple(leaf for leaf, image in zip(leaves, kinds, strict=True) if image)
    vectors = [leaf for leaf, image in zip(leaves, kinds, strict=True) if not image]
    lead = images[0].shape[:-3]
    joined = jnp.concatenate(vectors, axis=-1) if vectors else jnp.zeros((*lead, 0), jnp.float32)
    return ImageObs(images, joined)


def layer_sizes(shapes: PyTree) -> list[int]:
    """Return how many numbers each layer makes of the images of one observation."""
    images = [leaf for leaf in jax.tree.leaves(shapes) if is_image(leaf)]
    sizes = []
    for height, width, _ in (image.shape for image in images):
        for channels, _, stride in _LAYERS:
            height, width = math.ceil(height / stride), math.ceil(width / stride)
            sizes.append(height * width * channels)
        sizes.append(_FEATURES)
    return sizes


def image_change(before: ImageObs, after: ImageObs) -> ImageObs:
    """Return s and s − s' side by side, as channels and as features."""
    images = tuple(
        with_change(_as_float(a), _as_float(b))
        for a, b in zip(before.images, after.images, strict=True)
    )
    return ImageObs(images, with_change(before.vector, after.vector))


def with_change(before: Array, after: Array) -> Array:
    """Return s and s − s' side by side, along the last axis."""
    # uint8 would wrap: 0 − 1 = 255.
    before, after = before.astype(jnp.float32), after.astype(jnp.float32)
    return jnp.concatenate([before, before - after], axis=-1)


def _as_float(image: Array) -> Array:
    """Return a uint8 image scaled to [0, 1]; other images as they are."""
    return image.astype(jnp.float32) / 255.0 if image.dtype == jnp.uint8 else image


def make() -> "CNN":
    """Return the layers, inside a network's compact method."""
    return CNN(name="Pixels_0")  # in saved policies and checkpoints; first weights follow from it


def encode(obs: Array | ImageObs) -> Array:
    """Return an observation as a vector, inside a network's compact method."""
    return make()(obs) if isinstance(obs, ImageObs) else obs


class CNN(nn.Module):
    """Convolutions for each image, then all features side by side."""

    @nn.compact
    def __call__(self, obs: ImageObs) -> Array:
        """Return [..., vector + features of every image]."""
        parts = [obs.vector]
        for x in map(_as_float, obs.images):
            for channels, width, stride in _LAYERS:
                x = nn.relu(nn.Conv(channels, (width, width), (stride, stride))(x))
            x = x.reshape(*x.shape[:-3], -1)
            parts.append(nn.relu(nn.Dense(_FEATURES)(x)))
        return jnp.concatenate(parts, axis=-1)
