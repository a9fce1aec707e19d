"""The state of one Brax environment: packing, templates, dtypes and lazy construction."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.interpreters import partial_eval

from jaxrl.envs import checks
from jaxrl.errors import UserError
from jaxrl.physics.precision import physics
from jaxrl.types import ActionSpec, Array, Key, PyTree

if TYPE_CHECKING:  # importing Brax takes seconds
    from brax.envs.base import Env, State


class PackedEnvState(struct.PyTreeNode):
    """A Brax state without its classes: named parts that others read, and bare arrays.

    A training state made of these can be described, saved and passed to compiled programs before
    any physics is imported. `rest` holds only the leaves that the next step reads (an eighth of
    the state for MuJoCo's physics): the others need not be computed, stored or reset.
    """

    obs: PyTree
    metrics: dict[str, Array]
    rest: tuple[Array, ...]


class Template(NamedTuple):
    """What must be known of an environment before its physics runs."""

    state_shapes: PackedEnvState  # of jax.ShapeDtypeStruct, without the environment axis
    action: ActionSpec
    episode_length: int
    carried_leaves: tuple[int, ...]  # leaves of the Brax state that `state_shapes.rest` holds
    agents: int | None = None  # agents per environment; None: no agent axis
    tokens: tuple[int, ...] = ()  # values each feature of a token can take; (): no tokens
    curriculum: PyTree = ()  # initial distribution of start states; (): it never changes
    last_curriculum: PyTree = ()  # distribution of start states in evaluations
    trials: int = 0  # fixed start states, each evaluated once; 0: evaluations sample starts
    key_leaves: tuple[int, ...] = ()  # arrays of `state_shapes.rest` that are random keys


def _without_named_parts(state: "State") -> "State":
    return dataclasses.replace(state, obs=None, metrics=None)  # type: ignore[arg-type]


def pack(state: "State", carried_leaves: tuple[int, ...]) -> PackedEnvState:
    """Pack a Brax state, keeping the given leaves."""
    leaves = jax.tree.leaves(_without_named_parts(state))
    return PackedEnvState(state.obs, dict(state.metrics), tuple(leaves[i] for i in carried_leaves))


def unpack(packed: PackedEnvState, like: "State", carried_leaves: tuple[int, ...]) -> "State":
    """Rebuild a Brax state; `like` has the shapes of one environment. Dropped leaves are zero."""
    leaves, structure = jax.tree.flatten(_without_named_parts(like))
    batched, single = jax.tree.leaves(packed.obs)[0], jax.tree.leaves(like.obs)[0]
    batch = batched.shape[: batched.ndim - len(single.shape)]
    full = [jnp.zeros((*batch, *leaf.shape), leaf.dtype) for leaf in leaves]
    for i, leaf in zip(carried_leaves, packed.rest, strict=True):
        full[i] = leaf
    state = jax.tree.unflatten(structure, full)
    return state.replace(obs=packed.obs, metrics=packed.metrics)


def describe(env: Any, start: "State", *, keep_all: bool = False) -> Template:
    """Return the template of an environment whose reset returns the shapes `start`."""
    checks.check_start(env, start)
    discrete = hasattr(env, "num_actions")
    action = ActionSpec(int(env.num_actions if discrete else env.action_size), discrete)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), start)
    agents = getattr(env, "num_agents", None)
    all_leaves = tuple(range(len(jax.tree.leaves(_without_named_parts(shapes)))))
    carried_leaves = all_leaves if keep_all else _read_by_step(env, shapes, action, agents)
    first = env.first_curriculum() if hasattr(env, "first_curriculum") else ()
    return Template(
        state_shapes=pack(shapes, carried_leaves),
        action=action,
        episode_length=int(getattr(env, "episode_length", 1000)),
        carried_leaves=carried_leaves,
        agents=agents,
        tokens=tuple(getattr(env, "token_sizes", ())),
        curriculum=first,
        last_curriculum=env.last_curriculum() if hasattr(env, "last_curriculum") else first,
        trials=getattr(env, "num_trials", 0),
        key_leaves=_random_keys(shapes, carried_leaves),
    )


def _random_keys(start: "State", carried_leaves: tuple[int, ...]) -> tuple[int, ...]:
    """Return which of the carried leaves are random keys.

    Typed keys are found anywhere in the state. A raw key is an array like any other, so it counts
    as one only in `info` (at any depth) under the name `rng` or `key`.
    """

    def is_key(path: tuple, leaf: Any) -> bool:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return True
        raw = leaf.dtype == jnp.uint32 and leaf.shape[-1:] == (2,)
        name = getattr(path[-1], "key", getattr(path[-1], "name", None))
        return raw and path[0].name == "info" and name in ("rng", "key")

    leaves = jax.tree_util.tree_leaves_with_path(_without_named_parts(start))
    return tuple(i for i, leaf in enumerate(carried_leaves) if is_key(*leaves[leaf]))


def with_fresh_keys(
    packed: PackedEnvState, key_leaves: tuple[int, ...], key: Key
) -> PackedEnvState:
    """Replace the random keys in every row by new ones.

    Start states from a pool are used many times: with the keys they were sampled with, every
    episode that starts in one of them would repeat the same noise.
    """
    rest = list(packed.rest)
    for number, leaf in enumerate(key_leaves):
        old, leaf_key = rest[leaf], jax.random.fold_in(key, number)
        if jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            bits = jax.random.bits(leaf_key, jax.random.key_data(old).shape, jnp.uint32)
            rest[leaf] = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(old))
        else:
            rest[leaf] = jax.random.bits(leaf_key, old.shape, jnp.uint32)
    return packed.replace(rest=tuple(rest))


def _read_by_step(
    env: Any, start: "State", action: ActionSpec, agents: int | None
) -> tuple[int, ...]:
    """Return the leaves without which a later observation, reward or ending would differ.

    Everything outside the physics' own state is carried. Of that, a leaf is needed if a step reads
    it to compute something needed: this is repeated until nothing is added.
    """
    shape = (*([agents] if agents else []), *([] if action.discrete else [action.size]))
    action_shape = jax.ShapeDtypeStruct(shape, jnp.int32 if action.discrete else jnp.float32)
    try:
        with physics(), checks.tracing():
            traced = jax.make_jaxpr(lambda s, a: typed_like(env.step(s, a), s))(start, action_shape)
    except UserError as error:
        raise UserError(str(error)) from None  # without the notes JAX adds about its own frames
    leaves = jax.tree_util.tree_leaves_with_path(start)
    needed = [path[0].name != "pipeline_state" for path, _ in leaves]
    while True:
        _, reads = partial_eval.dce_jaxpr(traced.jaxpr, needed)
        more = [a or b for a, b in zip(needed, reads[: len(needed)], strict=True)]
        if more == needed:
            break
        needed = more
    mask = jax.tree.leaves(
        _without_named_parts(jax.tree.unflatten(jax.tree.structure(start), needed))
    )
    return tuple(i for i, is_needed in enumerate(mask) if is_needed)


def typed_like(new: PyTree, old: PyTree) -> PyTree:
    """Cast `new` to the dtypes of `old`, so that a step compiles once for all of its inputs."""
    checks.check_alike(new, old)

    def cast(n: Array, o: Array) -> Array:
        n = jnp.asarray(n)
        if n.dtype == o.dtype and jnp.issubdtype(o.dtype, jax.dtypes.prng_key):
            return n  # JAX casts no keys
        if jnp.issubdtype(n.dtype, jnp.inexact) and not jnp.issubdtype(o.dtype, jnp.inexact):
            raise UserError(
                f"The environment's reset returns {o.dtype} where its step returns {n.dtype}: "
                "fractions would be lost. Make reset return floats there."
            )
        return n.astype(o.dtype)

    return jax.tree.map(cast, new, old)


def strong(tree: PyTree) -> PyTree:
    """Drop weak types, which would make the second call compile again."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), tree)


def truncation(state: "State") -> Array:
    """Return the environment's own truncation flag; zeros if it has none."""
    return state.info.get("truncation", jnp.zeros_like(state.done))


def is_truncated(state: "State") -> Array:
    """Return whether the environment itself truncated the episode."""
    return truncation(state) > 0


def has_ended(state: "State") -> Array:
    """Return whether the episode has ended; a flag that is NaN ends it too."""
    return ~((state.done <= 0) & (truncation(state) <= 0))


class LazyEnv:
    """An environment that is built when first needed, and whose functions are traced once.

    Tracing physics takes seconds. A jitted function is traced once for its (unbatched) types,
    however many programs and batch sizes use it: vmap works on the traced function. (Twice with
    several devices: an environment is described without them, and they are part of the types.)
    """

    def __init__(self, make: "Callable[[], Env]"):
        self._make = make

    @functools.cached_property
    def inner(self) -> Any:
        """The environment itself, with whatever attributes its class has."""
        return self._make()

    @functools.cached_property
    def reset(self) -> "Callable[..., State]":
        """Brax's reset."""
        return jax.jit(self.inner.reset)

    @functools.cached_property
    def step(self) -> "Callable[..., State]":
        """Brax's step."""
        return jax.jit(self.inner.step)

    def __getattr__(self, name: str) -> Any:
        """Forward every other public attribute to the environment."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)
