"""One Brax environment, as its thousands of copies see it."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.interpreters import partial_eval

from jaxrl.envs import checks
from jaxrl.errors import UserError
from jaxrl.types import ActionSpec, Array, Key, PyTree


class PackedEnvState(struct.PyTreeNode):
    """An environment's state: what others read by name, and what only the environment reads.

    The second part is plain arrays without Brax's classes around them. So a training state can
    be described, saved and handed to compiled programs before any physics was imported. Of
    Brax's state it keeps what the next step reads: for MuJoCo's physics an eighth of it, and
    what is not kept need not be computed, stored, or replaced when an episode ends.
    """

    obs: PyTree
    metrics: dict[str, Array]
    rest: tuple[Array, ...]


class Template(NamedTuple):
    """What must be known of an environment before its physics runs."""

    world: PackedEnvState  # of jax.ShapeDtypeStruct, without the environment axis
    action: ActionSpec
    episode_length: int
    kept: tuple[int, ...]  # which leaves of Brax's state `world.rest` holds
    agents: int | None = None  # how many play in one environment; None: no axis of agents
    tokens: tuple[int, ...] = ()  # values each feature of a token can take; (): no tokens
    curriculum: PyTree = ()  # what start states are drawn by at first; (): nothing that changes
    last_curriculum: PyTree = ()  # what evaluations draw them by
    trials: int = 0  # fixed starts that evaluation plays, one each; 0: as many drawn ones as asked
    keys: tuple[int, ...] = ()  # which arrays of `world.rest` are random keys of the environment


def _without_names(state: Any) -> Any:
    return state.replace(obs=None, metrics=None)


def pack(state: Any, kept: tuple[int, ...]) -> PackedEnvState:
    """Take a Brax state apart, keeping the leaves that the next step reads."""
    leaves = jax.tree.leaves(_without_names(state))
    return PackedEnvState(state.obs, dict(state.metrics), tuple(leaves[place] for place in kept))


def unpack(world: PackedEnvState, like: Any, kept: tuple[int, ...]) -> Any:
    """Put a Brax state together; `like` is one environment's. What was not kept is zero."""
    leaves, structure = jax.tree.flatten(_without_names(like))
    seen, one = jax.tree.leaves(world.obs)[0], jax.tree.leaves(like.obs)[0]
    copies = seen.shape[: seen.ndim - len(one.shape)]
    full = [jnp.zeros((*copies, *leaf.shape), leaf.dtype) for leaf in leaves]
    for place, leaf in zip(kept, world.rest, strict=True):
        full[place] = leaf
    state = jax.tree.unflatten(structure, full)
    return state.replace(obs=world.obs, metrics=world.metrics)


def describe(env: Any, start: Any, *, keep_all: bool = False) -> Template:
    """Return the template of an environment whose reset gives the shapes `start`."""
    checks.check_start(env, start)
    discrete = hasattr(env, "num_actions")
    action = ActionSpec(int(env.num_actions if discrete else env.action_size), discrete)
    plain = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), start)
    agents = getattr(env, "num_agents", None)
    everything = tuple(range(len(jax.tree.leaves(_without_names(plain)))))
    kept = everything if keep_all else _read_by_step(env, plain, action, agents)
    first = env.first_curriculum() if hasattr(env, "first_curriculum") else ()
    return Template(
        world=pack(plain, kept),
        action=action,
        episode_length=int(getattr(env, "episode_length", 1000)),
        kept=kept,
        agents=agents,
        tokens=tuple(getattr(env, "token_sizes", ())),
        curriculum=first,
        last_curriculum=env.last_curriculum() if hasattr(env, "last_curriculum") else first,
        trials=getattr(env, "num_trials", 0),
        keys=_random_keys(plain, kept),
    )


