"""Adversarial motion priors (AMP): a discriminator learns beside the policy and rewards style.

    rollout -> style rewards of every step, before the advantages -> policy learns
            -> discriminator learns: demonstrations against the agent's motion, new and replayed

Rewards are [T, N], as in the rollout: each step is rewarded for the history that ends with it.
An AMP observation of zeros means that the history is not complete yet, as early in an episode: the
discriminator does not learn from it, and the step's reward is that of a logit of 0.
Reference: Peng et al., 2021.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl.config import AMPConfig
from jaxrl.config.obs_keys import AMP as AMP_OBS
from jaxrl.learning import discriminator, normalizer, optimizer
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.mlp import MLP
from jaxrl.types import Array, Key, Mean, Metrics, PyTree, Rollout


class AMPState(struct.PyTreeNode):
    """The discriminator: everything that its learning changes."""

    params: PyTree
    optimizer: PyTree
    stats: RunningStats  # of demonstrations and the agent's motion together
    replay: Array  # [rows, features], earlier motion of the agent
    filled: Array  # int32, number of rows in use


class _Discriminator(nn.Module):
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = MLP(self.hidden, "relu")(x)
        # Small at first: all motion looks equally real.
        head = nn.initializers.variance_scaling(0.01, "fan_in", "uniform")
        return nn.Dense(1, kernel_init=head, name="head")(x)[..., 0]


class AMP(NamedTuple):
    """Pure functions of AMP; `demonstrations(key, number)` samples real motion, [number, n]."""

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

    def init(self, key: Key) -> AMPState:
        """Return the state before the first rollout."""
        params = self._network.init(key, jnp.zeros((1, self.size)))
        return AMPState(
            params=params,
            optimizer=self._transform.init(params),
            stats=normalizer.init(jax.ShapeDtypeStruct((self.size,), jnp.float32)),
            replay=jnp.zeros((self.config.replay, self.size), jnp.float32),
            filled=jnp.zeros((), jnp.int32),
        )

    def reward(self, state: AMPState, experience: Rollout) -> Array:
        """Return the weighted sum of task and style rewards, [T, N]."""
        amp_obs = experience.next_obs[AMP_OBS]
        logit = self._logit(state.params, normalizer.normalize(state.stats, amp_obs))
        logit = jnp.where(_is_complete(amp_obs), logit, 0.0)
        style = self.config.scale * discriminator.reward(self.config.loss, logit)
        return self.config.task_weight * experience.reward + self.config.weight * style

    def learn(self, state: AMPState, experience: Rollout, key: Key) -> tuple[AMPState, Metrics]:
        """Train the discriminator on a rollout, then add some of its motion to the replay."""
        key_steps, key_replay, key_demo, key_fresh = jax.random.split(key, 4)
        fresh = _Motion.of(experience.next_obs[AMP_OBS].reshape(-1, self.size))
        demo = self.demonstrations(key_demo, self.config.batch_size)
        motion = jnp.concatenate([fresh.sample(key_fresh, demo), demo])
        state = state.replace(stats=normalizer.update(state.stats, motion))

        def step(state: AMPState, key: Key) -> tuple[AMPState, Metrics]:
            return self._update(state, fresh, key)

        keys = jax.random.split(key_steps, self.config.updates)
        state, metrics = jax.lax.scan(step, state, keys)
        merged = jax.tree.map(lambda x: jnp.sum(x, axis=0), metrics)
        return self._add_to_replay(state, fresh, key_replay), merged

    def _logit(self, params: PyTree, amp_obs: Array) -> Array:
        return self._network.apply(params, amp_obs)  # type: ignore[return-value]

    def _update(self, state: AMPState, fresh: "_Motion", key: Key) -> tuple[AMPState, Metrics]:
        key_demo, key_fresh, key_old, key_mix = jax.random.split(key, 4)
        number, c = self.config.batch_size, self.config
        demo = self.demonstrations(key_demo, number)
        new = fresh.sample(key_fresh, demo)
        old = state.replay[jax.random.randint(key_old, (number,), 0, jnp.maximum(state.filled, 1))]
        # Half of the agent's motion is replayed, once there is some.
        replayed = (jax.random.uniform(key_mix, (number, 1)) < 0.5) & (state.filled > 0)
        agent = normalizer.normalize(state.stats, jnp.where(replayed, old, new))
        demo = normalizer.normalize(state.stats, demo)

        def loss(params: PyTree) -> tuple[Array, tuple]:
            logits = self._logit(params, demo), self._logit(params, agent)
            loss = discriminator.classification_loss(c.loss, *logits)
            penalty = discriminator.gradient_penalty(
                lambda x: self._logit(params, x[None])[0], demo
            )
            head = params["params"]["head"]["kernel"]
            total = loss + c.gradient_penalty * penalty + c.logit_reg * jnp.sum(jnp.square(head))
            return total, (loss, penalty, *logits)

        grads, (loss_value, penalty, demo_logit, agent_logit) = jax.grad(loss, has_aux=True)(
            state.params
        )
        step = optimizer.step(
            self._transform,
            state.params,
            state.optimizer,
            grads,
            learning_rate=jnp.asarray(c.learning_rate),
        )
        metrics = {
            "amp/loss": loss_value,
            "amp/gradient_penalty": penalty,
            "amp/demo_accuracy": jnp.mean(demo_logit > 0.0),
            "amp/agent_accuracy": jnp.mean(agent_logit < 0.0),
            "amp/demo_logit": jnp.mean(demo_logit),
            "amp/agent_logit": jnp.mean(agent_logit),
            "amp/agent_reward": c.scale * jnp.mean(discriminator.reward(c.loss, agent_logit)),
        }
        state = state.replace(params=step.params, optimizer=step.opt_state)
        return state, {name: Mean.of(value) for name, value in metrics.items()}

    def _add_to_replay(self, state: AMPState, fresh: "_Motion", key: Key) -> AMPState:
        """Fill the replay first, then overwrite random rows with a few of the newest."""
        rows = self.config.replay
        number = min(max(rows // 16, 1), len(fresh.rows))
        key_from, key_to = jax.random.split(key)
        chosen = fresh.sample(key_from, state.replay[:number])
        at_random = jax.random.randint(key_to, (number,), 0, rows)
        in_order = (state.filled + jnp.arange(number)) % rows
        place = jnp.where(state.filled < rows, in_order, at_random)
        replay = state.replay.at[place].set(chosen)
        filled = jnp.minimum(state.filled + number, rows)
        any_new = fresh.number > 0
        return state.replace(
            replay=jnp.where(any_new, replay, state.replay),
            filled=jnp.where(any_new, filled, state.filled),
        )


def _is_complete(amp_obs: Array) -> Array:
    """Return which AMP observations [..., features] hold a complete history."""
    return jnp.any(amp_obs != 0.0, axis=-1)


class _Motion(NamedTuple):
    """The AMP observations of a rollout."""

    rows: Array  # [rows, features]
    order: Array  # int32 [rows], those of complete histories first
    number: Array  # int32, how many are complete

    @classmethod
    def of(cls, amp_obs: Array) -> "_Motion":
        """Sort [rows, features] by whether their history is complete."""
        complete = _is_complete(amp_obs)
        return cls(amp_obs, jnp.argsort(~complete), jnp.sum(complete, dtype=jnp.int32))

    def sample(self, key: Key, otherwise: Array) -> Array:
        """Sample as many complete histories as `otherwise` has rows; that, if there are none."""
        place = jax.random.randint(key, otherwise.shape[:1], 0, jnp.maximum(self.number, 1))
        return jnp.where(self.number > 0, self.rows[self.order[place]], otherwise)
