"""What off-policy algorithms are made of: a record of losses, and twin critics."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig, OffPolicyConfig, TrainConfig
from jaxrl.learning import normalizer, td
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks import q_network
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree

# Networks by name -> parameters; each has its own optimiser and learning rate.
Params = dict[str, PyTree]
HParams = dict[str, Array]
# (params, target_params, batch [B, ...], key, hparams) -> (sum of all losses, metrics).
# Each loss must reach only the network it trains: use stop_gradient for the others.
Losses = Callable[[Params, Params, Transition, Key, HParams], tuple[Array, Metrics]]


class OffPolicyAlgorithm(NamedTuple):
    """An off-policy algorithm as a record of pure functions."""

    init: Callable[[Key], Params]
    losses: Losses
    actor: str  # the network that acts
    targets: tuple[str, ...]  # networks with target parameters
    rates: dict[str, str]  # network -> its learning rate among the hyper-parameters
    every: dict[str, int] = {}  # network -> gradient steps per update of it, if not 1
    # (progress, actor's params) -> params with the exploration of that time. Progress is the
    # fraction of the run, and 0 during the warm-up.
    explore: Callable[[Array, PyTree], PyTree] = lambda progress, params: params


def noisy_network(config: TrainConfig) -> NetworkConfig:
    """Return the networks of a deterministic policy that explores by noise on its actions."""
    noise = config.offpolicy.exploration_noise
    return replace(config.network, distribution="noisy", init_std=noise)


def build_critics(config: TrainConfig, spec: EnvSpec) -> Critic:
    """Build the two Q networks of a configuration."""
    c = config.offpolicy
    atoms = c.num_atoms if c.critic == "c51" else 1
    return q_network.build(spec, config.network, norm=c.critic_norm, atoms=atoms)


def discount(batch: Transition, gamma: Array) -> Array:
    """Return the discount of the next state's value: one for all, or [B] for n-step returns."""
    return gamma if isinstance(batch.steps, tuple) else gamma**batch.steps


def normalize(obs_stats: RunningStats, steps: Transition) -> Transition:
    """Return transitions with normalised observations."""
    obs, next_obs = (normalizer.normalize(obs_stats, x) for x in (steps.obs, steps.next_obs))
    return steps._replace(obs=obs, next_obs=next_obs)


class TwinCritic(NamedTuple):
    """Two critics as scalars, whether they predict scalars or distributions (C51)."""

    config: OffPolicyConfig
    critic: Critic

    @property
    def atoms(self) -> Array:
        """The support of the distributions."""
        c = self.config
        return td.support(c.v_min, c.v_max, c.num_atoms)

    def values(self, params: PyTree, obs: PyTree, action: Array) -> Array:
        """Return the Q values [2, B] of both critics."""
        out = self.critic.apply(params, obs, action)
        return out if self.config.critic == "mse" else td.expected(out, self.atoms)

    def min_q(self, params: PyTree, obs: PyTree, action: Array) -> Array:
        """Return the lower Q value [B] of the two; their mean if `pessimism` is "mean"."""
        return self._lower(self.values(params, obs, action))

    def loss(
        self,
        params: PyTree,
        target_params: PyTree,
        batch: Transition,
        next_action: Array,
        bonus: Array | float,
        gamma: Array,
    ) -> tuple[Array, Metrics]:
        """Return the critics' loss; `bonus` [B] is added to the next state's value."""
        gamma = discount(batch, gamma)
        out, next_out = self._outputs(params, target_params, batch, next_action)
        if self.config.critic == "mse":
            return squared_loss(out, batch, self._lower(next_out) + bonus, gamma)
        target = jax.lax.stop_gradient(self._target_probs(next_out, batch, bonus, gamma))
        loss = td.cross_entropy(out, jnp.broadcast_to(target[None], out.shape))
        return jnp.sum(jnp.mean(loss, axis=1)), _metrics(td.expected(out, self.atoms))

    def with_stats(self, params: PyTree, batch: Transition, next_action: Array) -> PyTree:
        """Return parameters that hold the BatchNorm statistics of the batch of their loss."""
        if self.config.critic_norm != "batch":
            return params
        return self.critic.with_stats(params, *_both_ends(batch, next_action))

    def _outputs(
        self, params: PyTree, target_params: PyTree, batch: Transition, next_action: Array
    ) -> tuple[Array, Array]:
        """Return critics' outputs for (s, a) and target critics' for (s', a'), each [2, B, ...]."""
        if self.config.critic_norm != "batch":
            now = self.critic.apply(params, batch.obs, batch.action)
            return now, self.critic.apply(target_params, batch.next_obs, next_action)
        # As one batch: (s', a') alone has other statistics, and so other values.
        inputs, number = _both_ends(batch, next_action), len(batch.reward)
        now, later = (self.critic.apply(p, *inputs) for p in (params, target_params))
        return now[:, :number], later[:, number:]

    def _lower(self, q: Array) -> Array:
        """Return the lower [B] of two Q values [2, B]; their mean if `pessimism` is "mean"."""
        return (jnp.min if self.config.pessimism == "min" else jnp.mean)(q, axis=0)

    def _target_probs(
        self, logits: Array, batch: Transition, bonus: Array | float, gamma: Array
    ) -> Array:
        """Return the target distribution [B, atoms], of the lower critic."""
        probs = jax.nn.softmax(logits)
        if self.config.pessimism == "min":
            lower = jnp.argmin(td.expected(logits, self.atoms), axis=0)
            probs = jnp.where((lower == 0)[:, None], probs[0], probs[1])
        else:
            probs = jnp.mean(probs, axis=0)
        # The bonus shifts the next state's distribution.
        reward = batch.reward + gamma * jnp.where(batch.terminated, 0.0, bonus)
        gamma = gamma if jnp.ndim(gamma) == 0 else gamma[:, None]
        return td.projected(reward, probs, batch.terminated, self.atoms, gamma=gamma)


def squared_loss(
    q: Array, batch: Transition, next_value: Array, gamma: Array
) -> tuple[Array, Metrics]:
    """Return the loss of Q values [2, B] of a batch, given the next states' values [B]."""
    target = td.target(batch.reward, next_value, batch.terminated, gamma=gamma)
    error = q - jax.lax.stop_gradient(target)[None]
    # Half a square for each critic, as is usual.
    return 0.5 * jnp.sum(jnp.mean(jnp.square(error), axis=1)), _metrics(q)


def _both_ends(batch: Transition, next_action: Array) -> tuple[PyTree, Array]:
    """Return (s, a) and (s', a') as one batch of observations and actions."""
    return jax.tree.map(
        lambda now, later: jnp.concatenate([now, later]),
        (batch.obs, batch.action),
        (batch.next_obs, next_action),
    )


def _metrics(q: Array) -> Metrics:
    return {"train/q_mean": Mean.of(jnp.mean(q))}
