"""Learning a reward from recorded episodes and their returns; no environment, no policy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.off_policy.base import normalize, scan_updates
from jaxrl.algorithms.off_policy.replay import ReplayBuffer, ReplayState
from jaxrl.algorithms.off_policy.reward_model import RewardModel, update_params
from jaxrl.config import OffPolicyConfig
from jaxrl.learning import normalizer, optimizer
from jaxrl.learning.episode_index import EpisodeSamples
from jaxrl.learning.normalizer import RunningStats
from jaxrl.types import Array, Key, Mean, Metrics, PyTree, RolloutState, TrainState

_STEPS, _EPISODES, _NUM_KEYS = range(3)  # the random keys of an iteration


class RewardParams(NamedTuple):
    """What predicting rewards needs: weights, and the statistics that normalise observations."""

    reward: PyTree
    obs_stats: RunningStats


class RewardState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: PyTree
    optimizer: PyTree
    obs_stats: RunningStats  # of the data set; constant
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
    buffer: ReplayBuffer,
    obs_stats: RunningStats,
    total_iterations: int,
) -> RewardLearning:
    """Compose the learning of a reward model from recorded episodes."""
    learning = _RewardLearning(config, model, buffer, obs_stats, total_iterations)
    return RewardLearning(
        learning.init, learning.train_step, lambda s: RewardParams(s.params, s.obs_stats)
    )


@dataclass(frozen=True)
class _RewardLearning:
    config: OffPolicyConfig
    model: RewardModel
    buffer: ReplayBuffer
    obs_stats: RunningStats
    total_iterations: int

    @property
    def _transform(self):
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)

    def init(self, key: Key) -> TrainState:
        key_params, key_run = jax.random.split(key)
        params, zero = self.model.init(key_params), jnp.zeros((), jnp.int32)
        empty = normalizer.init(self.buffer.spec.obs)
        obs_stats = self.obs_stats if self.config.normalize_obs else empty
        learner = RewardState(
            params=params,
            optimizer=self._transform.init(ravel_pytree(params)[0]),
            obs_stats=jax.tree.map(jnp.asarray, obs_stats),
            hparams={"r_lr": jnp.asarray(self.config.r_lr, jnp.float32)},
            total_iterations=jnp.asarray(self.total_iterations, jnp.int32),
            skipped_updates=zero,
            nonfinite_streak=zero,
        )
        return TrainState(key_run, zero, RolloutState((), (), (), ()), learner)

    def train_step(self, state: TrainState, replay: ReplayState) -> tuple[TrainState, Metrics]:
        """Take train_batches gradient steps on samples of the recorded episodes."""
        key_steps, key_episodes = (state.key_for(use, _NUM_KEYS) for use in (_STEPS, _EPISODES))
        number, learner = self.config.train_batches, state.learner
        samples = self.buffer.sample_steps(replay, key_steps, number)
        normal = partial(normalize, learner.obs_stats)
        samples = samples._replace(steps=normal(samples.steps))
        sample = partial(self.buffer.sample_episodes, replay, key_episodes, number)
        params = update_params(self.model, learner.params, sample, normal)
        flat, unravel = ravel_pytree(params)
        step = partial(self._gradient_step, unravel)
        learner, metrics = scan_updates(step, learner.replace(params=flat), samples)
        learner = learner.replace(params=unravel(learner.params))
        return state.replace(iteration=state.iteration + 1, learner=learner), metrics

    def _gradient_step(
        self, unravel: Callable[[Array], PyTree], learner: RewardState, samples: EpisodeSamples
    ) -> tuple[RewardState, Metrics]:
        def loss(flat: Array) -> tuple[Array, Metrics]:
            return self.model.loss(unravel(flat), samples)

        grads, metrics = jax.grad(loss, has_aux=True)(learner.params)
        step = optimizer.step(
            self._transform,
            learner.params,
            learner.optimizer,
            grads,
            learning_rate=learner.hparams["r_lr"],
        )
        metrics["train/reward_grad_norm"] = Mean.of(step.grad_norm)
        return learner.replace(
            params=step.params,
            optimizer=step.opt_state,
            skipped_updates=learner.skipped_updates + ~step.finite,
            nonfinite_streak=jnp.where(step.finite, 0, learner.nonfinite_streak + 1),
        ), metrics
