"""The Catch task, step by step."""

import jax
import numpy as np
import pytest

from jaxrl.envs import registry


@pytest.mark.parametrize("seed", range(3))
def test_ball_falls_and_is_caught_or_missed(seed):
    env = registry.make("catch")
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for chase in (True, False):
        state = reset(jax.random.PRNGKey(seed))
        start = int(np.argwhere(np.asarray(state.obs[0, :, 0]))[0, 0])
        paddle = 2
        for row in range(1, 10):
            assert float(state.done) == 0.0
            move = np.sign(start - paddle) if chase else (1 if start < 2 else -1)
            paddle = int(np.clip(paddle + move, 0, 4))
            state = step(state, np.int32(move + 1))
            board = np.zeros((10, 5, 1))
            board[row, start] = board[9, paddle] = 255
            np.testing.assert_array_equal(state.obs, board)
            assert state.obs.dtype == np.uint8
        assert float(state.done) == 1.0
        assert float(state.reward) == (1.0 if paddle == start else -1.0)
        assert chase == (paddle == start)
