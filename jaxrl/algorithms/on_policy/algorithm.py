"""On-policy learning from single steps as one pure train_step.

    collect -> batch of targets -> epochs × minibatches of gradient steps -> running statistics

Targets are computed once for a rollout, and its steps are shuffled: no ratios, no replay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl.algorithms.on_policy.base import OnPolicyAlgorithm, Params
from jaxrl.algorithms.policy import PolicyParams, hparams_of, make_policy, rollout_carry
from jaxrl.config import OnPolicyConfig
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import minibatch, normalizer, optimizer, schedules, segments
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import ActorCritic, network_obs
from jaxrl.rollout import collect
from jaxrl.types import (
    Algorithm,
    Array,
    Key,
    Mean,
    Metrics,
    PyTree,
    Rollout,
    RolloutState,
    TrainState,
)

_COLLECT, _TARGETS, _LEARN, _NUM_KEYS = range(4)  # the random keys of an iteration


@dataclass(frozen=True)
class OnPolicy:
    """The parts of an on-policy run; its stages are pure functions of this."""

    config: OnPolicyConfig
    env: VectorEnv
    networks: ActorCritic  # of which the actor is used
    algorithm: OnPolicyAlgorithm
    total_iterations: int
    num_shards: int = 1  # devices that the environments are split over

    @property
    def transform(self) -> optax.GradientTransformation:
        """The optimiser of every network."""
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)


class OnPolicyState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: Params  # by network; vectors while gradient steps are taken
    optimizer: dict[str, PyTree]
    obs_stats: RunningStats
    hparams: dict[str, Array]
    total_iterations: Array  # int32, where schedules end
    learning_rate: Array  # changes with the schedule
    skipped_updates: Array  # int32, gradient steps skipped because they were not finite
    nonfinite_streak: Array  # int32, consecutive skipped steps up to now


def train_step(
    run: OnPolicy, state: TrainState[OnPolicyState], pool: PyTree = None
) -> tuple[TrainState[OnPolicyState], Metrics]:
    """Run one iteration: collect a rollout, then learn from it."""
    collector, experience = collect(
        run.env,
        make_policy(run.networks, deterministic=False),
        policy_params(run, state.learner),
        state.collector,
        state.key_for(_COLLECT, _NUM_KEYS),
        run.config.rollout_length,
        pool,
    )
    return learn(run, state.replace(collector=collector), experience)


def learn(
    run: OnPolicy, state: TrainState[OnPolicyState], experience: Rollout
) -> tuple[TrainState[OnPolicyState], Metrics]:
    """Update the learner on one rollout, then the statistics that the next iteration uses."""
    learner = _set_learning_rate(run, state)
    batch = make_batch(run, learner, experience, state.key_for(_TARGETS, _NUM_KEYS))
    learner, metrics = update(run, learner, batch, state.key_for(_LEARN, _NUM_KEYS))
    if run.config.normalize_obs:
        stats = normalizer.update(learner.obs_stats, experience.obs)
        learner = learner.replace(obs_stats=stats)
    iteration = state.iteration + 1
    actor = run.algorithm.explore(
        iteration / learner.total_iterations, learner.params[run.algorithm.actor]
    )
    learner = learner.replace(params=learner.params | {run.algorithm.actor: actor})
    metrics |= experience.episodes | {"train/learning_rate": Mean.of(learner.learning_rate)}
    return state.replace(iteration=iteration, learner=learner), metrics


def _set_learning_rate(run: OnPolicy, state: TrainState[OnPolicyState]) -> OnPolicyState:
    """Return the learner with the scheduled learning rate of this iteration."""
    learner = state.learner
    progress = state.iteration / learner.total_iterations
    rate = schedules.learning_rate(run.config.schedule, learner.hparams, progress)
    return learner.replace(learning_rate=rate)


def make_batch(run: OnPolicy, learner: OnPolicyState, experience: Rollout, key: Key) -> PyTree:
    """Normalise a rollout, compute its targets with the current networks, cut it into steps."""
    obs, next_obs = (
        network_obs(normalizer.normalize(learner.obs_stats, x))
        for x in (experience.obs, experience.next_obs)
    )
    reward = experience.reward * learner.hparams["reward_scale"]
    steps = experience._replace(obs=obs, next_obs=next_obs, reward=reward)
    batch = run.algorithm.make_batch(learner.params, learner.hparams, steps, key)
    return segments.cut(batch, 1)


def update(
    run: OnPolicy, learner: OnPolicyState, batch: PyTree, key: Key
) -> tuple[OnPolicyState, Metrics]:
    """Take update epochs × minibatches gradient steps; every step of the batch once per epoch."""
    c = run.config
    vectors, unravel = optimizer.flatten(learner.params)
    step = partial(gradient_step, run, unravel)

    def epoch(learner: OnPolicyState, inputs: tuple[Array, Key]) -> tuple[OnPolicyState, Metrics]:
        rows, keys = inputs
        parts = minibatch.gather_minibatches(batch, rows)
        return minibatch.scan_updates(step, learner, (parts, keys))

    keys = jax.random.split(key, (c.update_epochs, 1 + c.num_minibatches))
    number = jax.tree.leaves(batch)[0].shape[1]
    # All epochs are shuffled at once: that is one sort instead of one for each.
    rows = jax.vmap(
        lambda key: minibatch.shuffled_rows(key, number, c.num_minibatches, run.num_shards)
    )(keys[:, 0])
    learner, metrics = jax.lax.scan(epoch, learner.replace(params=vectors), (rows, keys[:, 1:]))
    params = {name: unravel[name](vector) for name, vector in learner.params.items()}
    return learner.replace(params=params), jax.tree.map(lambda x: jnp.sum(x, axis=0), metrics)


def gradient_step(
    run: OnPolicy,
    unravel: dict[str, Callable[[Array], Any]],
    learner: OnPolicyState,
    inputs: tuple[PyTree, Key],
) -> tuple[OnPolicyState, Metrics]:
    """Take one step of every network on one minibatch, all from the same parameters."""
    part, key = inputs

    def total(vectors: Params) -> tuple[Array, Metrics]:
        params = {name: unravel[name](vector) for name, vector in vectors.items()}
        return run.algorithm.loss(params, learner.hparams, part, key)

    grads, metrics = jax.grad(total, has_aux=True)(learner.params)
    steps, finite = optimizer.step_all(
        lambda name: run.transform,
        learner.params,
        learner.optimizer,
        grads,
        learning_rates=dict.fromkeys(grads, learner.learning_rate),
    )
    metrics |= {f"train/{n}_grad_norm": Mean.of(each.grad_norm) for n, each in steps.items()}
    return learner.replace(
        params={name: each.params for name, each in steps.items()},
        optimizer={name: each.opt_state for name, each in steps.items()},
        skipped_updates=learner.skipped_updates + ~finite,
        nonfinite_streak=jnp.where(finite, 0, learner.nonfinite_streak + 1),
    ), metrics


def policy_params(run: OnPolicy, learner: OnPolicyState) -> PolicyParams:
    """Return the part of the learner that acting needs."""
    return PolicyParams(learner.params[run.algorithm.actor], learner.obs_stats)


def init(run: OnPolicy, key: Key, pool: PyTree = None) -> TrainState[OnPolicyState]:
    """Return the state before the first iteration."""
    key_env, key_params, key_run = jax.random.split(key, 3)
    env = run.env
    params = run.algorithm.init(key_params)
    hparams = hparams_of(run.config)
    zero = jnp.zeros((), jnp.int32)
    learner = OnPolicyState(
        params=params,
        optimizer={n: run.transform.init(v) for n, v in optimizer.flatten(params)[0].items()},
        obs_stats=normalizer.init(env.spec.obs, run.networks.clip_obs),
        hparams=hparams,
        total_iterations=jnp.asarray(run.total_iterations, jnp.int32),
        learning_rate=hparams["learning_rate"],
        skipped_updates=zero,
        nonfinite_streak=zero,
    )
    rollout_state = RolloutState(
        env=env.reset(key_env, pool),
        carry=rollout_carry(run.networks, env.rows),
        critic_carry=(),
        discounted_return=(),
    )
    return TrainState(key_run, zero, rollout_state, learner, env.first_curriculum)


def make(
    config: OnPolicyConfig,
    env: VectorEnv,
    networks: ActorCritic,
    algorithm: OnPolicyAlgorithm,
    total_iterations: int,
    num_shards: int = 1,
) -> Algorithm[OnPolicyState]:
    """Compose an algorithm for an environment whose rows are split over `num_shards` devices."""
    run = OnPolicy(config, env, networks, algorithm, total_iterations, num_shards)
    return Algorithm(
        init=partial(init, run),
        learn=partial(learn, run),
        train_step=partial(train_step, run),
        policy=partial(make_policy, networks),
        policy_params=partial(policy_params, run),
        initial_carry=networks.actor.initial_carry,
        rollout_carry=partial(rollout_carry, networks),
    )
