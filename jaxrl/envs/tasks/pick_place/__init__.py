"""Pick and place: an arm with a suction cup brings a cube to a target.

`env` is the environment, `arm` and `kinematics` its physics, `reward` its reward, and `phases` the
learning phases that reports show.
"""

from typing import TYPE_CHECKING

from jaxrl.utils import lazy

if TYPE_CHECKING:
    from jaxrl.envs.tasks.pick_place.env import PickPlace

__all__ = ["PickPlace"]

__getattr__ = lazy.exports(__name__, {"PickPlace": "env"})
