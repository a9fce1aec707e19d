"""What an environment must give: a user's own may not, and is told what to change."""

from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.errors import UserError
from jaxrl.types import PyTree


def check_start(env: Any, start: Any) -> None:
    """Refuse a first state that cannot be one row of a batch."""
    agents = getattr(env, "num_agents", None)
    several = () if agents is None else (agents,)
    wanted = {"reward": (start.reward, several), "done": (start.done, ())}
    wanted |= {f"metrics['{name}']": (value, ()) for name, value in start.metrics.items()}
    for name, (value, shape) in wanted.items():
        if value.shape != shape:
            raise UserError(
                f"The environment's `{name}` must have the shape {shape}, not {value.shape}."
            )
    _check_seen(start.obs, several, tuple(getattr(env, "token_sizes", ())))
    for name in ("episode_length", "num_actions" if hasattr(env, "num_actions") else "action_size"):
        size = getattr(env, name, 1)
        if not isinstance(size, Integral) or int(size) < 1:
            raise UserError(
                f"The environment's `{name}` must be a whole number of at least 1, not {size}."
            )


def _check_seen(obs: PyTree, several: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """Refuse observations that no network takes."""
    if isinstance(obs, dict) and set(obs) <= {"privileged_state"}:
        raise UserError("The environment's `obs` has no part that the actor sees: add `state`.")
    axes = f"an axis for its {several[0]} agents, then " if several else ""
    for path, leaf in jax.tree_util.tree_leaves_with_path(obs):
        fits = leaf.shape[: len(several)] == several
        rank, picture = leaf.ndim - len(several), leaf.dtype == jnp.uint8
        if tokens:
            kind = f"tokens with {len(tokens)} features each, uint8 [tokens, {len(tokens)}]"
            fits = fits and not path and picture and rank == 2 and leaf.shape[-1] == len(tokens)
        else:
            kind = "a vector, or a picture, uint8 [height, width, channels]"
            fits = fits and (rank == 1 or (rank == 3 and picture))
        if not fits:
            name = "obs" + jax.tree_util.keystr(path)
            raise UserError(
                f"The environment's `{name}` must be {axes}{kind}, not {leaf.dtype}{[*leaf.shape]}."
            )


def check_alike(new: PyTree, old: PyTree) -> None:
    """Refuse a step that gives other things than the reset did: one program takes both."""
    if type(new) is not type(old):
        kinds = f"a {type(new).__name__}, not a {type(old).__name__} as its reset"
        raise UserError(f"The environment's step gives {kinds}.")
    after, before = _shapes(new), _shapes(old)
    for name in sorted(after.keys() ^ before.keys()):
        one, other = ("step", "reset") if name in after else ("reset", "step")
        raise UserError(
            f"The environment's {one} gives `{name}`, which its {other} does not: let both."
        )
    for name, shape in before.items():
        if after[name] != shape:
            raise UserError(
                f"The environment's reset gives `{name}` of the shape {shape}, its step "
                f"{after[name]}: they must be the same."
            )


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): jnp.shape(leaf) for path, leaf in leaves}
