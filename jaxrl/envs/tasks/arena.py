"""A grid world for several agents: mine ore, carry it to an altar; rob each other, or share.

Everything on the grid is a short list of positions, never a map: contents of cells are found by
comparing positions, which a GPU does for thousands of arenas in one kernel, without scattering.
All agents act at once. Of two that want the same thing, the one with the lower number gets it.
"""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base
from flax import struct

from jaxrl.envs.tasks import arena_image
from jaxrl.types import Array

NOOP, FORWARD, LEFT, RIGHT, USE, ATTACK, SHARE = range(7)
ACTIONS = ("noop", "forward", "left", "right", "use", "attack", "share")
EMPTY, WALL, MINE, SPENT, ALTAR, AGENT, FROZEN, SELF = range(8)  # what a token can show
_COUNTED = ("mined", "delivered", "stolen", "shared", "moved")
_HEADINGS = jnp.array([[-1, 0], [0, 1], [1, 0], [0, -1]], jnp.int32)  # north, east, south, west


class ArenaState(struct.PyTreeNode):
    """Positions are (row, column)."""

    place: Array  # int32 [agents, 2]
    heading: Array  # int32 [agents], 0 to 3
    ore: Array  # int32 [agents], carried
    frozen: Array  # int32 [agents], steps until it can act again
    walls: Array  # int32 [walls, 2]
    mines: Array  # int32 [mines, 2]
    refill: Array  # int32 [mines], steps until there is ore again
    altars: Array  # int32 [altars, 2]


def _same(a: Array, b: Array) -> Array:
    """Compare positions [..., 2] with a list of positions [n, 2]: [..., n]."""
    return jnp.all(jnp.expand_dims(a, -2) == b.reshape((1,) * (a.ndim - 1) + b.shape), axis=-1)


def _first(wants: Array) -> Array:
    """Of the agents [agents, things] that want a thing, keep the one with the lowest number."""
    return wants & (jnp.cumsum(wants, axis=0) == 1)


