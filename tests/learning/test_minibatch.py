"""Check that minibatches cover every row once and match plain indexing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import minibatch
from jaxrl.types import Mean

# rows, minibatches, shards
SIZES = [
    (1, 1, 1),
    (8, 1, 1),
    (8, 8, 1),
    (12, 3, 1),
    (12, 3, 2),
    (32, 4, 8),
    (24, 2, 4),
    (24, 6, 4),
]


def _global_rows(rows, num_rows, num_shards):
    """Return the row numbers in the whole batch of local indices [..., shards, R]."""
    first = np.arange(num_shards) * (num_rows // num_shards)
    return np.asarray(rows) + first[:, None]


@pytest.mark.parametrize(("num_rows", "num_minibatches", "num_shards"), SIZES)
def test_every_row_exactly_once(num_rows, num_minibatches, num_shards):
    rows = minibatch.shuffled_rows(jax.random.key(3), num_rows, num_minibatches, num_shards)
    # The shape shows that every minibatch takes equally many rows of every shard,
    assert rows.shape == (num_minibatches, num_shards, num_rows // (num_minibatches * num_shards))
    # and the range shows that indices are local.
    assert rows.min() == 0
    assert rows.max() == num_rows // num_shards - 1
    for shard in range(num_shards):
        local = np.asarray(rows[:, shard]).ravel()
        assert sorted(local) == list(range(num_rows // num_shards))
    gathered = _global_rows(rows, num_rows, num_shards).ravel()
    assert sorted(gathered) == list(range(num_rows))


def test_keys_give_different_orders():
    orders = {
        minibatch.shuffled_rows(jax.random.key(seed), 64, 4, 2).tobytes() for seed in range(20)
    }
    assert len(orders) == 20
    again = minibatch.shuffled_rows(jax.random.key(0), 64, 4, 2).tobytes()
    assert again in orders


def test_shards_are_shuffled_independently():
    rows = np.asarray(minibatch.shuffled_rows(jax.random.key(0), 64, 2, 4))
    orders = {rows[:, shard].tobytes() for shard in range(4)}
    assert len(orders) == 4


def test_rows_are_equally_likely_everywhere():
    keys = jax.random.split(jax.random.key(0), 2000)
    rows = jax.vmap(lambda key: minibatch.shuffled_rows(key, 8, 2, 2))(keys)
    for place in np.asarray(rows).reshape(2000, -1).T:
        # Each of 4 rows is expected 500 times, with a deviation of 19.
        assert np.all(np.abs(np.bincount(place, minlength=4) - 500) < 100)


@pytest.mark.parametrize(("num_rows", "num_minibatches", "num_shards"), SIZES)
def test_gather_rows_equals_indexing(num_rows, num_minibatches, num_shards):
    rng = np.random.default_rng(0)
    batch = {
        "plain": rng.normal(size=(5, num_rows)).astype(np.float32),
        "vector": rng.normal(size=(5, num_rows, 3)).astype(np.float32),
        "nested": (rng.integers(0, 9, (5, num_rows, 2, 4)), rng.random((5, num_rows)) < 0.5),
        "once": rng.normal(size=(1, num_rows, 2)).astype(np.float32),
    }
    gather = jax.jit(minibatch.gather_rows)
    seen = []
    for rows in minibatch.shuffled_rows(jax.random.key(1), num_rows, num_minibatches, num_shards):
        index = _global_rows(rows, num_rows, num_shards).ravel()
        gathered = gather(batch, rows)
        assert jax.tree.structure(gathered) == jax.tree.structure(batch)
        for part, whole in zip(jax.tree.leaves(gathered), jax.tree.leaves(batch), strict=True):
            np.testing.assert_array_equal(part, whole[:, index])
            assert part.dtype == jnp.asarray(whole).dtype
        seen.append(gathered["plain"])
    together = np.sort(np.concatenate(seen, axis=1), axis=1)
    np.testing.assert_array_equal(together, np.sort(batch["plain"], axis=1))


def test_gather_rows_by_hand():
    # Row n at time t holds 10 t + n; the second shard starts at row 3.
    batch = jnp.array([[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]])
    gathered = minibatch.gather_rows(batch, jnp.array([[2, 0], [1, 1]]))
    np.testing.assert_array_equal(gathered, [[2, 0, 4, 4], [12, 10, 14, 14]])


def test_indivisible_minibatches_raise():
    with pytest.raises(ValueError, match="10 rows cannot be split into 4 × 1 parts"):
        minibatch.shuffled_rows(jax.random.key(0), 10, 4)
    assert minibatch.shuffled_rows(jax.random.key(0), 8, 4).shape == (4, 1, 2)


def test_indivisible_shards_raise():
    with pytest.raises(ValueError, match="10 rows cannot be split into 2 × 4 parts"):
        minibatch.shuffled_rows(jax.random.key(0), 10, 2, 4)


def test_gather_minibatches_equals_gathering_one_by_one():
    batch = {"x": jnp.arange(24.0).reshape(2, 12), "y": jnp.arange(48).reshape(2, 12, 2)}
    rows = minibatch.shuffled_rows(jax.random.key(0), 12, 3, 2)
    gathered = minibatch.gather_minibatches(batch, rows)
    assert gathered["x"].shape == (3, 2, 4) and gathered["y"].shape == (3, 2, 4, 2)
    for i in range(3):
        index = _global_rows(rows[i], 12, 2).ravel()
        np.testing.assert_array_equal(gathered["x"][i], batch["x"][:, index])
        np.testing.assert_array_equal(gathered["y"][i], batch["y"][:, index])


def test_scan_updates_carries_state_and_sums_metrics():
    def update(state, batch):
        metrics = {"b": Mean.of(batch), "a": Mean.of(10.0 * state)}
        return state + batch, metrics

    end, found = minibatch.scan_updates(update, jnp.float32(1.0), jnp.array([2.0, 3.0, 4.0]))
    assert float(end) == 10.0  # the states before each were 1, 3 and 6
    assert {name: (float(m.total), float(m.count)) for name, m in found.items()} == {
        "a": (100.0, 3.0),
        "b": (9.0, 3.0),
    }
