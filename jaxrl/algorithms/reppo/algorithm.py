"""Relative entropy pathwise policy optimisation (REPPO) as one pure train_step.

    collect -> soft rewards and λ-returns -> epochs × minibatches of critic, actor, duals
            -> running statistics

On-policy like PPO, but the actor follows the gradient of a critic Q(s, a), as in SAC. Two learnt
multipliers keep it exploring and close to the policy that acted: α of the entropy, β of the KL
divergence. The critic predicts a distribution over values, and is as good as its λ-returns, so
there is no target network, and no clipping of ratios.
Reference: Voelcker et al., 2025.
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.algorithms.policy import PolicyParams, hparams_of, make_policy, rollout_carry
from jaxrl.algorithms.reppo.batch import REPPO, Params, REPPOState, make_batch
from jaxrl.algorithms.reppo.update import update
from jaxrl.config import REPPOConfig, TrainConfig
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer, optimizer, schedules
from jaxrl.networks import embedding_critic
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.embedding_critic import EmbeddingCritic
from jaxrl.rollout import collect
from jaxrl.types import Algorithm, Key, Mean, Metrics, PyTree, Rollout, RolloutState, TrainState

_COLLECT, _TARGETS, _LEARN, _NUM_KEYS = range(4)  # the random keys of an iteration


def train_step(
    reppo: REPPO, state: TrainState[REPPOState], pool: PyTree = None
) -> tuple[TrainState[REPPOState], Metrics]:
    """Run one iteration: collect a rollout, then learn from it."""
    collector, experience = collect(
        reppo.env,
        make_policy(reppo.networks, deterministic=False),
        policy_params(state.learner),
        state.collector,
        state.key_for(_COLLECT, _NUM_KEYS),
        reppo.config.rollout_length,
        pool,
    )
    return learn(reppo, state.replace(collector=collector), experience)


def learn(
    reppo: REPPO, state: TrainState[REPPOState], experience: Rollout
) -> tuple[TrainState[REPPOState], Metrics]:
    """Update the learner on one rollout, then the statistics that the next iteration uses."""
    learner = _set_learning_rate(reppo, state)
    batch = make_batch(reppo, learner, experience, state.key_for(_TARGETS, _NUM_KEYS))
    learner, metrics = update(reppo, learner, batch, state.key_for(_LEARN, _NUM_KEYS))
    if reppo.config.normalize_obs:
        stats = normalizer.update(learner.obs_stats, experience.obs)
        learner = learner.replace(obs_stats=stats)
    metrics |= experience.episodes | {"train/learning_rate": Mean.of(learner.learning_rate)}
    return state.replace(iteration=state.iteration + 1, learner=learner), metrics


def _set_learning_rate(reppo: REPPO, state: TrainState[REPPOState]) -> REPPOState:
    """Return the learner with the scheduled learning rate of this iteration."""
    learner = state.learner
    progress = state.iteration / learner.total_iterations
    rate = schedules.learning_rate(reppo.config.schedule, learner.hparams, progress)
    return learner.replace(learning_rate=rate)


def policy_params(learner: REPPOState) -> PolicyParams:
    """Return the part of the learner that acting needs."""
    return PolicyParams(learner.params["actor"], learner.obs_stats)


def init(reppo: REPPO, key: Key, pool: PyTree = None) -> TrainState[REPPOState]:
    """Return the state before the first iteration."""
    key_env, key_params, key_run = jax.random.split(key, 3)
    env, config = reppo.env, reppo.config
    params = init_params(reppo, key_params)
    hparams = hparams_of(config)
    zero = jnp.zeros((), jnp.int32)
    learner = REPPOState(
        params=params,
        optimizer={n: reppo.transform.init(v) for n, v in optimizer.flatten(params)[0].items()},
        obs_stats=normalizer.init(env.spec.obs, reppo.networks.clip_obs),
        hparams=hparams,
        total_iterations=jnp.asarray(reppo.total_iterations, jnp.int32),
        learning_rate=hparams["learning_rate"],
        skipped_updates=zero,
        nonfinite_streak=zero,
    )
    rollout_state = RolloutState(
        env=env.reset(key_env, pool),
        carry=rollout_carry(reppo.networks, env.rows),
        critic_carry=(),
        discounted_return=(),
    )
    return TrainState(key_run, zero, rollout_state, learner, env.first_curriculum)


def init_params(reppo: REPPO, key: Key) -> Params:
    """Return the parameters of all networks before the first gradient step."""
    key_actor, key_critic = jax.random.split(key)
    start = {"log_alpha": reppo.config.alpha_init, "log_beta": reppo.config.beta_init}
    return {
        "actor": reppo.networks.actor.init(key_actor),
        "critic": reppo.critic.init(key_critic),
        "duals": {n: jnp.log(jnp.asarray(value, jnp.float32)) for n, value in start.items()},
    }


def make(
    config: REPPOConfig,
    env: VectorEnv,
    networks: ActorCritic,
    critic: EmbeddingCritic,
    total_iterations: int,
    num_shards: int = 1,
) -> Algorithm[REPPOState]:
    """Compose REPPO for an environment whose rows are split over `num_shards` devices."""
    reppo = REPPO(config, env, networks, critic, total_iterations, num_shards)
    return Algorithm(
        init=partial(init, reppo),
        learn=partial(learn, reppo),
        train_step=partial(train_step, reppo),
        policy=partial(make_policy, networks),
        policy_params=policy_params,
        initial_carry=networks.actor.initial_carry,
        rollout_carry=partial(rollout_carry, networks),
    )


def from_config(
    config: TrainConfig, env: VectorEnv, networks: ActorCritic, num_shards: int
) -> Algorithm[REPPOState]:
    """Compose REPPO from the settings of a run."""
    critic = embedding_critic.build(env.spec, config.network, config.reppo.support)
    total = config.total_iterations
    return make(config.reppo, env, networks, critic, total, num_shards)
