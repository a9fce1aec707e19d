"""Off-policy learning as one pure train_step, from environments or from recorded episodes.

    collect -> replay -> train_batches × (losses of all networks, a step of each) -> statistics

Observations are stored as they are and normalised when sampled. All batches of an iteration are
sampled at once, before its first gradient step; batches of images one by one, to save memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm, Params, normalize
from jaxrl.algorithms.off_policy.replay import ReplayBuffer, ReplayState, return_range
from jaxrl.algorithms.off_policy.reward_model import RewardModel, RewardParams, update_params
from jaxrl.algorithms.policy import PolicyParams, hparams_of, make_policy, rollout_carry
from jaxrl.config import OffPolicyConfig
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import (
    episode_index,
    minibatch,
    normalizer,
    optimizer,
    return_scale,
    rrd,
    td,
)
from jaxrl.learning.gae import discounted_returns
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic, has_images
from jaxrl.networks.mlp import unit_weights
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

_COLLECT, _LEARN, _NUM_KEYS = range(3)  # the random keys of an iteration


@dataclass(frozen=True)
class OffPolicy:
    """What an off-policy run is composed of; its stages are pure functions of this."""

    config: OffPolicyConfig
    networks: ActorCritic
    algorithm: OffPolicyAlgorithm
    reward_model: RewardModel | None  # None: rewards are those of the replay
    buffer: ReplayBuffer
    total_iterations: int
    reward_factor: float = 1.0  # of recorded data, besides --offpolicy.reward-scale

    @property
    def learning_rates(self) -> dict[str, str]:
        """Network -> its learning rate among the hyper-parameters."""
        return self.algorithm.rates | ({"reward": "r_lr"} if self.reward_model else {})

    def transform(self, network: str) -> optax.GradientTransformation:
        """Return the optimiser of a network."""
        c = self.config
        decay = 0.0 if network in ("alpha", "reward") else c.weight_decay
        return optimizer.adam(c.max_grad_norm, c.adam_epsilon, decay)


class OffPolicyState(struct.PyTreeNode):
    """The learner: everything that learning changes, except the replay, which has rows."""

    params: Params  # by network; vectors while gradient steps are taken
    target_params: Params  # of target networks
    optimizer: dict[str, PyTree]
    obs_stats: RunningStats
    hparams: dict[str, Array]
    total_iterations: Array  # int32
    updates: Array  # int32, gradient steps taken
    skipped_updates: Array  # int32, gradient steps skipped because they were not finite
    nonfinite_streak: Array  # int32, consecutive skipped steps up to now
    return_scale: PyTree = ()  # ReturnScale, or () if rewards are not normalised


class Batch(NamedTuple):
    """What one gradient step reads."""

    steps: Any  # Transition, or () if only a reward is learnt
    samples: Any  # EpisodeSamples for the reward model, or ()
    key: Key


def train_step(
    run: OffPolicy, env: VectorEnv, state: TrainState[OffPolicyState], pool: PyTree = None
) -> tuple[TrainState[OffPolicyState], Metrics]:
    """Run one iteration: collect a rollout, then learn."""
    collector, experience = collect(
        env,
        make_policy(run.networks, deterministic=False),
        policy_params(run, state.learner),
        state.collector,
        state.key_for(_COLLECT, _NUM_KEYS),
        run.config.rollout_length,
        pool,
    )
    return learn(run, state.replace(collector=collector), experience)


def learn(
    run: OffPolicy, state: TrainState[OffPolicyState], experience: Rollout
) -> tuple[TrainState[OffPolicyState], Metrics]:
    """Add a rollout to the replay, learn from it after the warm-up, then update the statistics."""
    key = state.key_for(_LEARN, _NUM_KEYS)
    replay = run.buffer.add(state.collector.replay, experience)
    size = run.buffer.size(replay)

    def wait(learner: OffPolicyState) -> tuple[OffPolicyState, Metrics]:
        shapes = jax.eval_shape(partial(update, run), learner, replay, key)[1]
        return learner, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    warm = size >= max(run.config.warmup, 1)
    learner, metrics = jax.lax.cond(
        warm, lambda learner: update(run, learner, replay, key), wait, state.learner
    )
    if run.config.normalize_obs:
        stats = normalizer.update(learner.obs_stats, experience.obs)
        learner = learner.replace(obs_stats=stats)
    collector = state.collector.replace(replay=replay)
    if run.config.normalize_reward:
        learner, collector = _update_return_scale(learner, collector, experience)
    iteration = state.iteration + 1
    progress = jnp.where(warm, iteration / learner.total_iterations, 0.0)
    actor = run.algorithm.explore(progress, learner.params[run.algorithm.actor])
    learner = learner.replace(params=learner.params | {run.algorithm.actor: actor})
    metrics = metrics | experience.episodes | {"replay/steps": Mean.of(size)}
    return state.replace(iteration=iteration, collector=collector, learner=learner), metrics


def _update_return_scale(
    learner: OffPolicyState, collector: RolloutState, experience: Rollout
) -> tuple[OffPolicyState, RolloutState]:
    """Add the running discounted returns of a rollout to their statistics."""
    ended = experience.terminated | experience.truncated
    returns = discounted_returns(
        experience.reward, ended, collector.discounted_return, gamma=learner.hparams["gamma"]
    )
    scale = return_scale.update(learner.return_scale, returns)
    last = jnp.where(ended[-1], 0.0, returns[-1])
    return learner.replace(return_scale=scale), collector.replace(discounted_return=last)


def update(
    run: OffPolicy, learner: OffPolicyState, replay: ReplayState, key: Key
) -> tuple[OffPolicyState, Metrics]:
    """Take train_batches gradient steps; networks are vectors meanwhile."""
    number = run.config.train_batches
    keys = jax.random.split(key, 4)
    if run.reward_model:
        sample = partial(run.buffer.sample_episodes, replay, keys[3], number)
        normal = partial(normalize, learner.obs_stats)
        params = update_params(run.reward_model, learner.params["reward"], sample, normal)
        learner = learner.replace(params=learner.params | {"reward": params})
    vectors, unravel = optimizer.flatten(learner.params)
    targets, _ = optimizer.flatten(learner.target_params)
    obs_stats, gamma = learner.obs_stats, learner.hparams["gamma"]
    learner = learner.replace(params=vectors, target_params=targets)
    step = partial(gradient_step, run, unravel)
    if has_images(run.buffer.spec):

        def sample_and_step(learner: OffPolicyState, keys: Key) -> tuple[OffPolicyState, Metrics]:
            batch = sample_batches(run, replay, obs_stats, gamma, keys, 1)
            return step(learner, jax.tree.map(lambda x: x[0], batch))

        each = jax.vmap(lambda key: jax.random.split(key, number))(keys[:3])
        learner, metrics = minibatch.scan_updates(
            sample_and_step, learner, jnp.swapaxes(each, 0, 1)
        )
    else:
        batches = sample_batches(run, replay, obs_stats, gamma, keys[:3], number)
        learner, metrics = minibatch.scan_updates(step, learner, batches)
    params = {name: unravel[name](vector) for name, vector in learner.params.items()}
    targets = {name: unravel[name](vector) for name, vector in learner.target_params.items()}
    return learner.replace(params=params, target_params=targets), metrics


def sample_batches(
    run: OffPolicy,
    replay: ReplayState,
    obs_stats: RunningStats,
    gamma: Array,
    keys: Key,
    number: int,
) -> Batch:
    """Sample what `number` gradient steps read, [number, ...]; observations are normalised."""
    key_steps, key_samples, key_losses = keys
    steps, samples = (), ()
    if run.algorithm.rates:  # not for a reward alone
        steps = normalize(obs_stats, run.buffer.sample(replay, key_steps, number, gamma))
        if run.config.reward == "ircr":
            reward = rrd.ircr_reward(steps.reward, *return_range(replay.index))
            steps = steps._replace(reward=reward)
    if run.reward_model:
        samples = run.buffer.sample_steps(replay, key_samples, number)
        samples = samples._replace(steps=normalize(obs_stats, samples.steps))
    return Batch(steps, samples, jax.random.split(key_losses, number))


def gradient_step(
    run: OffPolicy, unravel: dict[str, Any], learner: OffPolicyState, batch: Batch
) -> tuple[OffPolicyState, Metrics]:
    """Take one gradient step with every network."""

    def as_trees(vectors: Params) -> Params:
        return {name: unravel[name](vector) for name, vector in vectors.items()}

    def loss(vectors: Params) -> tuple[Array, Metrics]:
        params, steps, metrics = as_trees(vectors), batch.steps, {}
        reward_loss = jnp.zeros(())
        if run.reward_model:
            reward_loss, metrics = run.reward_model.loss(params["reward"], batch.samples)
        if not run.algorithm.rates:
            return reward_loss, metrics
        if run.reward_model:
            reward = run.reward_model.reward(jax.lax.stop_gradient(params["reward"]), steps)
            steps = steps._replace(reward=reward)
        steps = scale_rewards(run, learner, steps)
        losses, loss_metrics = run.algorithm.losses(
            params, as_trees(learner.target_params), steps, batch.key, learner.hparams
        )
        return reward_loss + losses, metrics | loss_metrics

    grads, metrics = jax.grad(loss, has_aux=True)(learner.params)
    project = partial(_with_unit_weights, run, unravel)
    return apply_grads(run, learner, grads, metrics, project)


def _with_unit_weights(run: OffPolicy, unravel: dict[str, Any], vectors: Params) -> Params:
    """Return the parameters after a gradient step, scaled if --offpolicy.unit-weights says so."""
    if not run.config.unit_weights:
        return vectors
    trees = {name: unit_weights(unravel[name](vectors[name])) for name in run.algorithm.rates}
    return vectors | optimizer.flatten(trees)[0]


def scale_rewards(run: OffPolicy, learner: OffPolicyState, steps: Transition) -> Transition:
    """Return transitions with the rewards that values are learnt from."""
    scale = learner.hparams["reward_scale"] * run.reward_factor
    if run.config.normalize_reward:
        scale /= return_scale.divisor(learner.return_scale)
    return steps._replace(reward=steps.reward * scale)


def apply_grads(
    run: OffPolicy,
    learner: OffPolicyState,
    grads: Params,
    metrics: Metrics,
    project: Callable[[Params], Params] = lambda params: params,
) -> tuple[OffPolicyState, Metrics]:
    """Update every network that is due and project its parameters, then the target networks."""
    every = run.algorithm.every
    steps, finite = optimizer.step_all(
        run.transform,
        learner.params,
        learner.optimizer,
        grads,
        learning_rates={n: learner.hparams[run.learning_rates[n]] for n in grads},
        allowed={n: learner.updates % every.get(n, 1) == 0 for n in grads},
    )
    params = project({name: step.params for name, step in steps.items()})
    metrics |= {f"train/{n}_grad_norm": Mean.of(step.grad_norm) for n, step in steps.items()}
    updates = learner.updates + 1
    polyak = jnp.where(
        updates % run.config.target_update_interval == 0, learner.hparams["polyak"], 1.0
    )
    target_params = {
        name: td.polyak(old, params[name], polyak) for name, old in learner.target_params.items()
    }
    return learner.replace(
        params=params,
        optimizer={name: step.opt_state for name, step in steps.items()},
        target_params=target_params,
        updates=updates,
        skipped_updates=learner.skipped_updates + ~finite,
        nonfinite_streak=jnp.where(finite, 0, learner.nonfinite_streak + 1),
    ), metrics


def policy_params(run: OffPolicy, learner: OffPolicyState) -> PolicyParams:
    """Return the part of the learner that acting needs."""
    return PolicyParams(learner.params[run.algorithm.actor], learner.obs_stats)


def reward_params(run: OffPolicy, learner: OffPolicyState) -> RewardParams:
    """Return the part of the learner that predicting rewards needs."""
    return RewardParams(learner.params["reward"], learner.obs_stats)


def init(
    run: OffPolicy, env: VectorEnv, key: Key, pool: PyTree = None
) -> TrainState[OffPolicyState]:
    """Return the state before the first iteration."""
    key_env, key_params, key_reward, key_run = jax.random.split(key, 4)
    learner = init_learner(run, key_params, key_reward)
    env_state = env.reset(key_env, pool)
    rollout_state = RolloutState(
        env=env_state,
        carry=rollout_carry(run.networks, env.rows),
        critic_carry=(),
        discounted_return=jnp.zeros(env.rows) if run.config.normalize_reward else (),
        replay=_empty_replay(run, env.rows, env_state),
    )
    zero = jnp.zeros((), jnp.int32)
    return TrainState(key_run, zero, rollout_state, learner, env.first_curriculum)


def init_learner(run: OffPolicy, key_params: Key, key_reward: Key) -> OffPolicyState:
    """Return the learner before the first gradient step."""
    params = run.algorithm.init(key_params)
    if run.config.unit_weights:
        params = {name: unit_weights(tree) for name, tree in params.items()}
    if run.reward_model:
        params = params | {"reward": run.reward_model.init(key_reward)}
    zero = jnp.zeros((), jnp.int32)
    return OffPolicyState(
        params=params,
        target_params={name: params[name] for name in run.algorithm.targets},
        optimizer={n: run.transform(n).init(v) for n, v in optimizer.flatten(params)[0].items()},
        obs_stats=normalizer.init(run.buffer.spec.obs, run.networks.clip_obs),
        hparams=hparams_of(run.config),
        total_iterations=jnp.asarray(run.total_iterations, jnp.int32),
        updates=zero,
        skipped_updates=zero,
        nonfinite_streak=zero,
        return_scale=return_scale.init() if run.config.normalize_reward else (),
    )


def _empty_replay(run: OffPolicy, rows: int, env_state: Any) -> ReplayState:
    """Return an empty replay.

    Environments start at random ages, so the time limit cuts their first episodes short. IRCR
    compares the returns of whole episodes, so it leaves those out. RRD explains the return of the
    steps that were played, which is right for them too.
    """
    replay = run.buffer.empty()
    if run.config.reward != "ircr" or not hasattr(env_state, "age"):  # Gymnasium's start at age 0
        return replay
    cut = jnp.repeat(env_state.age > 0, rows // len(env_state.age))
    return replay.replace(index=episode_index.exclude_current(replay.index, cut))


def make(
    config: OffPolicyConfig,
    env: VectorEnv,
    networks: ActorCritic,
    algorithm: OffPolicyAlgorithm,
    reward_model: RewardModel | None,
    buffer: ReplayBuffer,
    total_iterations: int,
) -> Algorithm[OffPolicyState]:
    """Compose an off-policy algorithm; without a reward model rewards are the environment's."""
    run = OffPolicy(config, networks, algorithm, reward_model, buffer, total_iterations)
    return Algorithm(
        init=partial(init, run, env),
        learn=partial(learn, run),
        train_step=partial(train_step, run, env),
        policy=partial(make_policy, networks),
        policy_params=partial(policy_params, run),
        initial_carry=networks.actor.initial_carry,
        reward_params=partial(reward_params, run) if reward_model else None,
        rollout_carry=partial(rollout_carry, networks),
    )
