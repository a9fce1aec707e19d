"""Domain randomisation: every episode draws its own physics."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs import Env

from jaxrl.errors import UserError
from jaxrl.types import Array, Key, PyTree


class Randomized(Env):
    """Wrap an environment so that `randomize(sys, key) -> sys` is drawn anew at every reset.

    The drawn numbers ride along in `state.info`, so a pool of fresh states is also a pool of
    fresh physics. Only what `randomize` really replaced is stored.
    """

    def __init__(self, env: Any, randomize: Callable[[PyTree, Key], PyTree]):
        if not hasattr(env.unwrapped, "sys"):
            raise UserError("--task.randomize: this environment has no `sys` to randomise.")
        self._env = env
        self._randomize = randomize
        self._base, self._tree = jax.tree.flatten(env.unwrapped.sys)
        self._changed: list[int] = []

        def find_changed(key: Key) -> PyTree:
            drawn = randomize(env.unwrapped.sys, key)
            pairs = enumerate(zip(self._base, jax.tree.leaves(drawn), strict=False))
            self._changed = [i for i, (old, new) in pairs if old is not new]
            return drawn

        self._check(jax.eval_shape(find_changed, jax.random.key(0)))
        if not self._changed:
            raise UserError("--task.randomize: the function returned `sys` unchanged.")

    def _check(self, drawn: PyTree) -> None:
        """Refuse other physics than an environment can be given."""
        if jax.tree.structure(drawn) != self._tree:
            kind = type(self.unwrapped.sys).__name__
            raise UserError(
                f"--task.randomize: the function must return a {kind} like the `sys` it is given, "
                f"and nothing else, not a {type(drawn).__name__}."
            )
        for old, new in zip(self._base, jax.tree.leaves(drawn), strict=True):
            if jnp.shape(old) != new.shape:
                raise UserError(
                    f"--task.randomize: the function turned an array {jnp.shape(old)} of `sys` "
                    f"into one {new.shape}; it draws physics for one environment."
                )

    @contextlib.contextmanager
    def _physics(self, drawn: tuple[Array, ...]) -> Iterator[None]:
        """Let the environment see the drawn physics while it is traced."""
        leaves = list(self._base)
        for index, value in zip(self._changed, drawn, strict=True):
            leaves[index] = value
        original = self.unwrapped.sys
        self.unwrapped.sys = jax.tree.unflatten(self._tree, leaves)
        try:
            yield
        finally:
            self.unwrapped.sys = original

    def reset(self, rng: Array, *curriculum: PyTree) -> Any:
        """Draw physics, then a start in it."""
        rng, draw = jax.random.split(rng)
        leaves = jax.tree.leaves(self._randomize(self.unwrapped.sys, draw))
        return self._begun(lambda: self._env.reset(rng, *curriculum), leaves)

    def trial(self, number: Array) -> Any:
        """Return a fixed start, in the physics of all others: trials are to be compared."""
        return self._begun(lambda: self._env.trial(number), self._base)

    def _begun(self, begin: Callable[[], Any], physics: list[Array]) -> Any:
        drawn = tuple(jnp.asarray(physics[i]) for i in self._changed)
        with self._physics(drawn):
            state = begin()
        return state.replace(info=dict(state.info) | {"randomization": drawn})

    def step(self, state: Any, action: Array) -> Any:
        """Step in the physics this episode drew."""
        drawn = state.info["randomization"]
        inner = state.replace(info={k: v for k, v in state.info.items() if k != "randomization"})
        with self._physics(drawn):
            after = self._env.step(inner, action)
        return after.replace(info=dict(after.info) | {"randomization": drawn})

    @property
    def observation_size(self):
        """The wrapped environment's."""
        return self._env.observation_size

    @property
    def action_size(self) -> int:
        """The wrapped environment's."""
        return self._env.action_size

    @property
    def backend(self) -> str:
        """The wrapped environment's."""
        return self._env.backend

    def __getattr__(self, name: str) -> Any:
        """Pass on what else the environment says of itself: num_actions, episode_length, ..."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._env, name)

    @property
    def unwrapped(self) -> Any:
        """The environment inside every wrapper."""
        return self._env.unwrapped
