"""Where arrays live: rows of environments are split over devices, all else is replicated.

The maths never sees a device axis. Placing the state is enough: the compiler then splits the
environments and averages gradients and statistics over all of them.

Of a population it is the members that are split: they have nothing to tell each other.
"""

import os
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jaxrl.types import PyTree, TrainState

_DEV = Path("/dev")


def make_mesh(number: int | None = None) -> Mesh:
    """Return a one-dimensional mesh of local devices."""
    devices = jax.local_devices()
    return Mesh(np.array(devices[: number or len(devices)]), ("data",))


def rows(mesh: Mesh) -> Sharding:
    """Split the first axis over the devices."""
    return _place(mesh, PartitionSpec("data"))


def unused_gpu() -> str | None:
    """Say that there is an NVIDIA GPU that JAX does not use, unless the user wants it so."""
    asked = os.environ.get("JAX_PLATFORMS") or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if asked or jax.local_devices()[0].platform != "cpu" or not any(_DEV.glob("nvidia[0-9]*")):
        return None
    return (
        "warning: this machine has an NVIDIA GPU, but JAX runs on the CPU: pip install "
        "'jaxrl[gpu]' adds JAX for CUDA (JAX_PLATFORMS=cpu hides this warning)"
    )


def in_words(mesh: Mesh) -> str:
    """Return how many devices there are, and what they are."""
    return f"{mesh.size} × {mesh.devices.flat[0].device_kind}"


def replicated(mesh: Mesh) -> Sharding:
    """Keep a full copy on every device."""
    return _place(mesh, PartitionSpec())


def _place(mesh: Mesh, spec: PartitionSpec) -> Sharding:
    """Return a place on the mesh; one device is no mesh.

    JAX counts the mesh among the types of arrays, and traces physics anew for other types: where
    there is none, the trace that described the environment serves training too.
    """
    if mesh.size == 1:
        return SingleDeviceSharding(mesh.devices.flat[0])
    return NamedSharding(mesh, spec)


def shardings(mesh: Mesh, state: TrainState) -> TrainState:
    """Return where every leaf of a training state lives."""
    everywhere = jax.tree.map(lambda _: replicated(mesh), state)
    split = jax.tree.map(lambda _: rows(mesh), state.collector)
    return everywhere.replace(collector=split)


def abstract(mesh: Mesh, state: TrainState) -> TrainState:
    """Return shapes, types and places of a training state without its numbers."""
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        state,
        shardings(mesh, state),
    )


def placed(tree: PyTree, place: Sharding) -> PyTree:
    """Return shapes and types of a tree, all in one place."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), tree
    )


def split_rows(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Ask the compiler to split rows inside a program."""
    if mesh is None or mesh.size == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, jax.tree.map(lambda _: rows(mesh), tree))


def copies(tree: PyTree, number: int, mesh: Mesh) -> PyTree:
    """Give every array a first axis of members, split over the devices."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((number, *leaf.shape), leaf.dtype, sharding=rows(mesh)),
        tree,
    )


def for_copies(function: Callable, mesh: Mesh, *axes: int | None) -> Callable:
    """Return a function for all members at once; axes are 0 where arguments differ by member."""
    many = jax.vmap(function, in_axes=axes)
    if mesh.size == 1:
        return many
    split = tuple(PartitionSpec() if axis is None else PartitionSpec("data") for axis in axes)
    # Each device runs its own members to their own end: loops need not wait for other devices.
    return jax.shard_map(
        many, mesh=mesh, in_specs=split, out_specs=PartitionSpec("data"), check_vma=False
    )
