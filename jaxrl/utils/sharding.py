"""Shardings: rows of environments are split over devices, everything else is replicated.

Algorithms never see a device axis. Placing the state is enough: the compiler then splits the
environments and averages gradients and statistics over all of them.

A population is split by members: they share nothing.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jaxrl.errors import install
from jaxrl.types import PyTree, TrainState

_DEV = Path("/dev")


def make_mesh(number: int | None = None) -> Mesh:
    """Return a one-dimensional mesh of the devices of all processes, each process's in a row."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices[: number or len(devices)]), ("data",))


def rows(mesh: Mesh) -> Sharding:
    """Return the sharding that splits the first axis over the devices."""
    return _sharding(mesh, PartitionSpec("data"))


def columns(mesh: Mesh) -> Sharding:
    """Return the sharding that splits the second axis, as in time-major arrays."""
    return _sharding(mesh, PartitionSpec(None, "data"))


def local_places(mesh: Mesh) -> list[int]:
    """Return the places of this process's devices in the mesh."""
    own = jax.process_index()
    return [i for i, device in enumerate(mesh.devices.flat) if device.process_index == own]


def unused_gpu() -> str | None:
    """Return a warning if JAX ignores an NVIDIA GPU and the user did not choose that."""
    chosen = os.environ.get("JAX_PLATFORMS") or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if chosen or jax.local_devices()[0].platform != "cpu" or not any(_DEV.glob("nvidia[0-9]*")):
        return None
    return (
        "warning: this machine has an NVIDIA GPU, but JAX runs on the CPU: "
        f"{install('gpu')} adds JAX for CUDA (JAX_PLATFORMS=cpu hides this warning)"
    )


def describe(mesh: Mesh) -> str:
    """Return number and kind of the devices, as "8 × NVIDIA H200"."""
    return f"{mesh.size} × {mesh.devices.flat[0].device_kind}"


def replicated(mesh: Mesh) -> Sharding:
    """Return the sharding with a full copy on every device."""
    return _sharding(mesh, PartitionSpec())


def _sharding(mesh: Mesh, spec: PartitionSpec) -> Sharding:
    """Return a sharding on the mesh; on one device, a sharding without a mesh.

    The mesh is part of an array's type in JAX, and other types are traced again. Without a mesh,
    training reuses the trace that described the environment.
    """
    if mesh.size == 1:
        return SingleDeviceSharding(mesh.devices.flat[0])
    return NamedSharding(mesh, spec)


def shardings(mesh: Mesh, state: TrainState) -> TrainState:
    """Return the sharding of every leaf of a training state."""
    copied = jax.tree.map(lambda _: replicated(mesh), state)
    split = jax.tree.map(lambda _: rows(mesh), state.collector)
    return copied.replace(collector=split)


def abstract(mesh: Mesh, state: TrainState) -> TrainState:
    """Return shapes, dtypes and shardings of a training state."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        shardings(mesh, state),
    )


def with_sharding(tree: PyTree, sharding: Sharding) -> PyTree:
    """Return shapes and dtypes of a tree, all with one sharding."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def put(value: Any, sharding: Sharding) -> jax.Array:
    """Place an array that every process has; it owns its memory, since cycles donate theirs."""
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding, may_alias=False)
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = put(np.asarray(jax.random.key_data(value)), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    data = np.asarray(value)
    return jax.make_array_from_callback(data.shape, sharding, lambda index: data[index].copy())


def put_local(tree: PyTree, place: Sharding) -> PyTree:
    """Place arrays of which every process has the rows of its own devices, in order.

    Arrays for a single device stay on the CPU: the program that takes them copies them.
    """
    if isinstance(place, SingleDeviceSharding):
        return tree
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(place, leaf), tree)


def local_rows(tree: PyTree) -> PyTree:
    """Copy the rows of arrays that lie on this process to the CPU, in order."""

    def own(array: jax.Array) -> Any:
        if array.is_fully_addressable:
            return array
        parts = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
        return np.concatenate(jax.device_get([parts[first] for first in sorted(parts)]))

    return jax.device_get(jax.tree.map(own, tree))


def put_like(old: jax.Array, value: Any) -> jax.Array:
    """Return a value with the dtype, shape and sharding of an old array.

    The array owns its memory: the next cycle donates it.
    """
    new = np.broadcast_to(np.asarray(value).astype(old.dtype), old.shape)
    return put(new, old.sharding)


def split_rows(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Constrain rows inside a compiled program to be split over the devices."""
    if mesh is None or mesh.size == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, jax.tree.map(lambda _: rows(mesh), tree))


def with_member_axis(tree: PyTree, number: int, mesh: Mesh) -> PyTree:
    """Return shapes with a first axis of `number` members, split over the devices."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((number, *leaf.shape), leaf.dtype, sharding=rows(mesh)),
        tree,
    )


def vmap_members(function: Callable, mesh: Mesh, *axes: int | None) -> Callable:
    """Return a function of all members; axes are 0 where arguments differ by member."""
    many = jax.vmap(function, in_axes=axes)
    if mesh.size == 1:
        return many
    split = tuple(PartitionSpec() if axis is None else PartitionSpec("data") for axis in axes)
    # Each device runs its own members to their own end: loops need not wait for other devices.
    return jax.shard_map(
        many, mesh=mesh, in_specs=split, out_specs=PartitionSpec("data"), check_vma=False
    )
