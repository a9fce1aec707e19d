"""Running mean and variance of any tree of arrays, as pure state."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array, PyTree

CLIP = 10.0  # the default, as in VecNormalize


class RunningStats(struct.PyTreeNode):
    """Count, mean and (population) variance of all data so far."""

    count: Array  # float32, shape ()
    mean: PyTree
    variance: PyTree
    clip: float = struct.field(pytree_node=False, default=CLIP)  # of normalised values, ±


def init(example: PyTree, clip: float = CLIP) -> RunningStats:
    """Return empty statistics: mean 0 and variance 1, so that normalising changes nothing."""
    return RunningStats(
        count=jnp.zeros((), jnp.float32),
        mean=jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), example),
        variance=jax.tree.map(lambda x: jnp.ones(x.shape, jnp.float32), example),
        clip=clip,
    )


def update(stats: RunningStats, batch: PyTree) -> RunningStats:
    """Merge a batch with any leading axes (Chan et al.: exact for any split of the data).

    m = m_a + d·w,   v = (1−w) v_a + w v_b + d² w (1−w),   w = n_b / (n_a + n_b),  d = m_b − m_a
    """
    leaf, mean = jax.tree.leaves(batch)[0], jax.tree.leaves(stats.mean)[0]
    number = leaf.size / max(mean.size, 1)
    count = stats.count + number
    weight = number / count

    def merge(old_mean: Array, old_variance: Array, x: Array) -> tuple[Array, Array]:
        if not _has_scale(x):
            return old_mean, old_variance
        axes = tuple(range(x.ndim - old_mean.ndim))
        x = x.astype(jnp.float32)
        mean_b = jnp.mean(x, axes)
        # Two passes: E[x²] − E[x]² would cancel for far-off means.
        variance_b = jnp.mean(jnp.square(x - mean_b.reshape((1,) * len(axes) + mean_b.shape)), axes)
        gap = mean_b - old_mean
        variance = (1 - weight) * old_variance + weight * variance_b
        return old_mean + gap * weight, variance + jnp.square(gap) * weight * (1 - weight)

    merged = jax.tree.map(merge, stats.mean, stats.variance, batch)
    mean, variance = jax.tree.transpose(
        jax.tree.structure(stats.mean), jax.tree.structure((0, 0)), merged
    )
    return _if_finite(stats.replace(count=count, mean=mean, variance=variance), stats)


def _if_finite(new: RunningStats, old: RunningStats) -> RunningStats:
    """Return the new statistics, or the old ones if a value was too large to square.

    Statistics never forget: one infinite variance would spoil the observations of the whole run.
    """
    sums = [jnp.sum(leaf) for leaf in jax.tree.leaves(new)]
    finite = jnp.all(jnp.isfinite(jnp.stack(sums)))
    return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)


def _has_scale(x: Array) -> bool:
    return x.dtype != jnp.uint8


def std(stats: RunningStats) -> PyTree:
    """Return the standard deviations, never zero."""
    return jax.tree.map(lambda v: jnp.sqrt(v + 1e-8), stats.variance)


def normalize(stats: RunningStats, x: PyTree) -> PyTree:
    """Return (x − mean) / std within ±clip; leading axes of x are free.

    While the count is 0, x is returned unchanged. So are uint8 leaves, which are tokens or images.
    """

    def scale(leaf: Array, mean: Array, deviation: Array) -> Array:
        if not _has_scale(leaf):
            return leaf
        shape = (1,) * (leaf.ndim - mean.ndim) + mean.shape
        leaf = leaf.astype(jnp.float32)
        z = (leaf - mean.reshape(shape)) / deviation.reshape(shape)
        return jnp.where(stats.count > 0, jnp.clip(z, -stats.clip, stats.clip), leaf)

    return jax.tree.map(scale, x, stats.mean, std(stats))
