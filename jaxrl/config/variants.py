"""What sets the members of a population apart: their labels, folder names and variants."""

from collections.abc import Sequence
from dataclasses import asdict

from jaxrl.config import serialization
from jaxrl.config.schema import TrainConfig
from jaxrl.errors import UserError


def labels(members: Sequence[TrainConfig]) -> list[str]:
    """Return what sets each member apart besides its seed, as flags; "" where nothing does."""
    flat = [serialization.flatten(asdict(member)) for member in members]
    differing = [
        name
        for name in flat[0]
        if name not in ("seed", "run_dir", "preset") and len({repr(f[name]) for f in flat}) > 1
    ]
    return [",".join(f"{n.replace('_', '-')}={f[n]:g}" for n in differing) for f in flat]


def folder_names(members: Sequence[TrainConfig]) -> list[str]:
    """Return the name of each member's folder."""
    found = [
        f"{label},seed-{member.seed}" if label else f"seed-{member.seed}"
        for label, member in zip(labels(members), members, strict=True)
    ]
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise UserError(f"Two members of a population are the same: {twice[0]}.")
    return found


def by_label(members: Sequence[TrainConfig]) -> dict[str, list[int]]:
    """Return the places of the members that differ in their seeds only, by what they share."""
    found: dict[str, list[int]] = {}
    for place, label in enumerate(labels(members)):
        found.setdefault(label, []).append(place)
    return found


def number(members: Sequence[TrainConfig]) -> str:
    """Say how many there are, and of what."""
    return f"{len(members)} {'members' if any(labels(members)) else 'seeds'}"
