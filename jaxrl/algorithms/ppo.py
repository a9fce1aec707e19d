"""Proximal policy optimisation: rollout, advantages, minibatches; one pure train_step.

    rollout -> values and GAE, once per iteration -> update epochs × minibatches -> statistics

Statistics (observations, rewards, values) are frozen inside an iteration: the policy is trained
on exactly the inputs it acted on, so the probability ratio starts at one.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl.config import PPOConfig
from jaxrl.envs.vector import VectorEnv
from jaxrl.learning import losses, minibatch, normalizer, optimizer, schedules
from jaxrl.learning.gae import gae
from jaxrl.learning.normalizer import Moments
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.rollout import rollout
from jaxrl.types import (
    Algorithm,
    Array,
    Collector,
    EnvSpec,
    Key,
    Mean,
    Metrics,
    Policy,
    PyTree,
    Rollout,
    TrainState,
)

TRACED = (
    "learning_rate",
    "desired_kl",
    "min_learning_rate",
    "max_learning_rate",
    "gamma",
    "lam",
    "clip",
    "value_clip",
    "value_coef",
    "entropy_coef",
    "bound_coef",
    "l2_init_coef",
    "target_kl",
    "reward_scale",
    "schedule_floor",
)


class PolicyParams(NamedTuple):
    """What acting needs: weights, and the statistics of what they were trained on."""

    actor: PyTree
    observations: Moments


class Extras(NamedTuple):
    """What the policy notes for learning: the action before squashing, and its likelihood."""

    raw_action: Array
    log_prob: Array


class Batch(NamedTuple):
    """What one minibatch update reads, [T, rows, ...]."""

    obs: PyTree  # normalised
    raw_action: Array
    log_prob: Array
    value: Array  # in the critic's own (maybe normalised) units
    target: Array  # likewise
    advantage: Array


class PPOState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: dict[str, PyTree]  # actor, critic
    initial_params: PyTree  # for the L2-to-initial loss, else ()
    optimizer: PyTree
    observations: Moments
    returns: Moments  # of the running discounted return, for reward normalisation
    values: Moments  # of the value targets, for value normalisation
    hyper: dict[str, Array]
    total_iterations: Array  # int32, where schedules end
    learning_rate: Array  # moves with the schedule
    skipped: Array  # int32, gradient steps left out because they were not finite
    bad_streak: Array  # int32, how many of those in a row up to now


def make(
    config: PPOConfig, env: VectorEnv, networks: ActorCritic, total_iterations: int, blocks: int = 1
) -> Algorithm:
    """Compose PPO for an environment; `blocks` is the number of devices rows are spread over."""
    ppo = _PPO(config, env, env.spec, networks, total_iterations, blocks)
    return Algorithm(
        init=ppo.init,
        learn=ppo.learn,
        train_step=ppo.train_step,
        policy=ppo.policy,
        policy_params=lambda learner: PolicyParams(learner.params["actor"], learner.observations),
        initial_carry=networks.actor.initial_carry,
    )


def make_policy(networks: ActorCritic, deterministic: bool) -> Policy:
    """Return the policy alone, as evaluation and loaded files use it."""
    dist = networks.distribution

    def act(params: PolicyParams, obs: PyTree, carry: PyTree, key: Key):
        normal_obs = normalizer.normalize(params.observations, obs)
        out, carry = networks.actor.apply(params.actor, normal_obs, carry)
        raw = dist.mode(out) if deterministic else dist.sample(out, key)
        return dist.to_env(raw), carry, Extras(raw, dist.log_prob(out, raw))

    return act


@dataclass(frozen=True)
class _PPO:
    """The parts an iteration is made of; every method is a pure function of its arguments."""

    config: PPOConfig
    env: VectorEnv
    spec: EnvSpec
    networks: ActorCritic
    total_iterations: int
    blocks: int

    @property
    def transform(self) -> optax.GradientTransformation:
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)

    def policy(self, deterministic: bool) -> Policy:
        return make_policy(self.networks, deterministic)

    def init(self, key: Key) -> TrainState:
        key_env, key_actor, key_critic, key_run = jax.random.split(key, 4)
        number = self.env.num_envs
        params = {
            "actor": self.networks.actor.init(key_actor),
            "critic": self.networks.critic.init(key_critic),
        }
        hyper = {name: jnp.asarray(getattr(self.config, name), jnp.float32) for name in TRACED}
        scalar = jnp.zeros((), jnp.float32)
        learner = PPOState(
            params=params,
            initial_params=params if self.config.l2_init_coef else (),
            optimizer=self.transform.init(params),
            observations=normalizer.init(self.spec.obs),
            returns=normalizer.init(scalar),
            values=normalizer.init(scalar),
            hyper=hyper,
            total_iterations=jnp.asarray(self.total_iterations, jnp.int32),
            learning_rate=hyper["learning_rate"],
            skipped=jnp.zeros((), jnp.int32),
            bad_streak=jnp.zeros((), jnp.int32),
        )
        collector = Collector(
            env=self.env.reset(key_env),
            carry=self.networks.actor.initial_carry(number),
            reward_trace=jnp.zeros(number, jnp.float32),
        )
        return TrainState(key_run, jnp.zeros((), jnp.int32), collector, learner)

    def train_step(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one iteration: collect, then learn."""
        key = jax.random.fold_in(jax.random.fold_in(state.key, state.iteration), 0)
        params = PolicyParams(state.learner.params["actor"], state.learner.observations)
        collector, experience = rollout(
            self.env, self.policy(False), params, state.collector, key, self.config.rollout_length
        )
        return self.learn(state.replace(collector=collector), experience)

    def learn(self, state: TrainState, experience: Rollout) -> tuple[TrainState, Metrics]:
        """Improve the learner by one rollout, then update the statistics it will freeze next."""
        key = jax.random.fold_in(jax.random.fold_in(state.key, state.iteration), 1)
        learner = self._scheduled(state)
        reward, trace = self._reward(learner, experience, state.collector.reward_trace)
        batch = self._batch(learner, experience, reward)
        improved, metrics = self._improve(learner, batch, key)
        improved = self._statistics(improved, experience, trace, batch)
        metrics |= experience.episodes
        metrics["train/learning_rate"] = Mean.of(improved.learning_rate)
        metrics["train/bad_streak"] = Mean.of(improved.bad_streak)
        metrics["train/explained_variance"] = Mean.of(
            losses.explained_variance(batch.value, batch.target)
        )
        return state.replace(
            iteration=state.iteration + 1,
            collector=state.collector.replace(reward_trace=trace[-1]),
            learner=improved,
        ), metrics

    def _scheduled(self, state: TrainState) -> PPOState:
        """Set the learning rate that this iteration starts with."""
        learner = state.learner
        if self.config.schedule == "adaptive_kl":
            return learner
        progress = state.iteration / learner.total_iterations
        floor = learner.hyper["schedule_floor"]
        factor = schedules.multiplier(self.config.schedule, progress, floor)
        return learner.replace(learning_rate=learner.hyper["learning_rate"] * factor)

    def _reward(self, learner: PPOState, experience: Rollout, trace: Array) -> tuple[Array, Array]:
        """Return the rewards learning uses, and the running discounted returns [T, N]."""
        reward = experience.reward * learner.hyper["reward_scale"]
        ended = experience.terminated | experience.truncated

        def discount(trace: Array, step: tuple[Array, Array]):
            reward_t, ended_t = step
            trace = trace * learner.hyper["gamma"] + reward_t
            return jnp.where(ended_t, 0.0, trace), trace

        last, traces = jax.lax.scan(discount, trace, (reward, ended))
        # The statistics see the returns before an ending clears them, the carry after it.
        traces = jnp.concatenate([traces, last[None]])
        if self.config.normalize_reward:
            reward = jnp.clip(reward / normalizer.std(learner.returns), -10.0, 10.0)
        return reward, traces

    def _value(self, learner: PPOState, normal_obs: PyTree) -> Array:
        return self.networks.critic.apply(learner.params["critic"], normal_obs, ())[0]

    def _batch(self, learner: PPOState, experience: Rollout, reward: Array) -> Batch:
        """Judge the rollout once: values of every step and of its true successor, then GAE."""
        obs = normalizer.normalize(learner.observations, experience.obs)
        next_obs = normalizer.normalize(learner.observations, experience.next_obs)
        value, next_value = self._value(learner, obs), self._value(learner, next_obs)
        center = learner.values.mean if self.config.normalize_value else 0.0
        spread = normalizer.std(learner.values) if self.config.normalize_value else 1.0
        advantage, target = gae(
            reward,
            value * spread + center,
            next_value * spread + center,
            experience.terminated,
            experience.truncated,
            gamma=learner.hyper["gamma"],
            lam=learner.hyper["lam"],
        )
        if self.config.normalize_advantage == "batch":
            advantage = _standardize(advantage)
        return Batch(
            obs=obs,
            raw_action=experience.extras.raw_action,
            log_prob=experience.extras.log_prob,
            value=value,
            target=(target - center) / spread,
            advantage=advantage,
        )

    def _improve(self, learner: PPOState, batch: Batch, key: Key) -> tuple[PPOState, Metrics]:
        """Take update epochs × minibatches gradient steps."""
        c = self.config

        def epoch(carry, key: Key):
            key_rows, key_loss = jax.random.split(key)
            rows = minibatch.shuffled_rows(
                key_rows, self.env.num_envs, c.num_minibatches, self.blocks
            )
            keys = jax.random.split(key_loss, c.num_minibatches)
            return jax.lax.scan(partial(self._update, batch), carry, (rows, keys))

        start = (learner, jnp.ones((), bool), jnp.zeros((), bool))
        keys = jax.random.split(key, c.update_epochs)
        (learner, _, _), metrics = jax.lax.scan(epoch, start, keys)
        return learner, {k: Mean.of(jnp.mean(v)) for k, v in metrics.items()}

    def _update(self, batch: Batch, carry: Any, inputs: tuple[Array, Key]):
        """Take one gradient step on one minibatch."""
        learner, first, stopped = carry
        rows, key = inputs
        hyper = learner.hyper
        part = minibatch.take_rows(batch, rows)
        if self.config.normalize_advantage == "minibatch":
            part = part._replace(advantage=_standardize(part.advantage))
        loss = partial(self._loss, learner=learner, batch=part, key=key)
        grads, metrics = jax.grad(loss, has_aux=True)(learner.params)
        kl = metrics["train/approx_kl"]
        stopped = stopped | ((hyper["target_kl"] > 0) & (kl > 1.5 * hyper["target_kl"]))
        step = optimizer.step(
            self.transform,
            learner.params,
            learner.optimizer,
            grads,
            learning_rate=learner.learning_rate,
            allowed=~stopped,
        )
        metrics |= {"train/grad_norm": step.grad_norm, "train/stopped_by_kl": stopped}
        metrics["train/bad_updates"] = ~step.finite
        learner = learner.replace(
            params=step.params,
            optimizer=step.opt_state,
            skipped=learner.skipped + ~step.finite,
            bad_streak=jnp.where(step.finite, 0, learner.bad_streak + 1),
        )
        if self.config.schedule == "adaptive_kl":
            # Before the first step of an iteration the policy has not moved: KL says nothing yet.
            rate = schedules.adapt_to_kl(
                learner.learning_rate,
                kl,
                hyper["desired_kl"],
                hyper["min_learning_rate"],
                hyper["max_learning_rate"],
            )
            learner = learner.replace(learning_rate=jnp.where(first, learner.learning_rate, rate))
        return (learner, jnp.zeros((), bool), stopped), metrics

    def _loss(self, params: PyTree, *, learner: PPOState, batch: Batch, key: Key):
        """Sum the weighted losses of one minibatch."""
        c, hyper, dist = self.config, learner.hyper, self.networks.distribution
        out, _ = self.networks.actor.apply(params["actor"], batch.obs, ())
        value, _ = self.networks.critic.apply(params["critic"], batch.obs, ())
        log_prob = dist.log_prob(out, batch.raw_action)
        policy_loss = losses.clipped_surrogate(
            log_prob, batch.log_prob, batch.advantage, hyper["clip"]
        )
        if c.value_clip:
            value_loss = losses.clipped_value_loss(
                value, batch.value, batch.target, hyper["value_clip"]
            )
        else:
            value_loss = losses.value_loss(value, batch.target)
        entropy = jnp.mean(dist.entropy(out, key))
        total = policy_loss + hyper["value_coef"] * value_loss - hyper["entropy_coef"] * entropy
        if c.bound_coef:
            total += hyper["bound_coef"] * losses.action_bound_loss(dist.mean_of_raw(out))
        if c.l2_init_coef:
            total += hyper["l2_init_coef"] * losses.l2_to_initial(params, learner.initial_params)
        return total, {
            "train/loss": total,
            "train/policy_gradient_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/entropy_loss": -entropy,
            "train/approx_kl": losses.approx_kl(log_prob, batch.log_prob),
            "train/clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, hyper["clip"]),
            "train/std": jnp.mean(dist.std(out)),
        }

    def _statistics(
        self, learner: PPOState, experience: Rollout, trace: Array, batch: Batch
    ) -> PPOState:
        """Update the running statistics, for the next iteration to use."""
        if self.config.normalize_obs:
            learner = learner.replace(
                observations=normalizer.update(learner.observations, experience.obs)
            )
        if self.config.normalize_reward:
            learner = learner.replace(returns=normalizer.update(learner.returns, trace[:-1]))
        if self.config.normalize_value:
            spread, center = normalizer.std(learner.values), learner.values.mean
            learner = learner.replace(
                values=normalizer.update(learner.values, batch.target * spread + center)
            )
        return learner


def _standardize(x: Array) -> Array:
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-8)
