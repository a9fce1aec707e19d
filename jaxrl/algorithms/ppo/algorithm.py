"""Proximal policy optimisation as one pure train_step.

    collect -> rewards -> values and advantages -> epochs × minibatches -> running statistics

Running statistics (of observations, returns, values) are frozen inside an iteration: the policy is
trained on exactly the inputs it acted on, so the probability ratio starts at one.
Reference: Schulman et al., 2017.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.amp import AMP
from jaxrl.algorithms.policy import PolicyParams, hparams_of, make_policy, rollout_carry
from jaxrl.algorithms.ppo import value_parts
from jaxrl.algorithms.ppo.batch import PPO, Batch, ExtraLoss, PPOState, Teacher, make_batch
from jaxrl.algorithms.ppo.update import make_optimizer, update
from jaxrl.config import PPOConfig, TrainConfig, obs_keys
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.learning import losses, normalizer, schedules
from jaxrl.learning.gae import discounted_returns
from jaxrl.networks.actor_critic import ActorCritic
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
from jaxrl.utils import user_code

_COLLECT, _LEARN, _AMP, _NUM_KEYS = range(4)  # the random keys of an iteration


def train_step(
    ppo: PPO, state: TrainState[PPOState], pool: PyTree = None
) -> tuple[TrainState[PPOState], Metrics]:
    """Run one iteration: collect a rollout, then learn from it."""
    collector, experience = collect(
        ppo.env,
        make_policy(ppo.networks, deterministic=False),
        policy_params(state.learner),
        state.collector,
        state.key_for(_COLLECT, _NUM_KEYS),
        ppo.config.rollout_length,
        pool,
        ppo.config.horizon,
    )
    return learn(ppo, state.replace(collector=collector), experience)


def learn(
    ppo: PPO, state: TrainState[PPOState], experience: Rollout
) -> tuple[TrainState[PPOState], Metrics]:
    """Update the learner on one rollout, then the statistics that the next iteration uses."""
    key = state.key_for(_LEARN, _NUM_KEYS)
    learner = _set_learning_rate(ppo, state)
    experience = _apply_truncation(learner, experience)
    reward, returns = _rewards(ppo, learner, experience, state.collector.discounted_return)
    batch, critic_carry = make_batch(ppo, learner, experience, reward, state.collector.critic_carry)
    progress = state.iteration / learner.total_iterations
    learner, metrics = update(ppo, learner, batch, key, progress)
    learner = _update_stats(ppo, learner, experience, returns, batch)
    if ppo.amp:
        key = state.key_for(_AMP, _NUM_KEYS)
        amp, amp_metrics = ppo.amp.learn(learner.amp, experience, key)
        learner, metrics = learner.replace(amp=amp), metrics | amp_metrics
    metrics |= experience.episodes
    metrics["train/learning_rate"] = Mean.of(learner.learning_rate)
    metrics["train/explained_variance"] = Mean.of(
        losses.explained_variance(batch.value, batch.target)
    )
    return state.replace(
        iteration=state.iteration + 1,
        collector=state.collector.replace(
            critic_carry=critic_carry,
            discounted_return=jnp.where(
                experience.terminated[-1] | experience.truncated[-1], 0.0, returns[-1]
            ),
        ),
        learner=learner,
    ), metrics


def _set_learning_rate(ppo: PPO, state: TrainState[PPOState]) -> PPOState:
    """Return the learner with the scheduled learning rate of this iteration."""
    learner = state.learner
    if ppo.config.schedule == "adaptive_kl":
        return learner
    progress = state.iteration / learner.total_iterations
    rate = schedules.learning_rate(ppo.config.schedule, learner.hparams, progress)
    return learner.replace(learning_rate=rate)


def _apply_truncation(learner: PPOState, experience: Rollout) -> Rollout:
    """Treat truncation as termination unless bootstrap_truncated."""
    final = experience.truncated & (learner.hparams["bootstrap_truncated"] == 0.0)
    return experience._replace(terminated=experience.terminated | final)


def _rewards(
    ppo: PPO, learner: PPOState, experience: Rollout, discounted_return: Array
) -> tuple[Array, Array]:
    """Return the rewards to learn from, and the running discounted returns, both [T, N]."""
    reward = ppo.amp.reward(learner.amp, experience) if ppo.amp else experience.reward
    reward = reward * learner.hparams["reward_scale"]
    if not ppo.config.normalize_reward:
        return reward, jnp.zeros_like(reward)
    ended = experience.terminated | experience.truncated
    returns = discounted_returns(reward, ended, discounted_return, gamma=learner.hparams["gamma"])
    clip = ppo.config.clip_reward
    return jnp.clip(reward / normalizer.std(learner.return_stats), -clip, clip), returns


def _update_stats(
    ppo: PPO, learner: PPOState, experience: Rollout, returns: Array, batch: Batch
) -> PPOState:
    """Update the running statistics, for the next iteration to use."""
    if ppo.config.normalize_obs:
        stats = normalizer.update(learner.obs_stats, experience.obs)
        learner = learner.replace(obs_stats=stats)
    if ppo.config.normalize_reward:
        learner = learner.replace(return_stats=normalizer.update(learner.return_stats, returns))
    if ppo.config.normalize_value:
        std, mean = normalizer.std(learner.value_stats), learner.value_stats.mean
        stats = normalizer.update(learner.value_stats, batch.target * std + mean)
        learner = learner.replace(value_stats=stats)
    return learner


def policy_params(learner: PPOState) -> PolicyParams:
    """Return the part of the learner that acting needs."""
    return PolicyParams(learner.params["actor"], learner.obs_stats)


def init(ppo: PPO, key: Key, pool: PyTree = None) -> TrainState[PPOState]:
    """Return the state before the first iteration."""
    key_env, key_actor, key_critic, key_run, key_amp = jax.random.split(key, 5)
    env, networks, config = ppo.env, ppo.networks, ppo.config
    params = {"actor": networks.actor.init(key_actor), "critic": networks.critic.init(key_critic)}
    flat, unravel = ravel_pytree(params)
    hparams = hparams_of(config)
    scalar = jnp.zeros((), jnp.float32)
    learner = PPOState(
        params=params,
        initial_params=params if config.l2_init_coef else (),
        teacher=ppo.teacher.params if ppo.teacher else (),
        optimizer=make_optimizer(config, unravel).init(flat),
        obs_stats=normalizer.init(env.spec.obs, ppo.networks.clip_obs),
        return_stats=normalizer.init(scalar),
        value_stats=normalizer.init(scalar),
        hparams=hparams,
        total_iterations=jnp.asarray(ppo.total_iterations, jnp.int32),
        learning_rate=hparams["learning_rate"],
        skipped_updates=jnp.zeros((), jnp.int32),
        nonfinite_streak=jnp.zeros((), jnp.int32),
        amp=ppo.amp.init(key_amp) if ppo.amp else (),
    )
    rollout_state = RolloutState(
        env=env.reset(key_env, pool),
        carry=rollout_carry(networks, env.rows),
        critic_carry=networks.critic.initial_carry(env.rows),
        discounted_return=jnp.zeros(env.rows, jnp.float32),
    )
    iteration = jnp.zeros((), jnp.int32)
    return TrainState(key_run, iteration, rollout_state, learner, env.first_curriculum)


def make(
    config: PPOConfig,
    env: VectorEnv,
    networks: ActorCritic,
    total_iterations: int,
    num_shards: int = 1,
    teacher: Teacher | None = None,
    amp: AMP | None = None,
    extra_loss: ExtraLoss | None = None,
) -> Algorithm[PPOState]:
    """Compose PPO for an environment whose rows are split over `num_shards` devices."""
    ppo = PPO(config, env, networks, total_iterations, num_shards, teacher, amp, extra_loss)
    return Algorithm(
        init=partial(init, ppo),
        learn=partial(learn, ppo),
        train_step=partial(train_step, ppo),
        policy=partial(make_policy, networks),
        policy_params=policy_params,
        initial_carry=networks.actor.initial_carry,
        rollout_carry=partial(rollout_carry, networks),
    )


def from_config(
    config: TrainConfig,
    env: VectorEnv,
    networks: ActorCritic,
    num_shards: int,
    teacher: Teacher | None = None,
) -> Algorithm[PPOState]:
    """Compose PPO from the settings of a run, AMP and a loss of the user's own included."""
    parts = value_parts.choose(config.ppo, config.network, env.spec, env.rows, num_shards)
    settings, name = replace(config.ppo, value_parts=parts), config.ppo.extra_loss
    extra_loss = user_code.load("--ppo.extra-loss", name) if name else None
    total, amp = config.total_iterations, _amp(config, env)
    return make(settings, env, networks, total, num_shards, teacher, amp, extra_loss)


def _amp(config: TrainConfig, env: VectorEnv) -> AMP | None:
    """Return AMP, if style is rewarded."""
    if not config.amp.weight:
        return None
    spec = env.spec.obs
    known = isinstance(spec, dict) and obs_keys.AMP in spec
    demonstrations = env.hooks.demonstrations if known else None
    if demonstrations is None:
        raise UserError(f"--amp.weight: '{config.env}' has no demonstrations: leave it at 0.")
    return AMP(config.amp, demonstrations, spec[obs_keys.AMP].shape[0])
