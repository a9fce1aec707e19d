"""One Brax environment, as its thousands of copies see it."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.errors import UserError
from jaxrl.types import ActionSpec, Array, PyTree


class World(struct.PyTreeNode):
    """An environment's state: what others read by name, and what only the environment reads.

    The second part is plain arrays without Brax's classes around them. So a training state can
    be described, saved and handed to compiled programs before any physics was imported.
    """

    obs: PyTree
    metrics: dict[str, Array]
    rest: tuple[Array, ...]


class Template(NamedTuple):
    """What must be known of an environment before its physics runs."""

    world: World  # of jax.ShapeDtypeStruct, without the environment axis
    action: ActionSpec
    episode_length: int


def _without_names(state: Any) -> Any:
    return state.replace(obs=None, metrics=None)


def pack(state: Any) -> World:
    """Take a Brax state apart."""
    rest = tuple(jax.tree.leaves(_without_names(state)))
    return World(state.obs, dict(state.metrics), rest)


def unpack(world: World, like: Any) -> Any:
    """Put a Brax state together; `like` is one of the same structure."""
    structure = jax.tree.structure(_without_names(like))
    state = jax.tree.unflatten(structure, world.rest)
    return state.replace(obs=world.obs, metrics=world.metrics)


def describe(env: Any, start: Any) -> Template:
    """Return the template of an environment whose reset gives the shapes `start`."""
    discrete = hasattr(env, "num_actions")
    action = ActionSpec(int(env.num_actions if discrete else env.action_size), discrete)
    plain = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), start)
    return Template(pack(plain), action, getattr(env, "episode_length", 1000))


def typed_like(new: PyTree, old: PyTree) -> PyTree:
    """Keep dtypes fixed across steps, whatever the environment returns: one compilation."""

    def cast(n: Array, o: Array) -> Array:
        n = jnp.asarray(n)
        if jnp.issubdtype(n.dtype, jnp.inexact) and not jnp.issubdtype(o.dtype, jnp.inexact):
            raise UserError(
                f"The environment's reset gives {o.dtype} where its step gives {n.dtype}: "
                "fractions would be lost. Make reset return floats there."
            )
        return n.astype(o.dtype)

    return jax.tree.map(cast, new, old)


def strong(tree: PyTree) -> PyTree:
    """Drop weak types, which would make the second call compile anew."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), tree)


def cut(world: Any) -> Array:
    """Tell whether the environment itself says that the episode was cut, not ended."""
    return world.info.get("truncation", jnp.zeros_like(world.done)) > 0


@contextlib.contextmanager
def physics() -> Iterator[None]:
    """Trace physics in full float32; strict checks of our own code are not for others' code."""
    with jax.default_matmul_precision("highest"), jax.numpy_rank_promotion("allow"):
        yield


class TracedOnce:
    """An environment that is built when first needed, and whose step is traced once.

    Physics is seconds of tracing. A jitted function is traced once for its (unbatched) types,
    however many programs and batch sizes use it: vmap works on what was traced. (Reset is traced
    twice: to be described without devices, and in the program that draws start states.)
    """

    def __init__(self, make: Callable[[], Any]):
        self._make = make

    @functools.cached_property
    def inner(self) -> Any:
        """The environment itself."""
        return self._make()

    @functools.cached_property
    def reset(self) -> Callable[[Array], Any]:
        """Brax's reset."""
        return jax.jit(self.inner.reset)

    @functools.cached_property
    def step(self) -> Callable[[Any, Array], Any]:
        """Brax's step."""
        return jax.jit(self.inner.step)

    def __getattr__(self, name: str) -> Any:
        """Pass on everything else the environment says of itself."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)
