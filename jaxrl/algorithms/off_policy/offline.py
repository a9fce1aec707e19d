"""Off-policy learning from recorded episodes: the replay is the data, and nothing is collected."""

from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.algorithms.off_policy.algorithm import (
    OffPolicy,
    OffPolicyState,
    init_learner,
    policy_params,
    reward_params,
    scale_rewards,
    update,
)
from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm, normalize
from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.algorithms.policy import make_policy
from jaxrl.learning import normalizer
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Transition
from jaxrl.types import Key, LearnerT, Mean, Metrics, Policy, PyTree, RolloutState, TrainState

# No policy: gradient steps train the reward model alone.
REWARD_ONLY = OffPolicyAlgorithm(
    init=lambda key: {}, losses=lambda *_: (jnp.zeros(()), {}), actor="", targets=(), rates={}
)


class OfflineAlgorithm(NamedTuple, Generic[LearnerT]):
    """Learning from recorded episodes as a record of pure functions."""

    init: Callable[[Key], TrainState[LearnerT]]
    train_step: Callable[[TrainState[LearnerT], ReplayState], tuple[TrainState[LearnerT], Metrics]]
    held_out: Callable[[LearnerT, Transition, Key], Metrics]  # errors on other steps
    policy: Callable[[bool], Policy]  # deterministic -> Policy
    initial_carry: Callable[[int], PyTree]
    policy_params: Callable[[LearnerT], PyTree] | None  # None: only a reward is learnt
    reward_params: Callable[[LearnerT], PyTree] | None  # None: rewards are those of the data


def make(run: OffPolicy, obs_stats: RunningStats) -> OfflineAlgorithm[OffPolicyState]:
    """Compose an off-policy algorithm without environments; `obs_stats` are those of the data."""
    if not run.config.normalize_obs:
        obs_stats = normalizer.init(run.buffer.spec.obs)
    obs_stats = obs_stats.replace(clip=run.networks.clip_obs)
    return OfflineAlgorithm(
        init=partial(init, run, obs_stats),
        train_step=partial(train_step, run),
        held_out=partial(held_out, run),
        policy=partial(make_policy, run.networks),
        initial_carry=run.networks.actor.initial_carry,
        policy_params=partial(policy_params, run) if run.algorithm.rates else None,
        reward_params=partial(reward_params, run) if run.reward_model else None,
    )


def init(run: OffPolicy, obs_stats: RunningStats, key: Key) -> TrainState[OffPolicyState]:
    """Return the state before the first iteration."""
    key_params, key_reward, key_run = jax.random.split(key, 3)
    learner = init_learner(run, key_params, key_reward)
    learner = learner.replace(obs_stats=jax.tree.map(jnp.asarray, obs_stats))
    if run.algorithm.actor:  # nothing explores: a policy that is sampled acts as at the end
        actor = run.algorithm.explore(jnp.ones(()), learner.params[run.algorithm.actor])
        learner = learner.replace(params=learner.params | {run.algorithm.actor: actor})
    return TrainState(key_run, jnp.zeros((), jnp.int32), RolloutState((), (), (), ()), learner)


def train_step(
    run: OffPolicy, state: TrainState[OffPolicyState], replay: ReplayState
) -> tuple[TrainState[OffPolicyState], Metrics]:
    """Run one iteration: train_batches gradient steps."""
    learner, metrics = update(run, state.learner, replay, state.key_for(0, 1))
    return state.replace(iteration=state.iteration + 1, learner=learner), metrics


def held_out(run: OffPolicy, learner: OffPolicyState, steps: Transition, key: Key) -> Metrics:
    """Return the errors of actions, values and rewards on steps that were not learnt from.

    The error of an action is its mean squared distance from the recorded one; of discrete actions,
    the fraction that differ.
    """
    recorded, steps, metrics = steps.reward, normalize(learner.obs_stats, steps), {}
    if run.reward_model:
        reward = run.reward_model.reward(learner.params["reward"], steps)
        metrics["heldout/reward_error"] = Mean.of(jnp.mean(jnp.square(reward - recorded)))
        steps = steps._replace(reward=reward)
    if not run.algorithm.rates:
        return metrics
    steps = scale_rewards(run, learner, steps)
    _, losses = run.algorithm.losses(
        learner.params, learner.target_params, steps, key, learner.hparams
    )
    if "train/q_loss" in losses and run.config.reward != "ircr":  # whose rewards are relative
        metrics["heldout/q_loss"] = losses["train/q_loss"]
    out, _ = run.networks.actor.apply(learner.params[run.algorithm.actor], steps.obs, ())
    action = run.networks.distribution.to_env(run.networks.distribution.mode(out))
    is_discrete = run.buffer.spec.action.discrete
    error = action != steps.action if is_discrete else jnp.square(action - steps.action)
    return metrics | {"heldout/action_error": Mean.of(jnp.mean(error))}
