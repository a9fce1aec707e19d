"""What an environment must give: a user's own may not, and is told what to change."""

from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.errors import UserError
from jaxrl.types import PyTree


def check_start(start: Any, agents: int | None, episode_length: Any) -> None:
    """Refuse a first state that cannot be one row of a batch."""
    several = () if agents is None else (agents,)
    wanted = {"reward": (start.reward, several), "done": (start.done, ())}
    wanted |= {f"metrics['{name}']": (value, ()) for name, value in start.metrics.items()}
    for name, (value, shape) in wanted.items():
        if value.shape != shape:
            raise UserError(
                f"The environment's `{name}` must have the shape {shape}, not {value.shape}."
            )
    for path, leaf in jax.tree_util.tree_leaves_with_path(start.obs):
        if leaf.ndim <= len(several) or leaf.shape[: len(several)] != several:
            name = "obs" + jax.tree_util.keystr(path)
            axes = f"an axis for its {agents} agents and one more" if agents else "one axis or more"
            raise UserError(
                f"The environment's `{name}` must have {axes}, not the shape {leaf.shape}."
            )
    if not isinstance(episode_length, Integral) or int(episode_length) < 1:
        raise UserError(
            "The environment's `episode_length` must be a whole number of at least 1, "
            f"not {episode_length}."
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
