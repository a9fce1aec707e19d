"""Checks of what an environment's reset and step return, with messages that say what to change."""

from numbers import Integral
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxrl.errors import UserError
from jaxrl.types import PyTree

if TYPE_CHECKING:
    from brax.envs.base import State


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
    for name in ("episode_length", "num_actions" if hasattr(env, "num_actions") else "action_size"):
        size = getattr(env, name, 1)
        if not isinstance(size, Integral) or int(size) < 1:
            raise UserError(
                f"The environment's `{name}` must be an integer of at least 1, not {size}."
            )


def _check_obs(obs: PyTree, agent_axis: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """Raise UserError if no network takes such observations."""
    if isinstance(obs, dict) and set(obs) <= {"privileged_state", "action_mask"}:
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
    if not isinstance(obs, dict) or "action_mask" not in obs:
        return
    mask = obs["action_mask"]
    if actions is None:
        raise UserError("The environment's `action_mask` needs discrete actions: `num_actions`.")
    if mask.dtype != jnp.uint8 or mask.shape != (*agent_axis, actions):
        raise UserError(
            f"The environment's `action_mask` must be uint8{[*agent_axis, actions]}, 1 where an "
            f"action is valid, not {mask.dtype}{[*mask.shape]}."
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