class Arena(base.Env):
    """Agents on a walled field, each observing 7 × 7 cells around it, rotated to its heading.

    forward moves, left and right turn; use takes ore from the mine ahead or gives it to the altar
    ahead; attack freezes the agent ahead and takes an ore from it; share gives it one.
    The reward is 1 for an ore brought to an altar, 0.1 for an ore mined. Episodes never terminate.

    An observation is 49 tokens, one for each cell in view: what is there, how much ore it carries
    (an agent) and its heading, relative to the observer. The middle token is the observer.
    """

    episode_length = 256
    num_agents = 4
    num_actions = len(ACTIONS)
    action_size: int = num_actions
    backend: str = "jax"
    size = 15
    num_walls, num_mines, num_altars = 16, 8, 2
    view = 7
    capacity = 3
    refill_time = 20
    freeze_time = 10
    token_sizes = (8, capacity + 1, 5)  # kind, ore, heading (0: has none)
    observation_size: int = view * view * 3

    def __init__(self, num_agents: int = num_agents):
        self.num_agents = num_agents

    def reset(self, rng: Array) -> base.State:
        """Scatter everything over different cells."""
        key_cells, key_heading = jax.random.split(rng)
        counts = (self.num_agents, self.num_walls, self.num_mines, self.num_altars)
        # The smallest of random numbers: a draw of different cells.
        order = jax.random.uniform(key_cells, (self.size * self.size,))
        cells = jax.lax.top_k(order, sum(counts))[1].astype(jnp.int32)
        places = jnp.stack([cells // self.size, cells % self.size], axis=-1)
        bounds = [sum(counts[:i]) for i in range(5)]
        agents, walls, mines, altars = (
            places[a:b] for a, b in zip(bounds, bounds[1:], strict=False)
        )
        arena = ArenaState(
            place=agents,
            heading=jax.random.randint(key_heading, (self.num_agents,), 0, 4),
            ore=jnp.zeros(self.num_agents, jnp.int32),
            frozen=jnp.zeros(self.num_agents, jnp.int32),
            walls=walls,
            mines=mines,
            refill=jnp.zeros(self.num_mines, jnp.int32),
            altars=altars,
        )
        zeros = jnp.zeros(len(_COUNTED), jnp.float32)
        metrics: dict[str, Array] = {name: zeros[i] for i, name in enumerate(_COUNTED)}
        return base.State(
            cast(Any, arena),
            self._observe(arena),
            jnp.zeros(self.num_agents, jnp.float32),
            jnp.zeros((), jnp.float32),
            metrics=metrics,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Let all agents act at once: turn, use, attack and share, then move."""
        arena = cast(ArenaState, state.pipeline_state)
        action = jnp.where(arena.frozen > 0, NOOP, action)
        ahead = arena.place + _HEADINGS[arena.heading]
        arena, mined, delivered = self._use(arena, action, ahead)
        arena, stolen, shared = self._meet(arena, action, ahead)
        moved = self._free(arena, action, ahead)
        turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
        arena = arena.replace(
            place=jnp.where(moved[:, None], ahead, arena.place),
            heading=(arena.heading + turn) % 4,
        )
        events = (mined, delivered, stolen, shared, moved)
        fractions = [jnp.mean(event.astype(jnp.float32)) for event in events]
        return dataclasses.replace(
            state,
            pipeline_state=arena,
            obs=self._observe(arena),
            reward=delivered * 1.0 + mined * 0.1,
            metrics=dict(zip(_COUNTED, fractions, strict=True)),
        )

    def draw(self, state: ArenaState) -> np.ndarray:
        """Return an image of one arena."""
        return arena_image.draw(state, self.size)

    def _use(
        self, arena: ArenaState, action: Array, ahead: Array
    ) -> tuple[ArenaState, Array, Array]:
        """Take ore from the mine ahead, or give it to the altar ahead."""
        uses = action == USE
        room = arena.ore < self.capacity
        at_mine = _same(ahead, arena.mines) & (uses & room)[:, None] & (arena.refill == 0)[None]
        takes = _first(at_mine)
        mined = jnp.any(takes, axis=1)
        delivered = uses & (arena.ore > 0) & jnp.any(_same(ahead, arena.altars), axis=1)
        refill = jnp.maximum(arena.refill - 1, 0)
        arena = arena.replace(
            ore=arena.ore + mined - delivered,
            refill=jnp.where(jnp.any(takes, axis=0), self.refill_time, refill),
        )
        return arena, mined, delivered

    def _meet(
        self, arena: ArenaState, action: Array, ahead: Array
    ) -> tuple[ArenaState, Array, Array]:
        """Attack or share with the agent ahead; an attack takes effect before a gift."""
        meets = _same(ahead, arena.place)  # [who, whom]
        attacks = meets & (action == ATTACK)[:, None]
        steals = _first(attacks & (arena.ore > 0)[None] & (arena.ore < self.capacity)[:, None])
        stolen, robbed = jnp.any(steals, axis=1), jnp.any(steals, axis=0)
        ore = arena.ore + stolen - robbed
        gives = meets & (action == SHARE)[:, None] & (ore > 0)[:, None]
        gives = _first(gives & (ore < self.capacity)[None])
        shared = jnp.any(gives, axis=1)
        ore = ore - shared + jnp.any(gives, axis=0)
        thaw = jnp.maximum(arena.frozen - 1, 0)
        frozen = jnp.where(jnp.any(attacks, axis=0), self.freeze_time, thaw)
        return arena.replace(ore=ore, frozen=frozen), stolen, shared

    def _free(self, arena: ArenaState, action: Array, ahead: Array) -> Array:
        """Return who may move: to a free cell that no agent with a lower number moves to."""
        inside = jnp.all((ahead >= 0) & (ahead < self.size), axis=1)
        things = jnp.concatenate([arena.walls, arena.mines, arena.altars, arena.place])
        wants = (action == FORWARD) & inside & ~jnp.any(_same(ahead, things), axis=1)
        rivals = _same(ahead, ahead) & wants[None]
        lower = jnp.arange(self.num_agents)[None] < jnp.arange(self.num_agents)[:, None]
        return wants & ~jnp.any(rivals & lower, axis=1)

    def _observe(self, arena: ArenaState) -> Array:
        """Return tokens [agents, cells, 3], row by row from ahead on the left."""
        reach = self.view // 2
        steps = jnp.arange(-reach, reach + 1)
        right, back = jnp.meshgrid(steps, steps)
        offsets = jnp.stack([back.ravel(), right.ravel()], axis=-1)  # as seen when facing north
        dy, dx = offsets[None, :, 0], offsets[None, :, 1]
        heading = arena.heading[:, None]
        turned = [(dy, dx), (dx, -dy), (-dy, -dx), (-dx, dy)]
        rows, columns = (
            jnp.select([heading == h for h in range(4)], [t[axis] for t in turned])
            for axis in (0, 1)
        )
        cells = arena.place[:, None] + jnp.stack([rows, columns], axis=-1)
        return self._tokens(arena, cells)

    def _tokens(self, arena: ArenaState, cells: Array) -> Array:
        """Return tokens of cells [agents, cells, 2], from each agent's view."""
        outside = jnp.any((cells < 0) | (cells >= self.size), axis=-1)
        mines, agents = _same(cells, arena.mines), _same(cells, arena.place)
        spent = jnp.any(mines & (arena.refill > 0)[None, None], axis=-1)
        frozen = jnp.any(agents & (arena.frozen > 0)[None, None], axis=-1)
        oneself = jnp.any(agents & jnp.eye(self.num_agents, dtype=bool)[:, None], axis=-1)
        kinds = [
            (oneself, SELF),
            (frozen, FROZEN),
            (jnp.any(agents, axis=-1), AGENT),
            (spent, SPENT),
            (jnp.any(mines, axis=-1), MINE),
            (jnp.any(_same(cells, arena.altars), axis=-1), ALTAR),
            (outside | jnp.any(_same(cells, arena.walls), axis=-1), WALL),
        ]
        kind = jnp.select([there for there, _ in kinds], [name for _, name in kinds], EMPTY)
        ore = jnp.sum(agents * arena.ore[None, None], axis=-1)
        relative = (arena.heading[None] - arena.heading[:, None]) % 4 + 1  # [observer, observed]
        heading = jnp.sum(agents * relative[:, None], axis=-1)
        return jnp.stack([kind, ore, heading], axis=-1).astype(jnp.uint8)