def _random_keys(start: Any, kept: tuple[int, ...]) -> tuple[int, ...]:
    """Return which of the kept leaves are random keys.

    Typed keys are found anywhere in the state. A raw key is an array like any other, so it counts
    as one only in `info` (at any depth) under the name `rng` or `key`.
    """

    def is_key(path: tuple, leaf: Any) -> bool:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return True
        raw = leaf.dtype == jnp.uint32 and leaf.shape[-1:] == (2,)
        name = getattr(path[-1], "key", getattr(path[-1], "name", None))
        return raw and path[0].name == "info" and name in ("rng", "key")

    leaves = jax.tree_util.tree_leaves_with_path(_without_names(start))
    return tuple(i for i, place in enumerate(kept) if is_key(*leaves[place]))


def with_fresh_keys(world: PackedEnvState, keys: tuple[int, ...], key: Key) -> PackedEnvState:
    """Give every row random keys that no other row and no other episode has.

    Start states from a pool are used again and again: with the keys they were drawn with, every
    episode that starts in one of them would repeat the same noise.
    """
    rest = list(world.rest)
    for number, place in enumerate(keys):
        old, one = rest[place], jax.random.fold_in(key, number)
        if jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            bits = jax.random.bits(one, jax.random.key_data(old).shape, jnp.uint32)
            rest[place] = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(old))
        else:
            rest[place] = jax.random.bits(one, old.shape, jnp.uint32)
    return world.replace(rest=tuple(rest))


def _read_by_step(env: Any, start: Any, action: ActionSpec, agents: int | None) -> tuple[int, ...]:
    """Return the leaves without which a later observation, reward or ending would differ.

    Everything outside the physics' own state is kept. Of that, a leaf is needed if a step reads
    it to compute something needed: this is repeated until nothing is added.
    """
    shape = (*([agents] if agents else []), *([] if action.discrete else [action.size]))
    taken = jax.ShapeDtypeStruct(shape, jnp.int32 if action.discrete else jnp.float32)
    try:
        with physics():
            traced = jax.make_jaxpr(lambda s, a: typed_like(env.step(s, a), s))(start, taken)
    except UserError as error:
        raise UserError(str(error)) from None  # without what JAX notes about its own frames
    leaves = jax.tree_util.tree_leaves_with_path(start)
    needed = [path[0].name != "pipeline_state" for path, _ in leaves]
    while True:
        _, reads = partial_eval.dce_jaxpr(traced.jaxpr, needed)
        more = [a or b for a, b in zip(needed, reads[: len(needed)], strict=True)]
        if more == needed:
            break
        needed = more
    mask = jax.tree.leaves(_without_names(jax.tree.unflatten(jax.tree.structure(start), needed)))
    return tuple(place for place, is_needed in enumerate(mask) if is_needed)


def typed_like(new: PyTree, old: PyTree) -> PyTree:
    """Keep dtypes fixed across steps, whatever the environment returns: one compilation."""
    checks.check_alike(new, old)

    def cast(n: Array, o: Array) -> Array:
        n = jnp.asarray(n)
        if n.dtype == o.dtype and jnp.issubdtype(o.dtype, jax.dtypes.prng_key):
            return n  # JAX casts no keys
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


def truncation(world: Any) -> Array:
    """Return the environment's own flag of a truncated episode; zeros where it has none."""
    return world.info.get("truncation", jnp.zeros_like(world.done))


def cut(world: Any) -> Array:
    """Tell whether the environment itself says that the episode was truncated, not terminated."""
    return truncation(world) > 0


def over(world: Any) -> Array:
    """Tell whether an episode has ended; a flag that is NaN ends it too."""
    return ~((world.done <= 0) & (truncation(world) <= 0))


@contextlib.contextmanager
def physics() -> Iterator[None]:
    """Trace physics in full float32; strict checks of our own code are not for others' code."""
    with jax.default_matmul_precision("highest"), jax.numpy_rank_promotion("allow"):
        yield


class LazyEnv:
    """An environment that is built when first needed, and whose functions are traced once.

    Physics is seconds of tracing. A jitted function is traced once for its (unbatched) types,
    however many programs and batch sizes use it: vmap works on what was traced. (Twice where there
    are several devices: an environment is described without them, and they are a part of types.)
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
