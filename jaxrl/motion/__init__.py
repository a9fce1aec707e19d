"""Reference motions: clips and their formats, libraries on the device, humanoids, metrics.

`library.load_clips` reads motion files and `library.build` puts them on the device; `Humanoid`
simulates the model that tracks them. Nothing here knows environments.
"""

from typing import TYPE_CHECKING

from jaxrl.utils import lazy

if TYPE_CHECKING:
    from jaxrl.motion.clip import Clip, Plan
    from jaxrl.motion.humanoid import Humanoid
    from jaxrl.motion.library import Library, Reference, load_clips
    from jaxrl.motion.skeleton import Skeleton, load_model

__all__ = [
    "Clip",
    "Humanoid",
    "Library",
    "Plan",
    "Reference",
    "Skeleton",
    "load_clips",
    "load_model",
]

__getattr__ = lazy.exports(
    __name__,
    {
        "Clip": "clip",
        "Humanoid": "humanoid",
        "Library": "library",
        "Plan": "clip",
        "Reference": "library",
        "Skeleton": "skeleton",
        "load_clips": "library",
        "load_model": "skeleton",
    },
)
