"""Proximal policy optimisation: rollout, advantages, minibatches; one pure train_step.

    rollout -> values and GAE, once per iteration -> update epochs × minibatches -> statistics

Statistics (observations, rewards, values) are frozen inside an iteration: the policy is trained
on exactly the inputs it acted on, so the probability ratio starts at one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.amp import AMP
from jaxrl.algorithms.policy import PolicyParams, make_policy
from jaxrl.algorithms.ppo.batch import Batch, Judge, PPOState
from jaxrl.algorithms.ppo.update import Updater
from jaxrl.config import PPOConfig, metadata
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import losses, normalizer, schedules
from jaxrl.learning.returns import running_returns
from jaxrl.networks.actor_critic import ActorCritic, Network
from jaxrl.rollout import rollout
from jaxrl.types import (
    Algorithm,
    Array,
    EnvSpec,
    Key,
    Mean,
    Metrics,
    Policy,
    PyTree,
    Rollout,
    RolloutState,
    TrainState,
)

_COLLECTING, _LEARNING, _AMP, _USES = range(4)  # what an iteration needs a key for


class Teacher(NamedTuple):
    """A trained policy to learn from: its network, without memory, and its parameters."""

    network: Network
    params: PolicyParams


def make(
    config: PPOConfig,
    env: VectorEnv,
    networks: ActorCritic,
    total_iterations: int,
    num_shards: int = 1,
    teacher: Teacher | None = None,
    amp: AMP | None = None,
) -> Algorithm:
    """Compose PPO for an environment whose rows are split over `num_shards` devices."""
    ppo = _PPO(config, env, env.spec, networks, total_iterations, num_shards, teacher, amp)
    return Algorithm(
        init=ppo.init,
        learn=ppo.learn,
        train_step=ppo.train_step,
        policy=ppo.policy,
        policy_params=policy_params,
        initial_carry=networks.actor.initial_carry,
    )


def policy_params(learner: PPOState) -> PolicyParams:
    """Return the part of the learner that acting needs."""
    return PolicyParams(learner.params["actor"], learner.observations)


@dataclass(frozen=True)
class _PPO:
    """The parts an iteration is made of; every method is a pure function of its arguments."""

    config: PPOConfig
    env: VectorEnv
    spec: EnvSpec
    networks: ActorCritic
    total_iterations: int
    num_shards: int
    teacher: Teacher | None
    amp: AMP | None

    @property
    def judge(self) -> Judge:
        teacher = self.teacher and self.teacher.network
        return Judge(self.config, self.networks, teacher)

    @property
    def updater(self) -> Updater:
        rows = self.env.rows * self.config.rollout_length // self.config.horizon
        return Updater(self.config, self.networks, rows, self.num_shards)

    def policy(self, deterministic: bool) -> Policy:
        return make_policy(self.networks, deterministic)

    def init(self, key: Key, pool: PyTree = None) -> TrainState:
        key_env, key_actor, key_critic, key_run, key_amp = jax.random.split(key, 5)
        number = self.env.rows
        params = {
            "actor": self.networks.actor.init(key_actor),
            "critic": self.networks.critic.init(key_critic),
        }
        flat, unravel = ravel_pytree(params)
        hparams = {n: jnp.asarray(x, jnp.float32) for n, x in metadata.traced(self.config).items()}
        scalar = jnp.zeros((), jnp.float32)
        learner = PPOState(
            params=params,
            initial_params=params if self.config.l2_init_coef else (),
            teacher=self.teacher.params if self.teacher else (),
            optimizer=self.updater.transform(unravel).init(flat),
            observations=normalizer.init(self.spec.obs),
            returns=normalizer.init(scalar),
            values=normalizer.init(scalar),
            hparams=hparams,
            total_iterations=jnp.asarray(self.total_iterations, jnp.int32),
            learning_rate=hparams["learning_rate"],
            skipped_updates=jnp.zeros((), jnp.int32),
            nonfinite_streak=jnp.zeros((), jnp.int32),
            amp=self.amp.init(key_amp) if self.amp else (),
        )
        collector = RolloutState(
            env=self.env.reset(key_env, pool),
            carry=self.networks.actor.initial_carry(number),
            critic_carry=self.networks.critic.initial_carry(number),
            discounted_return=jnp.zeros(number, jnp.float32),
        )
        first = self.env.first_curriculum
        return TrainState(key_run, jnp.zeros((), jnp.int32), collector, learner, first)

    def train_step(self, state: TrainState, pool: PyTree = None) -> tuple[TrainState, Metrics]:
        """Run one iteration: collect, then learn."""
        key = state.key_for(_COLLECTING, _USES)
        params = policy_params(state.learner)
        policy, length = self.policy(False), self.config.rollout_length
        collector, experience = rollout(
            self.env, policy, params, state.collector, key, length, pool, self.config.horizon
        )
        return self.learn(state.replace(collector=collector), experience)

    def learn(self, state: TrainState, experience: Rollout) -> tuple[TrainState, Metrics]:
        """Improve the learner by one rollout, then update the statistics it will freeze next."""
        key = state.key_for(_LEARNING, _USES)
        learner = self._scheduled(state)
        experience = self._endings(learner, experience)
        reward, traces = self._reward(learner, experience, state.collector.discounted_return)
        batch, critic_carry = self.judge.batch(
            learner, experience, reward, state.collector.critic_carry
        )
        progress = state.iteration / learner.total_iterations
        improved, metrics = self.updater.improve(learner, batch, key, progress)
        improved = self._statistics(improved, experience, traces, batch)
        if self.amp:
            key = state.key_for(_AMP, _USES)
            seen, noted = self.amp.learn(improved.amp, experience, key)
            improved, metrics = improved.replace(amp=seen), metrics | noted
        metrics |= experience.episodes
        metrics["train/learning_rate"] = Mean.of(improved.learning_rate)
        metrics["train/explained_variance"] = Mean.of(
            losses.explained_variance(batch.value, batch.target)
        )
        return state.replace(
            iteration=state.iteration + 1,
            collector=state.collector.replace(
                critic_carry=critic_carry,
                discounted_return=jnp.where(
                    experience.terminated[-1] | experience.truncated[-1], 0.0, traces[-1]
                ),
            ),
            learner=improved,
        ), metrics

    def _scheduled(self, state: TrainState) -> PPOState:
        """Set the learning rate that this iteration starts with."""
        learner = state.learner
        if self.config.schedule == "adaptive_kl":
            return learner
        progress = state.iteration / learner.total_iterations
        floor = learner.hparams["schedule_floor"]
        factor = schedules.multiplier(self.config.schedule, progress, floor)
        return learner.replace(learning_rate=learner.hparams["learning_rate"] * factor)

    def _endings(self, learner: PPOState, experience: Rollout) -> Rollout:
        """Let time limits end the task itself, where they are not to be seen through."""
        final = experience.truncated & (learner.hparams["bootstrap_truncated"] == 0.0)
        return experience._replace(terminated=experience.terminated | final)

    def _reward(self, learner: PPOState, experience: Rollout, trace: Array) -> tuple[Array, Array]:
        """Return the rewards learning uses, and the running discounted returns [T, N]."""
        reward = self.amp.reward(learner.amp, experience) if self.amp else experience.reward
        reward = reward * learner.hparams["reward_scale"]
        if not self.config.normalize_reward:
            return reward, jnp.zeros_like(reward)
        ended = experience.terminated | experience.truncated
        traces = running_returns(reward, ended, trace, gamma=learner.hparams["gamma"])
        return jnp.clip(reward / normalizer.std(learner.returns), -10.0, 10.0), traces

    def _statistics(
        self, learner: PPOState, experience: Rollout, traces: Array, batch: Batch
    ) -> PPOState:
        """Update the running statistics, for the next iteration to use."""
        if self.config.normalize_obs:
            learner = learner.replace(
                observations=normalizer.update(learner.observations, experience.obs)
            )
        if self.config.normalize_reward:
            learner = learner.replace(returns=normalizer.update(learner.returns, traces))
        if self.config.normalize_value:
            spread, center = normalizer.std(learner.values), learner.values.mean
            learner = learner.replace(
                values=normalizer.update(learner.values, batch.target * spread + center)
            )
        return learner
