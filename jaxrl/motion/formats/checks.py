"""What motion files must share with a model to move it."""

from pathlib import Path

from jaxrl.errors import UserError, nearest
from jaxrl.motion.skeleton import Skeleton

_SIDE = (("hip", 4), ("knee", 1), ("ankle", 4), ("shoulder", 4), ("elbow", 1))
# The joints of our humanoid, and how many numbers each has: a rotation or an angle.
JOINTS = (
    ("chest", 4),
    ("neck", 4),
    *((f"{side}_{part}", width) for side in ("right", "left") for part, width in _SIDE),
)


def our_humanoid(file: Path, skeleton: Skeleton) -> None:
    """Refuse a model without the joints of our humanoid."""
    for name, width in JOINTS:
        kind = {4: "ball", 1: "hinge"}[width]
        joint = skeleton.joint(name)
        if joint is None or joint.kind != kind:
            what = "no joint of that name" if joint is None else f"a {joint.kind} joint there"
            raise UserError(
                f"'{file}' moves a {kind} joint '{name}', but the model has {what}: "
                "such files are for the humanoid that comes with this package."
            )


def same_bodies(file: Path, skeleton: Skeleton, bodies: list[str]) -> None:
    """Refuse a file made for other bodies."""
    missing = [name for name in skeleton.bodies if name not in bodies]
    beyond = [name for name in bodies if name not in skeleton.bodies]
    if missing or beyond:
        what = f"has no body '{missing[0]}'" if missing else f"has a body '{beyond[0]}'"
        other = "the model has one" if missing else "the model has none of that name"
        raise UserError(f"'{file}' is of another skeleton: it {what}, but {other}.")


def same_joints(file: Path, skeleton: Skeleton, joints: list[str]) -> None:
    """Refuse a file that lacks joints of the model (but for its root), or has others."""
    known = [joint.name for joint in skeleton.joints[1:]]
    for name in known:
        if name not in joints:
            raise UserError(f"'{file}': joint '{name}' is missing.{nearest(name, joints)}")
    for name in joints:
        if name not in known:
            raise UserError(
                f"'{file}': it moves a joint '{name}', but the model has none of that name."
                f"{nearest(name, known)}"
            )
