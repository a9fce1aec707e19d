"""What an off-policy method is made of; SAC, TD3 and DQN are three such records."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.config import OffPolicyConfig
from jaxrl.learning import normalizer, td
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, Key, Mean, Metrics, PyTree

# Networks by name -> parameters; every one has an optimiser and a learning rate of its own.
Params = dict[str, PyTree]
Hyper = dict[str, Array]
# (params, target_params, batch [B, ...], key, hparams) -> (sum of all losses, metrics).
# Each loss must reach only the network it is for; stop_gradient sees to that.
Losses = Callable[[Params, Params, Transition, Key, Hyper], tuple[Array, Metrics]]


class OffPolicyAlgorithm(NamedTuple):
    """An off-policy method as a record of pure functions."""

    init: Callable[[Key], Params]
    losses: Losses
    actor: str  # the network that acts
    targets: tuple[str, ...]  # networks with target parameters
    rates: dict[str, str]  # network -> its learning rate among the hyper-parameters
    every: dict[str, int]  # network -> gradient steps per step of its own, if not each
    # (share of the run that is over, actor's params) -> the same, exploring as it should then;
    # 0 as long as nothing is learnt
    exploring: Callable[[Array, PyTree], PyTree] = lambda progress, params: params


def normalized(seen: RunningStats, steps: Transition) -> Transition:
    """Return transitions as networks read them."""
    obs, next_obs = (normalizer.normalize(seen, x) for x in (steps.obs, steps.next_obs))
    return steps._replace(obs=obs, next_obs=next_obs)


def update_all(update: Callable, start: PyTree, batches: PyTree) -> tuple[PyTree, Metrics]:
    """Scan `update` over batches and sum up what each noted, finished values all of them.

    The notes of a gradient step travel as one vector: one kernel instead of one for each.
    """
    names: list[str] = []

    def one(state: PyTree, batch: PyTree) -> tuple[PyTree, Array]:
        state, noted = update(state, batch)
        names[:] = sorted(noted)
        return state, jnp.stack([noted[name].total for name in names])

    end, notes = jax.lax.scan(one, start, batches)
    count, sums = jnp.asarray(len(notes), jnp.float32), jnp.sum(notes, axis=0)
    return end, {name: Mean(sums[i], count) for i, name in enumerate(names)}


class TwinCritic(NamedTuple):
    """Critics seen as numbers, whether they predict numbers or distributions over them."""

    config: OffPolicyConfig
    critic: Critic

    @property
    def atoms(self) -> Array:
        """The values that a distribution is spread over."""
        c = self.config
        return td.support(c.v_min, c.v_max, c.num_atoms)

    def both(self, params: PyTree, obs: PyTree, action: Array) -> Array:
        """Return the values [2, B] of two critics."""
        out = self.critic.apply(params, obs, action)
        return out if self.config.critic == "mse" else td.expected(out, self.atoms)

    def believed(self, params: PyTree, obs: PyTree, action: Array) -> Array:
        """Return one value [B] of the two."""
        pick = jnp.min if self.config.pessimism == "min" else jnp.mean
        return pick(self.both(params, obs, action), axis=0)

    def loss(
        self,
        params: PyTree,
        target_params: PyTree,
        batch: Transition,
        next_action: Array,
        extra: Array | float,
        gamma: Array,
    ) -> tuple[Array, Metrics]:
        """Return the critics' loss; `extra` [B] is added to the value of what comes next."""
        if self.config.critic == "mse":
            following = self.believed(target_params, batch.next_obs, next_action) + extra
            goal = td.target(batch.reward, following, batch.terminated, gamma=gamma)
            value = self.critic.apply(params, batch.obs, batch.action)
            miss = value - jax.lax.stop_gradient(goal)[None]
            # Half a square for each critic, as in most accounts of these methods.
            return 0.5 * jnp.sum(jnp.mean(jnp.square(miss), axis=1)), _about(value)
        logits = self.critic.apply(target_params, batch.next_obs, next_action)
        goal = jax.lax.stop_gradient(self._distribution(logits, batch, extra, gamma))
        out = self.critic.apply(params, batch.obs, batch.action)
        loss = td.cross_entropy(out, jnp.broadcast_to(goal[None], out.shape))
        return jnp.sum(jnp.mean(loss, axis=1)), _about(td.expected(out, self.atoms))

    def _distribution(
        self, logits: Array, batch: Transition, extra: Array | float, gamma: Array
    ) -> Array:
        """Return the distribution of the target [B, atoms], of the believed critic."""
        probs = jax.nn.softmax(logits)
        if self.config.pessimism == "min":
            lower = jnp.argmin(td.expected(logits, self.atoms), axis=0)
            probs = jnp.where((lower == 0)[:, None], probs[0], probs[1])
        else:
            probs = jnp.mean(probs, axis=0)
        # Entropy moves the whole distribution of what follows.
        reward = batch.reward + gamma * jnp.where(batch.terminated, 0.0, extra)
        return td.projected(reward, probs, batch.terminated, self.atoms, gamma=gamma)


def _about(value: Array) -> Metrics:
    return {"train/q_mean": Mean.of(jnp.mean(value))}
