"""The replay ring and its episode index against plain Python lists."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.learning import episode_index, replay_buffer

ROWS, SIZE = 3, 12


def _steps(numbers):
    """Steps that encode their origin: [T, rows, 2] of (row, number)."""
    rows = np.broadcast_to(np.arange(ROWS), (len(numbers), ROWS))
    return jnp.asarray(np.stack([rows, np.broadcast_to(numbers[:, None], rows.shape)], -1))


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_ring_holds_the_newest_steps(chunk):
    ring = replay_buffer.init(jax.ShapeDtypeStruct((2,), jnp.int32), ROWS, SIZE)
    add = jax.jit(replay_buffer.add)
    gather, row = jax.jit(replay_buffer.gather), np.repeat(np.arange(ROWS), SIZE)
    for start in range(0, 5 * SIZE, chunk):
        ring = add(ring, _steps(np.arange(start, start + chunk)))
        first, end = replay_buffer.stored_range(ring)
        np.testing.assert_array_equal(end, start + chunk)
        np.testing.assert_array_equal(first, max(0, start + chunk - SIZE))
        number = np.tile(int(first[0]) + np.arange(SIZE), ROWS)
        stored = number < int(end[0])
        expected = np.stack([row, number], axis=1)
        gathered = np.asarray(gather(ring.steps, row, number))
        np.testing.assert_array_equal(gathered[stored], expected[stored])


def test_chunks_must_fit_the_ring():
    ring = replay_buffer.init(jax.ShapeDtypeStruct((2,), jnp.int32), ROWS, SIZE)
    with pytest.raises(ValueError, match="12 steps cannot be written 5 at a time"):
        replay_buffer.add(ring, _steps(np.arange(5)))


def test_steps_are_sampled_uniformly():
    first, end = jnp.array([5, 7, 0]), jnp.array([9, 7, 2])
    row, number = jax.jit(lambda k: replay_buffer.sample(k, first, end, (6000,)))(jax.random.key(0))
    drawn = list(zip(np.asarray(row).tolist(), np.asarray(number).tolist(), strict=True))
    allowed = [(0, 5), (0, 6), (0, 7), (0, 8), (2, 0), (2, 1)]
    assert set(drawn) == set(allowed)
    counts = [drawn.count(pair) for pair in allowed]
    assert stats.chisquare(counts).pvalue > 1e-3


def test_add_makes_no_large_copies():
    """Many writes in one program happen in place: the ring is large, temporary memory small."""
    ring = jax.eval_shape(
        lambda: replay_buffer.init(jax.ShapeDtypeStruct((16,), jnp.float32), ROWS, 120_000)
    )
    steps = jax.ShapeDtypeStruct((4, ROWS, 16), jnp.float32)

    def work(ring, steps):
        def one(ring, _):
            ring = replay_buffer.add(ring, steps)
            row, number = replay_buffer.sample(
                jax.random.key(0), *replay_buffer.stored_range(ring), (8,)
            )
            return ring, jnp.sum(replay_buffer.gather(ring.steps, row, number))

        return jax.lax.scan(one, ring, length=10)

    compiled = jax.jit(work, donate_argnums=0).lower(ring, steps).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100_000
    assert ring.steps.size * 4 > 20_000_000


class _Lists:
    """A reference implementation of the episode index."""

    def __init__(self):
        self.written, self.current = 0, [[] for _ in range(ROWS)]
        self.complete = [[] for _ in range(ROWS)]  # (first number, rewards)

    def add(self, reward, ended):
        for t in range(len(reward)):
            for row in range(ROWS):
                self.current[row].append(float(reward[t, row]))
                if ended[t, row]:
                    rewards = self.current[row]
                    self.complete[row].append((self.written + t + 1 - len(rewards), rewards))
                    self.current[row] = []
        self.written += len(reward)
        oldest = self.written - SIZE
        self.complete = [[e for e in row if e[0] >= oldest] for row in self.complete]

    def restart(self):
        """Move the unfinished steps before the complete episodes."""
        for row in range(ROWS):
            cut = len(self.current[row])
            self.complete[row] = [(start + cut, rewards) for start, rewards in self.complete[row]]
            self.current[row] = []


def _assert_same(index, ring, lists):
    """Compare with lists; return how many episodes were compared."""
    index, ring, (first, end) = jax.device_get((index, ring, episode_index.complete_range(index)))
    for row in range(ROWS):
        expected = lists.complete[row]
        numbers = [n for start, rs in expected for n in range(start, start + len(rs))]
        assert list(range(first[row], end[row])) == numbers
        assert first[row] <= end[row]  # sampling counts end − first
        for start, rewards in expected:
            places = (start + np.arange(len(rewards))) % SIZE
            assert int(index.length[row, start % SIZE]) == len(rewards)
            assert float(index.episode_return[row, start % SIZE]) == pytest.approx(
                sum(rewards), abs=1e-5
            )
            np.testing.assert_array_equal(index.age[row, places], np.arange(len(rewards)))
            np.testing.assert_array_equal(ring.steps[row, places], np.float32(rewards))
    return sum(map(len, lists.complete))


@pytest.mark.parametrize(
    "chunk, end_rate, restart_rate",
    [
        *itertools.product((1, 3, 6), (0.05, 0.2, 0.6), (0.0, 0.15)),
        (SIZE, 0.6, 0.0),  # every write replaces the whole ring
    ],
)
def test_index_holds_exactly_the_complete_episodes(chunk, end_rate, restart_rate):
    """Including episodes finished before repeated resets of all environments."""
    random, lists, compared = np.random.default_rng(0), _Lists(), 0
    index = episode_index.init(ROWS, SIZE)
    ring = replay_buffer.init(jax.ShapeDtypeStruct((), jnp.float32), ROWS, SIZE)
    add, write = jax.jit(episode_index.add), jax.jit(replay_buffer.add)
    restart = jax.jit(episode_index.restart_episodes, static_argnums=2)
    for _ in range(90 // chunk):
        reward = random.normal(size=(chunk, ROWS)).astype(np.float32)
        ended = random.random((chunk, ROWS)) < end_rate
        index = add(index, ring.written, reward, ended)
        ring = write(ring, reward)
        lists.add(reward, ended)
        compared += _assert_same(index, ring, lists)
        if random.random() < restart_rate:
            before = np.sort(ring.steps, axis=1)
            index, ring = restart(index, ring, chunk)
            lists.restart()
            _assert_same(index, ring, lists)
            np.testing.assert_array_equal(np.sort(ring.steps, axis=1), before)  # no step is lost
    assert compared > 5


def test_restart_keeps_a_single_step():
    """Whether its episode is complete or not."""
    index = episode_index.init(ROWS, SIZE)
    ring = replay_buffer.init(jax.ShapeDtypeStruct((), jnp.float32), ROWS, SIZE)
    reward, ended = jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[True, False, False]])
    index = jax.jit(episode_index.add)(index, ring.written, reward, ended)
    ring = jax.jit(replay_buffer.add)(ring, reward)
    index, ring = jax.jit(episode_index.restart_episodes, static_argnums=2)(index, ring, 1)
    np.testing.assert_array_equal(ring.steps[:, 0], reward[0])
    np.testing.assert_array_equal(episode_index.complete_range(index), [[0, 1, 1], [1, 1, 1]])


def test_samples_stay_in_one_episode_weighted_by_length():
    """Episodes of 2 and 6 steps: samples stay inside one, and 3 of 4 use the long one."""
    ring = replay_buffer.init(jax.ShapeDtypeStruct((2,), jnp.int32), ROWS, SIZE)
    index = episode_index.init(ROWS, SIZE)
    ended = np.zeros((SIZE, ROWS), bool)
    ended[[1, 7], 1] = True  # only row 1 has complete episodes; its last steps are of a third

    @jax.jit
    def sample(index, ring):
        index = episode_index.add(index, ring.written, jnp.ones((SIZE, ROWS)), jnp.asarray(ended))
        ring = replay_buffer.add(ring, _steps(np.arange(SIZE)))
        first, second = jax.random.key(1), jax.random.key(2)
        return (
            episode_index.sample_steps(index, ring, first, 4000, 3, longest=8),
            episode_index.sample_episodes(index, ring, second, 400, longest=8),
        )

    samples, episodes = sample(index, ring)
    steps, length = np.asarray(samples.steps), np.asarray(samples.length)
    assert (steps[..., 0] == 1).all()
    short, long = steps[length == 2, :, 1], steps[length == 6, :, 1]
    assert len(short) + len(long) == 4000
    np.testing.assert_array_equal(samples.episode_return, length)
    assert set(short.ravel()) == {0, 1} and set(long.ravel()) == set(range(2, 8))
    assert len(long) == pytest.approx(3000, abs=150)
    # Three of six are drawn without replacement, three of two with.
    assert all(len(set(sample)) == 3 for sample in long.tolist())
    triples = [tuple(sorted(sample)) for sample in long.tolist()]
    counts = [triples.count(triple) for triple in set(triples)]
    assert len(counts) == 20 and stats.chisquare(counts).pvalue > 1e-3
    for steps, length, episode_return in zip(*(np.asarray(x) for x in episodes), strict=True):
        assert (steps[:length, 0] == 1).all() and episode_return == length
        np.testing.assert_array_equal(steps[:length, 1], {2: [0, 1], 6: range(2, 8)}[int(length)])
    assert np.sum(episodes.length == 6) == pytest.approx(300, abs=50)


def test_sample_of_a_single_step_and_of_an_empty_ring():
    row, number = replay_buffer.sample(
        jax.random.key(0), jnp.array([2, 3, 1]), jnp.array([2, 4, 1]), (50,)
    )
    np.testing.assert_array_equal(row, 1)
    np.testing.assert_array_equal(number, 3)
    empty = jnp.array([4, 4])
    row, _ = replay_buffer.sample(jax.random.key(0), empty, empty, (5,))
    assert np.asarray(row).max() < 2


def test_subset_repeats_steps_only_in_short_episodes():
    length, number = jnp.array([1, 2, 3, 5]), 40
    for size in (3, 5, 6):
        keys = jax.random.split(jax.random.key(size), number)
        draw = jax.vmap(lambda key, size=size: episode_index.subset(key, length, size, 5))
        drawn = jax.jit(draw)(keys)
        assert drawn.shape == (number, 4, size)
        for i, n in enumerate([1, 2, 3, 5]):
            rows = np.asarray(drawn[:, i])
            assert set(rows.ravel()) == set(range(n))
            if size <= n:
                assert all(len(set(row)) == size for row in rows.tolist())
