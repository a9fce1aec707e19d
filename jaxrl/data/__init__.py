"""Recorded episodes in robomimic's HDF5 layout.

`hdf5` reads and writes episodes; a `Dataset` holds what `scan` found in them, and passes them to
the device in chunks that fit, as replay buffers.
"""

from jaxrl.data.dataset import Dataset, scan
from jaxrl.data.hdf5 import Episode, EpisodeRef

__all__ = ["Dataset", "Episode", "EpisodeRef", "scan"]
