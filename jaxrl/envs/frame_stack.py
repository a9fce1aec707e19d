"""Frame stacking: an observation that holds the last few."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config.obs_keys import ACTION_MASK, AMP, PRIVILEGED
from jaxrl.envs.wrapper import Wrapper
from jaxrl.errors import UserError
from jaxrl.types import Array, PyTree

_NEWEST = (PRIVILEGED, ACTION_MASK, AMP)  # parts of which one frame is observed
_FRAMES = "frames"  # in state.info


class FrameStack(Wrapper):
    """Observe the last `number` frames, the newest last: vectors joined, images as channels.

    An episode begins with as many copies of its first frame. Actors get the history of what they
    observe; what only critics see, and an action mask, stay single.
    """

    def __init__(self, env: Any, number: int):
        if getattr(env, "token_sizes", ()):
            raise UserError("--task.frame-stack: tokens cannot be stacked: use --network.rnn.")
        super().__init__(env)
        self._number = number

    def reset(self, rng: Array, *curriculum: PyTree) -> Any:
        """Begin an episode."""
        return self._start(self._env.reset(rng, *curriculum))

    def trial(self, number: Array) -> Any:
        """Begin a fixed trial."""
        return self._start(self._env.trial(number))

    def step(self, state: Any, action: Array) -> Any:
        """Step, and forget the oldest frame."""
        frames = state.info[_FRAMES]
        newest = jax.tree.map(lambda x: x[-1], frames)
        inner = state.replace(
            obs=_merged(state.obs, newest),
            info={key: value for key, value in state.info.items() if key != _FRAMES},
        )
        after = self._env.step(inner, action)
        frames = jax.tree.map(
            lambda old, new: jnp.concatenate([old[1:], new[None].astype(old.dtype)]),
            frames,
            _stacked_parts(after.obs),
        )
        return _with(after, frames)

    def _start(self, state: Any) -> Any:
        frames = jax.tree.map(
            lambda x: jnp.repeat(jnp.asarray(x)[None], self._number, axis=0),
            _stacked_parts(state.obs),
        )
        return _with(state, frames)

    @property
    def observation_size(self):
        """The size of all frames together."""
        return self._scaled(self._env.observation_size)

    def _scaled(self, size: Any) -> Any:
        if isinstance(size, dict):
            return {k: v if k in _NEWEST else self._scaled(v) for k, v in size.items()}
        if isinstance(size, tuple):
            return (*size[:-1], self._number * size[-1])
        return self._number * size


def _stacked_parts(obs: PyTree) -> PyTree:
    if not isinstance(obs, dict):
        return obs
    return {key: value for key, value in obs.items() if key not in _NEWEST}


def _merged(obs: PyTree, parts: PyTree) -> PyTree:
    return obs | parts if isinstance(obs, dict) else parts


def _with(state: Any, frames: PyTree) -> Any:
    """Return a state that observes `frames` [number, ...], joined along the last axis."""
    joined = jax.tree.map(lambda x: jnp.concatenate(list(x), axis=-1), frames)
    obs = _merged(state.obs, joined)
    return state.replace(obs=obs, info=dict(state.info) | {_FRAMES: frames})
