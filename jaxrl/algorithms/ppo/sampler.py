"""Which segments a gradient step sees, and what their advantages are by then.

sequential    every segment exactly once per pass, in random order
uniform       each minibatch a fresh draw
prioritized   likewise, those with large advantages more often, weighted to make up for it

With V-trace the advantages of a minibatch are those of the policy as it is now; the values and
probability ratios found on the way are written back, for priorities and for later visits. Steps of
other segments, which an advantage reaches into, count with the ratios of their last visit.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.algorithms.ppo import loss
from jaxrl.algorithms.ppo.batch import Batch, PPOState, value_units
from jaxrl.config import PPOConfig
from jaxrl.learning import minibatch, prioritized_sampling, segments
from jaxrl.learning.gae import gae
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, Key, PyTree


class Live(NamedTuple):
    """What changes while a buffer is being learnt from, [T, rows]."""

    value: Array
    ratio: Array  # π_now / π_then, when the segment was last seen


@dataclass(frozen=True)
class Sampler:
    """Every method is a pure function."""

    config: PPOConfig
    networks: ActorCritic
    num_rows: int
    num_shards: int

    @property
    def is_fixed(self) -> bool:
        """Are all minibatches of a pass known before its first gradient step?"""
        return self.config.sampling == "sequential" and self.config.advantage == "gae"

    def live(self, batch: Batch) -> Any:
        """Return what changes, as it is before the first gradient step; () if nothing does."""
        if self.config.advantage == "gae":
            return ()
        return Live(batch.value, jnp.ones_like(batch.value))

    def plan(self, key: Key) -> Array:
        """Return rows for each minibatch of a pass, or a key to draw them with in its turn."""
        number = self.config.num_minibatches
        if self.config.sampling == "sequential":
            return minibatch.shuffled_rows(key, self.num_rows, number, self.num_shards)
        return jax.random.split(key, number)

    def draw(
        self,
        learner: PPOState,
        params: PyTree,
        batch: Batch,
        live: Any,
        planned: Array,
        progress: Array,
    ) -> tuple[Batch, Any]:
        """Return the next minibatch, and what is live after it."""
        if self.config.sampling == "sequential":
            rows, weight = planned, ()
        else:
            rows, weight = self._pick(learner, batch, live, planned, progress)
        part = minibatch.take_rows(batch, rows)._replace(weight=weight)
        if self.config.advantage == "gae":
            return part, live
        now = self._look(params, part)
        live = live._replace(ratio=minibatch.put_rows(live.ratio, rows, now.ratio))
        advantage = minibatch.take_rows(self._advantage(learner, batch, live), rows)
        live = live._replace(value=minibatch.put_rows(live.value, rows, now.value))
        return part._replace(advantage=advantage), live

    def _pick(
        self, learner: PPOState, batch: Batch, live: Any, key: Key, progress: Array
    ) -> tuple[Array, Any]:
        """Draw rows [blocks, R] and their importance weights [1, blocks · R]."""
        number = self.num_rows // (self.num_shards * self.config.num_minibatches)
        keys = jax.random.split(key, self.num_shards)
        if self.config.sampling == "uniform":
            chance = jnp.full((self.num_shards, self.num_rows // self.num_shards), 1.0)
            return prioritized_sampling.draw_rows(keys, chance / chance.shape[1], number), ()
        advantage = batch.advantage if live == () else self._advantage(learner, batch, live)
        alpha, beta0 = learner.hparams["prio_alpha"], learner.hparams["prio_beta0"]
        chance = prioritized_sampling.priorities(
            advantage.reshape(len(advantage), self.num_shards, -1), alpha
        )
        rows = prioritized_sampling.draw_rows(keys, chance, number)
        weight = prioritized_sampling.importance(
            chance, rows, prioritized_sampling.beta(beta0, alpha, progress)
        )
        return rows, weight.reshape(1, -1)

    def _look(self, params: PyTree, part: Batch) -> Live:
        """Return the values and ratios of a minibatch by the parameters as they are now."""
        out, value = loss.outputs(self.networks, params, part)
        log_prob = self.networks.distribution.log_prob(out, part.raw_action)
        ratio = jnp.exp(jnp.clip(log_prob - part.log_prob, -20.0, 20.0))
        return jax.lax.stop_gradient(Live(value, ratio))

    def _advantage(self, learner: PPOState, batch: Batch, live: Live) -> Array:
        """Return the advantages of all segments, steps weighted by their clipped ratios.

        They are computed over the whole rollout and then cut, so that a segment's last step sees
        what follows in the next one. The successor's value is the next step's; at an episode's
        end, and after the rollout's last step, it is the one found when the rollout was judged.
        """
        center, spread = value_units(self.config, learner)
        length = self.config.rollout_length
        joined: Any = segments.join((batch.steps, live), length)
        steps, now = joined
        over: Array = steps.terminated | steps.truncated
        following = jnp.concatenate([now.value[1:], steps.next_value[-1:]])
        advantage, _ = gae(
            steps.reward,
            now.value * spread + center,
            jnp.where(over, steps.next_value, following) * spread + center,
            steps.terminated,
            steps.truncated,
            gamma=learner.hparams["gamma"],
            lam=learner.hparams["lam"],
            rho=jnp.minimum(now.ratio, learner.hparams["rho_clip"]),
            c=jnp.minimum(now.ratio, learner.hparams["c_clip"]),
        )
        return segments.cut(advantage, self.config.horizon)
