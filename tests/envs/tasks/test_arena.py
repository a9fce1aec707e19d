"""The arena against a plain Python implementation of its rules."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import env_names, presets, validate
from jaxrl.config.schema import TaskConfig
from jaxrl.envs import registry
from jaxrl.envs.tasks import arena
from jaxrl.envs.tasks.arena import Arena
from jaxrl.envs.vector_env import VectorEnv

ENV = Arena()
NORTH, EAST, SOUTH, WEST = range(4)
AHEAD = {NORTH: (-1, 0), EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1)}


def _cells(places):
    return [tuple(int(n) for n in place) for place in np.asarray(places)]


class ReferenceArena:
    """The same rules in plain Python, one agent after the other."""

    def __init__(self, state):
        self.place, self.heading = _cells(state.place), np.asarray(state.heading).tolist()
        self.ore, self.frozen = [0] * 4, [0] * 4
        self.walls, self.altars = set(_cells(state.walls)), set(_cells(state.altars))
        self.mines = dict.fromkeys(_cells(state.mines), 0)

    def ahead(self, i):
        dy, dx = AHEAD[self.heading[i]]
        return self.place[i][0] + dy, self.place[i][1] + dx

    def step(self, actions):
        actions = [arena.NOOP if f else a for a, f in zip(actions, self.frozen, strict=True)]
        rewards = [0.0] * 4
        ready = {place for place, wait in self.mines.items() if wait == 0}
        self.mines = {place: max(wait - 1, 0) for place, wait in self.mines.items()}
        for i, action in enumerate(actions):
            if action == arena.USE and self.ahead(i) in ready and self.ore[i] < 3:
                self.ore[i], rewards[i] = self.ore[i] + 1, 0.1
                ready.remove(self.ahead(i))
                self.mines[self.ahead(i)] = 20
            elif action == arena.USE and self.ahead(i) in self.altars and self.ore[i]:
                self.ore[i], rewards[i] = self.ore[i] - 1, 1.0
        self._fight(actions)
        self._give(actions)
        self._move(actions)
        return rewards

    def _victim(self, i):
        return self.place.index(self.ahead(i)) if self.ahead(i) in self.place else None

    def _fight(self, actions):
        before, robbed, hit = list(self.ore), set(), set()
        for i, action in enumerate(actions):
            victim = self._victim(i)
            if action == arena.ATTACK and victim is not None:
                hit.add(victim)
                if before[victim] and before[i] < 3 and victim not in robbed:
                    robbed.add(victim)
                    self.ore[i] += 1
                    self.ore[victim] -= 1
        self.frozen = [10 if i in hit else max(f - 1, 0) for i, f in enumerate(self.frozen)]

    def _give(self, actions):
        before, given = list(self.ore), set()
        for i, action in enumerate(actions):
            other = self._victim(i)
            if action != arena.SHARE or other is None or other in given:
                continue
            if before[i] and before[other] < 3:
                given.add(other)
                self.ore[i] -= 1
                self.ore[other] += 1

    def _move(self, actions):
        blocked = self.walls | self.altars | set(self.mines) | set(self.place)
        goals = [self.ahead(i) for i in range(4)]
        for i, action in enumerate(actions):
            if action == arena.LEFT:
                self.heading[i] = (self.heading[i] - 1) % 4
            if action == arena.RIGHT:
                self.heading[i] = (self.heading[i] + 1) % 4
        for i, action in enumerate(actions):
            inside = all(0 <= n < ENV.size for n in goals[i])
            if action == arena.FORWARD and inside and goals[i] not in blocked:
                self.place[i] = goals[i]
                blocked.add(goals[i])

    def look(self, i):
        tokens = []
        for back in range(-3, 4):
            for right in range(-3, 4):
                dy, dx = back, right
                for _ in range(self.heading[i]):  # a quarter turn to the right
                    dy, dx = dx, -dy
                tokens.append(self._token(i, (self.place[i][0] + dy, self.place[i][1] + dx)))
        return tokens

    def _token(self, i, cell):
        if cell in self.place:
            j = self.place.index(cell)
            kind = arena.SELF if i == j else arena.FROZEN if self.frozen[j] else arena.AGENT
            return kind, self.ore[j], (self.heading[j] - self.heading[i]) % 4 + 1
        if cell in self.mines:
            return (arena.SPENT if self.mines[cell] else arena.MINE), 0, 0
        if cell in self.altars:
            return arena.ALTAR, 0, 0
        inside = all(0 <= n < ENV.size for n in cell)
        return (arena.EMPTY if inside and cell not in self.walls else arena.WALL), 0, 0


def test_reset_puts_everything_on_its_own_cell():
    state = jax.jit(jax.vmap(ENV.reset))(jax.random.split(jax.random.key(0), 50)).pipeline_state
    for i in range(50):
        lists = (state.place, state.walls, state.mines, state.altars)
        cells = [cell for places in lists for cell in _cells(places[i])]
        assert len(set(cells)) == len(cells) == 30


def test_steps_match_the_reference_implementation(monkeypatch):
    # A small map, so that every kind of event happens.
    for name, number in (("size", 5), ("num_walls", 2), ("num_mines", 4), ("num_altars", 2)):
        monkeypatch.setattr(ENV, name, number)
    events, step, reset = np.zeros(5), jax.jit(ENV.step), jax.jit(ENV.reset)
    for seed in range(3):
        state, rng = reset(jax.random.key(seed)), np.random.default_rng(seed)
        reference = ReferenceArena(state.pipeline_state)
        for _ in range(150):
            weights = [1, 4, 2, 2, 8, 2, 6]
            actions = rng.choice(7, 4, p=np.array(weights) / sum(weights))
            state = step(state, jnp.asarray(actions, jnp.int32))
            rewards = reference.step(actions.tolist())
            inside = state.pipeline_state
            assert _cells(inside.place) == reference.place
            assert inside.heading.tolist() == reference.heading
            assert inside.ore.tolist() == reference.ore
            assert inside.frozen.tolist() == reference.frozen
            assert inside.refill.tolist() == list(reference.mines.values())
            np.testing.assert_allclose(state.reward, rewards, rtol=1e-6)
            for i in range(4):
                np.testing.assert_array_equal(state.obs[i], reference.look(i))
            events += [float(state.metrics[name]) for name in sorted(state.metrics)]
    assert (events > 0.5).all()  # mined, delivered, stolen, shared and moved


def test_number_of_agents_matches_env_names():
    assert {"arena": Arena.num_agents} == env_names.AGENTS


def test_number_of_agents_is_a_setting():
    config = replace(presets.get("arena-small"), task=TaskConfig(num_agents=6))
    assert config.rows == 64 * 6 and validate.validate(config) == []
    start = jax.eval_shape(registry.from_config(config).reset, jax.random.key(0))
    assert start.obs.shape == (6, 49, 3) and start.reward.shape == (6,)
    config = replace(presets.get("cartpole"), task=TaskConfig(num_agents=2))
    (problem,) = validate.validate(config)
    assert "--task.num-agents: 'cartpole' has one agent" in problem


def test_every_agent_has_a_row():
    env = VectorEnv(ENV, num_envs=3, episode_length=4, random_first_age=False)
    assert env.rows == 12 and env.spec.obs.shape == (49, 3)
    actions = jnp.arange(12) % 7

    @jax.jit
    def play(key):
        pool = env.sample_pool(key)
        start = env.reset(key, pool)
        expected = jax.vmap(ENV.step)(env.brax_state(start.packed), actions.reshape(3, 4))
        keys = jax.random.split(key, 4)
        end, outcomes = jax.lax.scan(lambda s, k: env.step(s, actions, pool, k), start, keys)
        return start, env.observe(start), expected, outcomes, end

    start, seen, expected, outcomes, end = play(jax.random.key(0))
    np.testing.assert_array_equal(seen[5], start.packed.obs[1, 1])
    np.testing.assert_array_equal(outcomes.reward[0], expected.reward.ravel())
    np.testing.assert_array_equal(outcomes.next_obs[0], expected.obs.reshape(12, 49, 3))
    assert outcomes.next_obs.dtype == jnp.uint8
    assert outcomes.truncated[-1].tolist() == [True] * 12 and not outcomes.terminated.any()
    _, metrics = env.pop_statistics(end)
    assert metrics["rollout/ep_rew_mean"].count == 3
    mean = outcomes.reward.sum(axis=0).mean()
    np.testing.assert_allclose(metrics["rollout/ep_rew_mean"].total / 3, mean, rtol=1e-5)
