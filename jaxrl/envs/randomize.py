"""Domain randomisation: every episode samples its own physics."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.wrapper import Wrapper
from jaxrl.errors import UserError
from jaxrl.types import Array, Key, PyTree


class Randomized(Wrapper):
    """Wrap an environment so that every reset samples `randomize(sys, key) -> sys`.

    The sampled arrays are stored in `state.info`, so a pool of start states is also a pool of
    physics. Only arrays that `randomize` replaced are stored.
    """

    def __init__(self, env: Any, randomize: Callable[[PyTree, Key], PyTree]):
        if not hasattr(env.unwrapped, "sys"):
            raise UserError("--task.randomize: this environment has no `sys` to randomise.")
        super().__init__(env)
        self._randomize = randomize
        self._base, self._tree = jax.tree.flatten(env.unwrapped.sys)
        self._changed: list[int] = []

        def find_changed(key: Key) -> PyTree:
            sampled = randomize(env.unwrapped.sys, key)
            pairs = enumerate(zip(self._base, jax.tree.leaves(sampled), strict=False))
            self._changed = [i for i, (old, new) in pairs if old is not new]
            return sampled

        self._check(jax.eval_shape(find_changed, jax.random.key(0)))
        if not self._changed:
            raise UserError("--task.randomize: the function returned `sys` unchanged.")

    def _check(self, sampled: PyTree) -> None:
        """Raise UserError unless `randomize` returned a `sys` of the same structure and shapes."""
        if jax.tree.structure(sampled) != self._tree:
            kind = type(self.unwrapped.sys).__name__
            raise UserError(
                f"--task.randomize: the function must return a {kind} with the structure of its "
                f"argument `sys`, not a {type(sampled).__name__}."
            )
        for old, new in zip(self._base, jax.tree.leaves(sampled), strict=True):
            if jnp.shape(old) != new.shape:
                raise UserError(
                    f"--task.randomize: the function turned an array {jnp.shape(old)} of `sys` "
                    f"into one {new.shape}; it samples physics for one environment."
                )

    @contextlib.contextmanager
    def _physics(self, sampled: tuple[Array, ...]) -> Iterator[None]:
        """Set the sampled physics while the environment is traced."""
        leaves = list(self._base)
        for index, value in zip(self._changed, sampled, strict=True):
            leaves[index] = value
        original = self.unwrapped.sys
        self.unwrapped.sys = jax.tree.unflatten(self._tree, leaves)
        try:
            yield
        finally:
            self.unwrapped.sys = original

    def reset(self, rng: Array, *curriculum: PyTree, nominal: Array | bool = False) -> Any:
        """Sample physics, or take the model's if `nominal`; then a start state in it."""
        rng, key = jax.random.split(rng)
        sampled = jax.tree.leaves(self._randomize(self.unwrapped.sys, key))
        leaves = list(self._base)
        for i in self._changed:
            leaves[i] = jnp.where(nominal, leaves[i], sampled[i])
        return self._start(lambda: self._env.reset(rng, *curriculum), leaves)

    def trial(self, number: Array) -> Any:
        """Return a fixed start state, with unchanged physics: trials must be comparable."""
        return self._start(lambda: self._env.trial(number), self._base)

    def _start(self, start: Callable[[], Any], physics: list[Array]) -> Any:
        sampled = tuple(jnp.asarray(physics[i]) for i in self._changed)
        with self._physics(sampled):
            state = start()
        return state.replace(info=dict(state.info) | {"randomization": sampled})

    def step(self, state: Any, action: Array) -> Any:
        """Step in the physics that this episode sampled."""
        sampled = state.info["randomization"]
        inner = state.replace(info={k: v for k, v in state.info.items() if k != "randomization"})
        with self._physics(sampled):
            after = self._env.step(inner, action)
        return after.replace(info=dict(after.info) | {"randomization": sampled})
