"""The reward of picking and placing.

Approach, grasp, lift and place are each the change of a potential. What coming closer earns is lost
by moving away, so that repeating a part of the task gains nothing.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxrl.config import PickConfig
from jaxrl.types import Array


class Snapshot(NamedTuple):
    """The part of a state that rewards depend on."""

    tip: Array  # the mouth of the cup
    cube: Array  # its centre
    held: Array  # bool


class Task(NamedTuple):
    """What is constant in an episode."""

    target: Array
    start: Array  # the cube's first position


class RewardTerms(NamedTuple):
    """The reward of a step, term by term."""

    approach: Array
    grasp: Array
    lift: Array
    place: Array
    success: Array
    time: Array
    drop: Array


def distance(a: Array, b: Array) -> Array:
    """Return the distance of two points in metres."""
    return jnp.sqrt(jnp.sum(jnp.square(a - b)) + 1e-12)


def at_target(config: PickConfig, now: Snapshot, task: Task) -> Array:
    """Return whether the held cube is at the target."""
    return now.held & (distance(now.cube, task.target) < config.success_distance)


def terms(
    config: PickConfig, before: Snapshot, now: Snapshot, task: Task, success: Array, lost: Array
) -> RewardTerms:
    """Return the reward of a step."""
    old, new = _potentials(config, before, task), _potentials(config, now, task)
    dropped = (before.held & ~now.held) | lost
    return RewardTerms(
        *(b - a for a, b in zip(old, new, strict=True)),
        success=config.success_reward * success,
        time=jnp.asarray(-config.time_cost, jnp.float32),
        drop=-config.drop_cost * dropped,
    )


def _potentials(config: PickConfig, now: Snapshot, task: Task) -> tuple[Array, Array, Array, Array]:
    """Return the potentials of approach, grasp, lift and place."""
    height = jnp.clip((now.cube[2] - task.start[2]) / config.lift_height, 0.0, 1.0)
    # From the cube's first position: picking it up elsewhere earns no more.
    carried = distance(task.start, task.target) - distance(now.cube, task.target)
    return (
        -config.approach_reward * distance(now.tip, now.cube) * ~now.held,
        config.grasp_reward * now.held,
        config.lift_reward * height * now.held,
        config.place_reward * carried * now.held,
    )
