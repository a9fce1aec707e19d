"""How members of a population differ: their labels, folder names and variants."""

from collections.abc import Sequence

from jaxrl.config import settings
from jaxrl.config.schema import TrainConfig
from jaxrl.config.settings import SETTINGS
from jaxrl.errors import UserError


def labels(members: Sequence[TrainConfig]) -> list[str]:
    """Return each member's settings that differ from others', besides its seed; "" if none does."""
    flat = [settings.values(member) for member in members]
    differing = [
        path
        for path in flat[0]
        if not SETTINGS[path].identity and len({repr(each[path]) for each in flat}) > 1
    ]
    return [",".join(f"{n.replace('_', '-')}={f[n]:g}" for n in differing) for f in flat]


def folder_names(members: Sequence[TrainConfig]) -> list[str]:
    """Return the name of each member's folder."""
    names = [
        f"{label},seed-{member.seed}" if label else f"seed-{member.seed}"
        for label, member in zip(labels(members), members, strict=True)
    ]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"Two members of a population are the same: {twice[0]}.")
    return names


def by_label(members: Sequence[TrainConfig]) -> dict[str, list[int]]:
    """Return the indices of members that differ in their seeds only, by their label."""
    groups: dict[str, list[int]] = {}
    for index, label in enumerate(labels(members)):
        groups.setdefault(label, []).append(index)
    return groups


def number(members: Sequence[TrainConfig]) -> str:
    """Return how many there are in words, as in `4 seeds`."""
    return f"{len(members)} {'members' if any(labels(members)) else 'seeds'}"
