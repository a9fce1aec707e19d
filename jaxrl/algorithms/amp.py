"""Rewards for the manner of moving (AMP): a discriminator learns beside the policy.

    rollout -> style rewards, step by step, before the advantages -> policy learns
            -> discriminator learns: demonstrations against the agent's motion, new and remembered

Rewards keep their place in the rollout [T, N]: each step is paid for the history that it completed.
A style observation of zeros says that there is no whole history yet, as early in an episode: the
discriminator does not learn from it, and the step is paid as one that it cannot tell.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl.config import AMPConfig
from jaxrl.learning import discriminator, normalizer, optimizer
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import AMP_OBS
from jaxrl.networks.mlp import MLP
from jaxrl.types import Array, Key, Mean, Metrics, PyTree, Rollout


class StyleState(struct.PyTreeNode):
    """What learning about style changes."""

    params: PyTree
    optimizer: PyTree
    moments: RunningStats  # of demonstrations and the agent's motion alike
    replay: Array  # [rows, numbers], the agent's motion as it was earlier
    filled: Array  # int32, rows of it that hold something


class _Discriminator(nn.Module):
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = MLP(self.hidden, "relu")(x)
        # Small at first: everything looks equally real.
        head = nn.initializers.variance_scaling(0.01, "fan_in", "uniform")
        return nn.Dense(1, kernel_init=head, name="head")(x)[..., 0]


class AMP(NamedTuple):
    """Pure functions of style; `demonstrations(key, number)` gives real motion, [number, n]."""

    config: AMPConfig
    demonstrations: Callable[[Key, int], Array]
    size: int

    @property
    def _network(self) -> _Discriminator:
        return _Discriminator(self.config.hidden)

    @property
    def _transform(self) -> optax.GradientTransformation:
        decay = optax.add_decayed_weights(self.config.weight_decay)
        return optax.chain(optimizer.adam(1.0, 1e-8), decay)

    def init(self, key: Key) -> StyleState:
        """Start knowing nothing."""
        params = self._network.init(key, jnp.zeros((1, self.size)))
        return StyleState(
            params=params,
            optimizer=self._transform.init(params),
            moments=normalizer.init(jax.ShapeDtypeStruct((self.size,), jnp.float32)),
            replay=jnp.zeros((self.config.replay, self.size), jnp.float32),
            filled=jnp.zeros((), jnp.int32),
        )

    def reward(self, state: StyleState, experience: Rollout) -> Array:
        """Return the task's rewards mixed with those for style, [T, N]."""
        shown = experience.next_obs[AMP_OBS]
        logit = self._logit(state.params, normalizer.normalize(state.moments, shown))
        logit = jnp.where(_is_whole(shown), logit, 0.0)
        paid = self.config.scale * discriminator.reward(self.config.loss, logit)
        return self.config.task_weight * experience.reward + self.config.weight * paid

    def learn(self, state: StyleState, experience: Rollout, key: Key) -> tuple[StyleState, Metrics]:
        """Tell the rollout's motion from demonstrations, then remember some of it."""
        key_steps, key_keep, key_demo, key_fresh = jax.random.split(key, 4)
        fresh = _Motion.of(experience.next_obs[AMP_OBS].reshape(-1, self.size))
        demo = self.demonstrations(key_demo, self.config.batch_size)
        both = jnp.concatenate([fresh.draw(key_fresh, demo), demo])
        state = state.replace(moments=normalizer.update(state.moments, both))

        def step(state: StyleState, key: Key) -> tuple[StyleState, Metrics]:
            return self._update(state, fresh, key)

        keys = jax.random.split(key_steps, self.config.updates)
        state, metrics = jax.lax.scan(step, state, keys)
        merged = jax.tree.map(lambda x: jnp.sum(x, axis=0), metrics)
        return self._remember(state, fresh, key_keep), merged

    def _logit(self, params: PyTree, seen: Array) -> Array:
        return self._network.apply(params, seen)  # type: ignore[return-value]

    def _update(self, state: StyleState, fresh: "_Motion", key: Key) -> tuple[StyleState, Metrics]:
        key_demo, key_fresh, key_old, key_mix = jax.random.split(key, 4)
        number, c = self.config.batch_size, self.config
        shown = self.demonstrations(key_demo, number)
        new = fresh.draw(key_fresh, shown)
        old = state.replay[jax.random.randint(key_old, (number,), 0, jnp.maximum(state.filled, 1))]
        # Half of the agent's motion is remembered, once there is something to remember.
        remembered = (jax.random.uniform(key_mix, (number, 1)) < 0.5) & (state.filled > 0)
        agent = normalizer.normalize(state.moments, jnp.where(remembered, old, new))
        demo = normalizer.normalize(state.moments, shown)

        def loss(params: PyTree) -> tuple[Array, tuple]:
            logits = self._logit(params, demo), self._logit(params, agent)
            told = discriminator.classification_loss(c.loss, *logits)
            slope = discriminator.gradient_penalty(lambda x: self._logit(params, x[None])[0], demo)
            head = params["params"]["head"]["kernel"]
            total = told + c.gradient_penalty * slope + c.logit_reg * jnp.sum(jnp.square(head))
            return total, (told, slope, *logits)

        grads, (told, slope, real, unreal) = jax.grad(loss, has_aux=True)(state.params)
        done = optimizer.step(
            self._transform,
            state.params,
            state.optimizer,
            grads,
            learning_rate=jnp.asarray(c.learning_rate),
        )
        noted: dict[str, Any] = {
            "amp/loss": told,
            "amp/gradient_penalty": slope,
            "amp/demo_accuracy": jnp.mean(real > 0.0),
            "amp/agent_accuracy": jnp.mean(unreal < 0.0),
            "amp/demo_logit": jnp.mean(real),
            "amp/agent_logit": jnp.mean(unreal),
            "amp/agent_reward": c.scale * jnp.mean(discriminator.reward(c.loss, unreal)),
        }
        state = state.replace(params=done.params, optimizer=done.opt_state)
        return state, {name: Mean.of(value) for name, value in noted.items()}

    def _remember(self, state: StyleState, fresh: "_Motion", key: Key) -> StyleState:
        """Fill the memory first, then overwrite random rows with a few of the newest."""
        rows = self.config.replay
        number = min(max(rows // 16, 1), len(fresh.rows))
        key_from, key_to = jax.random.split(key)
        chosen = fresh.draw(key_from, state.replay[:number])
        at_random = jax.random.randint(key_to, (number,), 0, rows)
        in_turn = (state.filled + jnp.arange(number)) % rows
        place = jnp.where(state.filled < rows, in_turn, at_random)
        replay = state.replay.at[place].set(chosen)
        filled = jnp.minimum(state.filled + number, rows)
        any_new = fresh.number > 0
        return state.replace(
            replay=jnp.where(any_new, replay, state.replay),
            filled=jnp.where(any_new, filled, state.filled),
        )


def _is_whole(shown: Array) -> Array:
    """Tell which style observations [..., numbers] show a whole history."""
    return jnp.any(shown != 0.0, axis=-1)


class _Motion(NamedTuple):
    """The agent's histories of a rollout."""

    rows: Array  # [rows, numbers]
    order: Array  # int32 [rows], those of whole histories first
    number: Array  # int32, how many are whole

    @classmethod
    def of(cls, shown: Array) -> "_Motion":
        """Find the whole ones among [rows, numbers]."""
        whole = _is_whole(shown)
        return cls(shown, jnp.argsort(~whole), jnp.sum(whole, dtype=jnp.int32))

    def draw(self, key: Key, otherwise: Array) -> Array:
        """Draw as many whole histories as `otherwise` has rows; where there is none, those."""
        place = jax.random.randint(key, otherwise.shape[:1], 0, jnp.maximum(self.number, 1))
        return jnp.where(self.number > 0, self.rows[self.order[place]], otherwise)
