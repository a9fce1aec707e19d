"""Off-policy learning: rollout, replay, gradient steps; one pure train_step for SAC, TD3 and DQN.

    rollout -> store -> train_batches × (losses of all networks, a step of each) -> statistics

Observations are stored as they are and normalised when drawn. All batches of an iteration are
drawn at once, before its first gradient step.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm, Params, normalized, update_all
from jaxrl.algorithms.off_policy.replay import ReplayBuffer, ReplayState, returns_seen
from jaxrl.algorithms.off_policy.reward_model import RewardModel, absorbed
from jaxrl.algorithms.policy import PolicyParams, make_policy
from jaxrl.config import OffPolicyConfig, metadata
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import episode_index, normalizer, optimizer, rrd, td
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.rollout import rollout
from jaxrl.types import (
    Algorithm,
    Array,
    Key,
    Mean,
    Metrics,
    Policy,
    PyTree,
    Rollout,
    RolloutState,
    TrainState,
)

_COLLECTING, _LEARNING, _USES = range(3)  # what an iteration needs a key for


class OffPolicyState(struct.PyTreeNode):
    """The learner: everything that learning changes, but for the store, which has rows."""

    params: Params  # by network; vectors while gradient steps are taken
    target_params: Params  # copies that follow slowly
    optimizer: dict[str, PyTree]
    observations: RunningStats
    hparams: dict[str, Array]
    total_iterations: Array  # int32
    updates: Array  # int32, gradient steps taken
    skipped_updates: Array  # int32, gradient steps left out because they were not finite
    nonfinite_streak: Array  # int32, how many of those in a row up to now


class _Batch(struct.PyTreeNode):
    """What one gradient step reads."""

    steps: Transition
    pieces: Any  # EpisodeSamples or ()
    key: Key


def make(
    config: OffPolicyConfig,
    env: VectorEnv,
    networks: ActorCritic,
    method: OffPolicyAlgorithm,
    model: RewardModel | None,
    store: ReplayBuffer,
    total_iterations: int,
) -> Algorithm:
    """Compose an off-policy algorithm; without a model rewards are the environment's own."""
    learner = _OffPolicy(config, env, networks, method, model, store, total_iterations)
    return Algorithm(
        init=learner.init,
        learn=learner.learn,
        train_step=learner.train_step,
        policy=partial(make_policy, networks),
        policy_params=learner.policy_params,
        initial_carry=networks.actor.initial_carry,
    )


