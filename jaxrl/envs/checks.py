"""Checks of what an environment's reset and step return, with messages that say what to change."""

import contextlib
import inspect
import math
import traceback
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxrl.config.obs_keys import ACTION_MASK, PRIVILEGED
from jaxrl.errors import UserError
from jaxrl.types import PyTree

if TYPE_CHECKING:
    from brax.envs.base import State


# What JAX raises where Python needs the value of a traced array.
_NEEDS_VALUE = (
    jax.errors.ConcretizationTypeError,  # `if`, float()
    jax.errors.TracerArrayConversionError,  # NumPy's functions
    jax.errors.TracerIntegerConversionError,  # range(), an index of a list
    jax.errors.NonConcreteBooleanIndexError,
)
_LIBRARIES = ("jax", "jaxlib", "brax", "flax", "mujoco", "numpy")


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Turn an error of a user's own function that cannot be traced into one that names its line."""
    try:
        yield
    except _NEEDS_VALUE as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
        if not frames:
            raise
        where = f"{frames[-1].filename}:{frames[-1].lineno}: `{frames[-1].line}`"
        raise UserError(
            f"{where} needs the value of an array, but reset and step are compiled, and values are "
            "known only when the program runs. Use jnp.where or jax.lax.cond for `if`, and "
            "functions of jax.numpy."
        ) from error


def _is_users(file: str) -> bool:
    """Tell whether a file is neither ours nor of a library we build on."""
    path, ours = Path(file), Path(__file__).parents[1]
    folders = path.parts[path.parts.index("site-packages") + 1 :] if "site-packages" in file else ()
    return path.is_file() and ours not in path.parents and not set(folders[:1]) & {*_LIBRARIES}


def check_start(env: Any, start: "State") -> None:
    """Raise UserError if a first state cannot be one row of a batch."""
    agents = getattr(env, "num_agents", None)
    agent_axis = () if agents is None else (agents,)
    expected = {"reward": (start.reward, agent_axis), "done": (start.done, ())}
    expected |= {f"metrics['{name}']": (value, ()) for name, value in start.metrics.items()}
    for name, (value, shape) in expected.items():
        if value.shape != shape:
            raise UserError(
                f"The environment's `{name}` must have the shape {shape}, not {value.shape}."
            )
    _check_obs(start.obs, agent_axis, tuple(getattr(env, "token_sizes", ())))
    _check_mask(start.obs, agent_axis, getattr(env, "num_actions", None))
    _check_size(getattr(env, "inner", env), start.obs, len(agent_axis))
    for name in ("episode_length", "num_actions" if hasattr(env, "num_actions") else "action_size"):
        size = getattr(env, name, 1)
        if not isinstance(size, Integral) or int(size) < 1:
            raise UserError(
                f"The environment's `{name}` must be an integer of at least 1, not {size}."
            )


def _check_obs(obs: PyTree, agent_axis: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """Raise UserError if no network takes such observations."""
    if isinstance(obs, dict) and set(obs) <= {PRIVILEGED, ACTION_MASK}:
        raise UserError("The environment's `obs` has no part for the actor: add `state`.")
    axes = f"an axis for its {agent_axis[0]} agents, then " if agent_axis else ""
    for path, leaf in jax.tree_util.tree_leaves_with_path(obs):
        fits = leaf.shape[: len(agent_axis)] == agent_axis
        rank, is_bytes = leaf.ndim - len(agent_axis), leaf.dtype == jnp.uint8
        if tokens:
            kind = f"tokens with {len(tokens)} features each, uint8 [tokens, {len(tokens)}]"
            fits = fits and not path and is_bytes and rank == 2 and leaf.shape[-1] == len(tokens)
        else:
            kind = "a vector, or an image, uint8 [height, width, channels]"
            fits = fits and (rank == 1 or (rank == 3 and is_bytes))
        if not fits:
            name = "obs" + jax.tree_util.keystr(path)
            raise UserError(
                f"The environment's `{name}` must be {axes}{kind}, not {leaf.dtype}{[*leaf.shape]}."
            )


def _check_mask(obs: PyTree, agent_axis: tuple[int, ...], actions: int | None) -> None:
    """Raise UserError if an action mask does not fit the actions."""
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return
    mask = obs[ACTION_MASK]
    if actions is None:
        raise UserError("The environment's `action_mask` needs discrete actions: `num_actions`.")
    if mask.dtype != jnp.uint8 or mask.shape != (*agent_axis, actions):
        raise UserError(
            f"The environment's `action_mask` must be uint8{[*agent_axis, actions]}, 1 where an "
            f"action is valid, not {mask.dtype}{[*mask.shape]}."
        )


def _check_size(env: Any, obs: PyTree, skipped: int) -> None:
    """Raise UserError if an environment declares another `observation_size` than it has."""
    own = inspect.getattr_static(getattr(env, "unwrapped", env), "observation_size", None)
    derived = ("brax.", "jaxrl.envs.playground")
    if own is None or (isinstance(own, property) and own.fget.__module__.startswith(derived)):
        return  # these trace a reset themselves
    declared = env.observation_size
    sizes = jax.tree.map(lambda leaf: math.prod(leaf.shape[skipped:]), obs)
    if isinstance(declared, dict) and isinstance(sizes, dict):
        declared = {n: math.prod(s) if isinstance(s, tuple) else s for n, s in declared.items()}
    elif not isinstance(declared, Integral) or isinstance(sizes, dict):
        return
    if declared != sizes:
        raise UserError(
            f"The environment's `observation_size` is {env.observation_size}, but its reset "
            f"returns observations of size {sizes}: make them equal."
        )


def check_alike(new: PyTree, old: PyTree) -> None:
    """Raise UserError if a step returns another structure than the reset did."""
    if type(new) is not type(old):
        types = f"a {type(new).__name__}, not a {type(old).__name__} as its reset"
        raise UserError(f"The environment's step returns {types}.")
    after, before = _shapes(new), _shapes(old)
    for name in sorted(after.keys() ^ before.keys()):
        one, other = ("step", "reset") if name in after else ("reset", "step")
        raise UserError(
            f"The environment's `{one}` returns `{name}` but `{other}` does not; "
            "return it from both."
        )
    for name, shape in before.items():
        if after[name] != shape:
            raise UserError(
                f"The environment's reset returns `{name}` of the shape {shape}, its step "
                f"{after[name]}: they must be the same."
            )


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): jnp.shape(leaf) for path, leaf in leaves}
