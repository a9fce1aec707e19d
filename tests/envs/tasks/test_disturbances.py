"""Pushes and recoveries, as pure functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.tasks import disturbances


def test_pushes_change_the_horizontal_velocity_at_random():
    qvel = jnp.arange(8.0)
    keys = jax.random.split(jax.random.key(0), 4000)
    push = jax.jit(jax.vmap(lambda key: disturbances.pushed(key, qvel, 0.5, 0.1) - qvel))
    change = np.asarray(push(keys))
    assert not change[:, 2:].any()
    size = np.linalg.norm(change[:, :2], axis=1)
    hit = size > 0
    assert 0.08 < hit.mean() < 0.12
    np.testing.assert_allclose(size[hit], 0.5, rtol=1e-4)
    counts, _ = np.histogram(np.arctan2(change[hit, 1], change[hit, 0]), 4, (-np.pi, np.pi))
    assert counts.min() > 0.18 * hit.sum()


def test_fallen_poses_turn_about_the_vertical():
    pose = jnp.asarray([9.0, 9.0, 0.2, *np.sqrt([0.5, 0.5, 0, 0]), 3.0, 4.0])  # x up by 90°
    found = disturbances.lying_at(pose, jnp.float32(np.pi / 2), jnp.asarray([1.0, 2.0, 0.9]))
    np.testing.assert_allclose(found, [1, 2, 0.2, 0.5, 0.5, 0.5, 0.5, 3, 4], atol=1e-6)


@pytest.mark.parametrize(
    "left, farthest, expected",
    [
        (0.0, 0.1, (0.0, False, False)),  # none is going on
        (0.0, 9.0, (0.0, False, False)),
        (1.0, 9.0, (0.9, True, False)),
        (1.0, 0.24, (0.0, True, True)),  # near: half of the limit
        (1.0, 0.26, (0.9, True, False)),
        (0.1, 9.0, (0.0, True, False)),  # time is up
        (0.1, 0.1, (0.0, True, True)),
        (1.0, np.nan, (0.9, True, False)),
    ],
)
def test_recoveries_end_when_near_or_late(left, farthest, expected):
    distances = jnp.asarray([0.0, farthest, 0.1])
    found = disturbances.advance(jnp.float32(left), distances, limit=0.5, step=0.1)
    assert (pytest.approx(float(found.left)), bool(found.waits), bool(found.succeeded)) == expected
