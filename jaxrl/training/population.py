"""Several runs as one program: seeds, and settings that are arrays of the training state.

Members may differ in their seed and in traced settings. What shapes the program must be the same;
`groups` sorts members that can be trained together.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax

from jaxrl import programs
from jaxrl.config import TrainConfig, overrides, settings, variants
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.errors import UserError
from jaxrl.programs import DeviceProgram, OfflineProgram
from jaxrl.utils import sharding


def _shape(config: TrainConfig) -> tuple:
    """Return what members of one program must have in common."""
    return tuple(sorted(settings.static(config).items()))


def groups(configs: Sequence[TrainConfig]) -> list[list[int]]:
    """Sort configurations, by their places, into those that can be one program."""
    found: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        found.setdefault(repr(_shape(config)), []).append(place)
    return list(found.values())


def build(members: Sequence[TrainConfig]) -> DeviceProgram | OfflineProgram:
    """Build one program for members that differ only in seeds and traced settings."""
    overrides.check(members)
    if len(groups(members)) != 1:
        raise UserError(_differing(members))
    variants.folder_names(members)  # refuses two that are the same, before there is a folder
    # Each member is built for one device: rows of environments are not split, members are.
    program = programs.build(replace(members[0], devices=1))
    if isinstance(program, OfflineProgram) and not isinstance(program.env, GymnasiumEnv):
        return replace(program, config=members[0], members=tuple(members))
    if not isinstance(program, DeviceProgram):
        raise UserError(
            f"--num-seeds: '{members[0].env}' does not run on the device, so its seeds cannot "
            "share a program: run one after the other."
        )
    mesh = sharding.make_mesh(devices_for(members))
    return replace(program, config=members[0], members=tuple(members), mesh=mesh, cache=None)


def _differing(members: Sequence[TrainConfig]) -> str:
    """Say which settings keep members from being one program."""
    if not members:
        return "A population needs members: give the settings of one or more."
    shapes = [dict(_shape(member)) for member in members]
    # Other algorithms have other traced settings, which these shapes then lack.
    wrong = [name for name in shapes[0] if len({repr(s.get(name)) for s in shapes}) > 1]
    free = settings.traced(members[0])
    zero = " (0 for some, which leaves a part of the program out)" if wrong[0] in free else ""
    return (
        f"Members of a population may differ in seeds and traced settings only, not in "
        f"{settings.flag(wrong[0])}{zero}: train them one after the other. Traced are "
        f"{', '.join(map(settings.flag, free))}."
    )


def devices_for(members: Sequence[TrainConfig]) -> int:
    """Return the largest number of devices that the members divide over."""
    present, asked, number = len(jax.devices()), members[0].devices, len(members)
    if asked is None:
        return max(d for d in range(1, present + 1) if number % d == 0)
    if asked > present:
        raise UserError(f"--devices {asked}: this machine has {present}.")
    if number % asked:
        raise UserError(
            f"--devices {asked}: {number} members are not divisible by {asked} devices: use "
            f"{-(-number // asked) * asked} members, or another number of devices."
        )
    return asked
