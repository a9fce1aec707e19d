"""Learning a reward from recorded episodes and their returns; no environment, no policy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.off_policy.base import normalized, update_all
from jaxrl.algorithms.off_policy.replay import ReplayBuffer, ReplayState
from jaxrl.algorithms.off_policy.reward_model import RewardModel, absorbed
from jaxrl.config import OffPolicyConfig
from jaxrl.learning import normalizer, optimizer
from jaxrl.learning.episode_index import EpisodeSamples
from jaxrl.learning.normalizer import RunningStats
from jaxrl.types import Array, Key, Mean, Metrics, PyTree, RolloutState, TrainState

_PIECES, _WHOLE, _USES = range(3)  # what an iteration needs a key for


class RewardParams(NamedTuple):
    """What guessing rewards needs: weights, and the statistics of what they were trained on."""

    reward: PyTree
    observations: RunningStats


class RewardState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: PyTree
    optimizer: PyTree
    observations: RunningStats  # of the data; they stay as they are
    hparams: dict[str, Array]
    total_iterations: Array
    skipped_updates: Array
    nonfinite_streak: Array


class RewardLearning(NamedTuple):
    """Learning a reward as a record of pure functions."""

    init: Callable[[Key], TrainState]
    train_step: Callable[[TrainState, ReplayState], tuple[TrainState, Metrics]]
    policy_params: Callable[[RewardState], RewardParams]


def make(
    config: OffPolicyConfig,
    model: RewardModel,
    store: ReplayBuffer,
    moments: RunningStats,
    iterations: int,
) -> RewardLearning:
    """Compose the learning of a reward model from stored episodes."""
    learning = _RewardLearning(config, model, store, moments, iterations)
    return RewardLearning(
        learning.init, learning.train_step, lambda s: RewardParams(s.params, s.observations)
    )


@dataclass(frozen=True)
class _RewardLearning:
    config: OffPolicyConfig
    model: RewardModel
    store: ReplayBuffer
    moments: RunningStats
    iterations: int

    @property
    def _transform(self):
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)

    def init(self, key: Key) -> TrainState:
        key_params, key_run = jax.random.split(key)
        params, none = self.model.init(key_params), jnp.zeros((), jnp.int32)
        unseen = normalizer.init(self.store.spec.obs)
        seen = self.moments if self.config.normalize_obs else unseen
        learner = RewardState(
            params=params,
            optimizer=self._transform.init(ravel_pytree(params)[0]),
            observations=jax.tree.map(jnp.asarray, seen),
            hparams={"r_lr": jnp.asarray(self.config.r_lr, jnp.float32)},
            total_iterations=jnp.asarray(self.iterations, jnp.int32),
            skipped_updates=none,
            nonfinite_streak=none,
        )
        nothing: Any = ()
        return TrainState(key_run, none, RolloutState((), (), (), nothing), learner)

    def train_step(self, state: TrainState, stored: ReplayState) -> tuple[TrainState, Metrics]:
        """Take train_batches gradient steps on pieces of the stored episodes."""
        key_pieces, key_whole = (state.key_for(use, _USES) for use in (_PIECES, _WHOLE))
        drawn = self.store.draw_pieces(stored, key_pieces, self.config.train_batches)
        learner = state.learner
        normal = partial(normalized, learner.observations)
        drawn = drawn._replace(steps=normal(drawn.steps))
        draw = partial(self.store.draw_whole, stored, key_whole, self.config.train_batches)
        params = absorbed(self.model, learner.params, draw, normal)
        flat, unravel = ravel_pytree(params)
        end, metrics = update_all(
            partial(self._update, unravel), learner.replace(params=flat), drawn
        )
        learner = end.replace(params=unravel(end.params))
        return state.replace(iteration=state.iteration + 1, learner=learner), metrics

    def _update(
        self, unravel: Callable[[Array], PyTree], learner: RewardState, pieces: EpisodeSamples
    ) -> tuple[RewardState, Metrics]:
        def loss(flat: Array) -> tuple[Array, Metrics]:
            return self.model.loss(unravel(flat), pieces)

        grads, noted = jax.grad(loss, has_aux=True)(learner.params)
        step = optimizer.step(
            self._transform,
            learner.params,
            learner.optimizer,
            grads,
            learning_rate=learner.hparams["r_lr"],
        )
        noted["train/reward_grad_norm"] = Mean.of(step.grad_norm)
        return learner.replace(
            params=step.params,
            optimizer=step.opt_state,
            skipped_updates=learner.skipped_updates + ~step.finite,
            nonfinite_streak=jnp.where(step.finite, 0, learner.nonfinite_streak + 1),
        ), noted
