"""What picking and placing pays.

Approach, grasp, lift and place each pay the change of a potential. What was earned by coming closer
is lost by going away, so that nothing is gained by doing a part of the task over and over.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxrl.config import PickConfig
from jaxrl.types import Array


class Moment(NamedTuple):
    """What rewards depend on."""

    tip: Array  # the mouth of the cup
    cube: Array  # its centre
    held: Array  # bool


class Task(NamedTuple):
    """What stays the same in an episode."""

    target: Array
    start: Array  # where the cube was


class Terms(NamedTuple):
    """What a step pays."""

    approach: Array
    grasp: Array
    lift: Array
    place: Array
    success: Array
    time: Array
    drop: Array


def distance(a: Array, b: Array) -> Array:
    """Return metres between two points."""
    return jnp.sqrt(jnp.sum(jnp.square(a - b)) + 1e-12)


def there(config: PickConfig, now: Moment, task: Task) -> Array:
    """Tell whether the held cube is at the target."""
    return now.held & (distance(now.cube, task.target) < config.success_distance)


def terms(
    config: PickConfig, before: Moment, now: Moment, task: Task, success: Array, lost: Array
) -> Terms:
    """Return what a step from one moment to the next pays."""
    old, new = _potentials(config, before, task), _potentials(config, now, task)
    dropped = (before.held & ~now.held) | lost
    return Terms(
        *(b - a for a, b in zip(old, new, strict=True)),
        success=config.success_reward * success,
        time=jnp.asarray(-config.time_cost, jnp.float32),
        drop=-config.drop_cost * dropped,
    )


def _potentials(config: PickConfig, now: Moment, task: Task) -> tuple[Array, Array, Array, Array]:
    """Return what approach, grasp, lift and place have earned so far."""
    height = jnp.clip((now.cube[2] - task.start[2]) / config.lift_height, 0.0, 1.0)
    # From where the cube was: picking it up elsewhere pays no more than here.
    carried = distance(task.start, task.target) - distance(now.cube, task.target)
    return (
        -config.approach_reward * distance(now.tip, now.cube) * ~now.held,
        config.grasp_reward * now.held,
        config.lift_reward * height * now.held,
        config.place_reward * carried * now.held,
    )