@dataclass(frozen=True)
class _OffPolicy:
    """The parts an iteration is made of; every method is a pure function of its arguments."""

    config: OffPolicyConfig
    env: VectorEnv
    networks: ActorCritic
    method: OffPolicyAlgorithm
    model: RewardModel | None
    store: ReplayBuffer
    total_iterations: int

    @property
    def _rates(self) -> dict[str, str]:
        return self.method.rates | ({"reward": "r_lr"} if self.model else {})

    @property
    def _transform(self):
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)

    def policy_params(self, learner: OffPolicyState) -> PolicyParams:
        """Return what acting needs."""
        return PolicyParams(learner.params[self.method.actor], learner.observations)

    def init(self, key: Key, pool: PyTree = None) -> TrainState:
        key_env, key_method, key_reward, key_run = jax.random.split(key, 4)
        params = self.method.init(key_method)
        if self.model:
            params = params | {"reward": self.model.init(key_reward)}
        hparams = {n: jnp.asarray(x, jnp.float32) for n, x in metadata.traced(self.config).items()}
        whole = jnp.zeros((), jnp.int32)
        learner = OffPolicyState(
            params=params,
            target_params={name: params[name] for name in self.method.targets},
            optimizer={n: self._transform.init(ravel_pytree(p)[0]) for n, p in params.items()},
            observations=normalizer.init(self.env.spec.obs),
            hparams=hparams,
            total_iterations=jnp.asarray(self.total_iterations, jnp.int32),
            updates=whole,
            skipped_updates=whole,
            nonfinite_streak=whole,
        )
        env = self.env.reset(key_env, pool)
        collector = RolloutState(
            env=env,
            carry=(),
            critic_carry=(),
            discounted_return=(),  # type: ignore[arg-type]
            replay=self._first_store(env),
        )
        return TrainState(key_run, whole, collector, learner, self.env.first_curriculum)

    def _first_store(self, env: Any) -> ReplayState:
        """Return an empty store.

        Environments start at random ages, so that the time limit cuts their first episodes short.
        IRCR compares returns, which only whole episodes have, so it leaves those out. RRD explains
        the return of the steps that were played, which is right for them too.
        """
        stored = self.store.empty()
        if self.config.reward != "ircr" or not hasattr(env, "age"):  # Gymnasium's start whole
            return stored
        cut = jnp.repeat(env.age > 0, self.env.rows // len(env.age))
        return stored.replace(book=episode_index.beheaded(stored.book, cut))

    def train_step(self, state: TrainState, pool: PyTree = None) -> tuple[TrainState, Metrics]:
        """Run one iteration: collect, then learn."""
        key = state.key_for(_COLLECTING, _USES)
        policy: Policy = make_policy(self.networks, deterministic=False)
        collector, experience = rollout(
            self.env,
            policy,
            self.policy_params(state.learner),
            state.collector,
            key,
            self.config.rollout_length,
            pool,
        )
        return self.learn(state.replace(collector=collector), experience)

    def learn(self, state: TrainState, experience: Rollout) -> tuple[TrainState, Metrics]:
        """Keep a rollout, learn from what is kept, then update the statistics."""
        key = state.key_for(_LEARNING, _USES)
        stored = self.store.add(state.collector.replay, experience)
        size = self.store.size(stored)

        def wait(learner: OffPolicyState) -> tuple[OffPolicyState, Metrics]:
            shapes = jax.eval_shape(self._improve, learner, stored, key)[1]
            return learner, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        enough = size >= max(self.config.warmup, 1)
        learner, metrics = jax.lax.cond(
            enough, lambda learner: self._improve(learner, stored, key), wait, state.learner
        )
        if self.config.normalize_obs:
            seen = normalizer.update(learner.observations, experience.obs)
            learner = learner.replace(observations=seen)
        iteration = state.iteration + 1
        done = jnp.where(enough, iteration / learner.total_iterations, 0.0)
        actor = self.method.exploring(done, learner.params[self.method.actor])
        learner = learner.replace(params=learner.params | {self.method.actor: actor})
        metrics = metrics | experience.episodes | {"replay/steps": Mean.of(size)}
        return state.replace(
            iteration=iteration,
            collector=state.collector.replace(replay=stored),
            learner=learner,
        ), metrics

    def _improve(
        self, learner: OffPolicyState, stored: Any, key: Key
    ) -> tuple[OffPolicyState, Metrics]:
        """Take train_batches gradient steps; networks are vectors meanwhile."""
        number = self.config.train_batches
        key_steps, key_pieces, key_losses, key_whole = jax.random.split(key, 4)
        normal = partial(normalized, learner.observations)
        steps = normal(self.store.draw(stored, key_steps, number))
        if self.config.reward == "ircr":
            steps = steps._replace(reward=rrd.ircr_reward(steps.reward, *returns_seen(stored.book)))
        pieces = ()
        if self.model:
            draw = partial(self.store.draw_whole, stored, key_whole, number)
            paying = absorbed(self.model, learner.params["reward"], draw, normal)
            learner = learner.replace(params=learner.params | {"reward": paying})
            drawn = self.store.draw_pieces(stored, key_pieces, number)
            pieces = drawn._replace(steps=normal(drawn.steps))
        batches = _Batch(steps, pieces, jax.random.split(key_losses, number))
        flat = {name: ravel_pytree(tree) for name, tree in learner.params.items()}
        unravel = {name: pair[1] for name, pair in flat.items()}
        start = learner.replace(
            params={name: pair[0] for name, pair in flat.items()},
            target_params={
                name: ravel_pytree(tree)[0] for name, tree in learner.target_params.items()
            },
        )
        end, metrics = update_all(partial(self._update, unravel), start, batches)
        whole = {name: unravel[name](vector) for name, vector in end.params.items()}
        target_params = {name: unravel[name](vector) for name, vector in end.target_params.items()}
        return end.replace(params=whole, target_params=target_params), metrics

    def _update(
        self, unravel: dict[str, Any], learner: OffPolicyState, batch: _Batch
    ) -> tuple[OffPolicyState, Metrics]:
        """Take one gradient step with every network."""

        def whole(vectors: Params) -> Params:
            return {name: unravel[name](vector) for name, vector in vectors.items()}

        def loss(vectors: Params) -> tuple[Array, Metrics]:
            params, steps, noted = whole(vectors), batch.steps, {}
            total = jnp.zeros(())
            if self.model:
                paid = self.model.reward(jax.lax.stop_gradient(params["reward"]), steps)
                steps = steps._replace(reward=paid)
                total, noted = self.model.loss(params["reward"], batch.pieces)
            steps = steps._replace(reward=steps.reward * learner.hparams["reward_scale"])
            more, also = self.method.losses(
                params, whole(learner.target_params), steps, batch.key, learner.hparams
            )
            return total + more, noted | also

        grads, noted = jax.grad(loss, has_aux=True)(learner.params)
        return self._stepped(learner, grads, noted)

    def _stepped(
        self, learner: OffPolicyState, grads: Params, noted: Metrics
    ) -> tuple[OffPolicyState, Metrics]:
        """Move every network whose turn it is, then the target networks."""
        # All or none: one broken network must not be taught by the others.
        finite = jnp.isfinite(sum(optax.tree.norm(g) for g in grads.values()))
        params, states = dict(learner.params), dict(learner.optimizer)
        for name, gradient in grads.items():
            turn = learner.updates % self.method.every.get(name, 1) == 0
            done = optimizer.step(
                self._transform,
                params[name],
                states[name],
                gradient,
                learning_rate=learner.hparams[self._rates[name]],
                allowed=finite & turn,
            )
            params[name], states[name] = done.params, done.opt_state
            noted[f"train/{name}_grad_norm"] = Mean.of(done.grad_norm)
        updates = learner.updates + 1
        rate = jnp.where(
            updates % self.config.target_update_interval == 0, learner.hparams["polyak"], 1.0
        )
        target_params = {
            name: td.polyak(old, params[name], rate) for name, old in learner.target_params.items()
        }
        return learner.replace(
            params=params,
            optimizer=states,
            target_params=target_params,
            updates=updates,
            skipped_updates=learner.skipped_updates + ~finite,
            nonfinite_streak=jnp.where(finite, 0, learner.nonfinite_streak + 1),
        ), noted
