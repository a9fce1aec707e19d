"""Noise on actions that is held and scaled, counted over many rows and steps."""

import jax
import numpy as np

from jaxrl.learning import exploration
from jaxrl.networks.recurrent import reset_carry

ROWS, STEPS, MAX_HOLD, MIN_SCALE = 400, 60, 4, 0.25
# Row 0's episodes end every 7 steps, the others' never.
ENDS = (np.arange(STEPS)[:, None] % 7 == 6) & (np.arange(ROWS)[None] == 0)


def _noise(max_hold, min_scale):
    def step(noise, given):
        key, ended = given
        noise = exploration.resample(noise, key, max_hold, min_scale)
        return reset_carry(ended, noise), noise

    keys = jax.random.split(jax.random.key(0), STEPS)
    start = exploration.initial_noise(ROWS, 2)
    return jax.jit(lambda: jax.lax.scan(step, start, (keys, ENDS))[1])()


def test_samples_are_held_for_zeta_distributed_times():
    noise = jax.tree.map(np.asarray, _noise(MAX_HOLD, MIN_SCALE))
    changes = np.any(np.diff(noise.sample[:, 1:], axis=0), axis=-1)
    lengths = np.concatenate([np.diff(np.flatnonzero(row)) for row in changes.T])
    weights = 1.0 / np.arange(1, MAX_HOLD + 1) ** 2
    found = np.bincount(lengths, minlength=MAX_HOLD + 1)[1:] / len(lengths)
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.015)
    np.testing.assert_allclose(noise.sample.std(), 1.0, atol=0.03)


def test_scales_are_drawn_for_each_row_and_episode():
    scale = np.asarray(_noise(MAX_HOLD, MIN_SCALE).scale)
    changed = np.diff(scale[:, 0]) != 0
    np.testing.assert_array_equal(np.flatnonzero(changed), np.flatnonzero(ENDS[:-1, 0]))
    assert np.all(scale[:, 1:] == scale[0, 1:])
    drawn = np.sort(scale[0])
    uniform = np.linspace(MIN_SCALE, 1.0, ROWS)
    np.testing.assert_allclose(drawn, uniform, atol=0.06)


def test_noise_without_a_hold_is_new_at_every_step():
    noise = _noise(1, 1.0)
    assert np.all(np.any(np.diff(noise.sample, axis=0), axis=-1))
    assert np.all(np.asarray(noise.scale) == 1.0)


def test_network_carry_is_a_part_of_a_rollout_carry():
    noise = exploration.initial_noise(2, 1)
    assert exploration.network_carry(exploration.Carry("carry", noise)) == "carry"
    assert exploration.network_carry(()) == ()
    assert exploration.network_carry(("cell", "hidden")) == ("cell", "hidden")
