"""Where the rewards of a Bellman target come from: one seam for every off-policy method."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from jaxrl.config import OffPolicyConfig
from jaxrl.learning import rrd
from jaxrl.learning.episode_index import EpisodeSamples
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.q_network import RewardNetwork
from jaxrl.types import Array, Key, Mean, Metrics, PyTree


class RewardModel(NamedTuple):
    """A learnt reward: reward(params, transitions), and the loss that trains it on pieces.

    absorb(params, episodes) -> params takes in whole episodes, where something is solved for.
    """

    init: Callable[[Key], PyTree]
    reward: Callable[[PyTree, Transition], Array]
    loss: Callable[[PyTree, EpisodeSamples], tuple[Array, Metrics]]
    absorb: Callable[[PyTree, EpisodeSamples], PyTree] | None = None


def decomposed(config: OffPolicyConfig, network: RewardNetwork) -> RewardModel:
    """Compose randomized return decomposition."""

    def reward(params: PyTree, batch: Transition) -> Array:
        return network.apply(params, batch.obs, batch.action, batch.next_obs)

    def loss(params: PyTree, pieces: EpisodeSamples) -> tuple[Array, Metrics]:
        loss, miss, spread = rrd.loss(
            reward(params, pieces.steps),
            pieces.length,
            pieces.returned,
            whole_return=config.rrd_whole_return,
            unbiased=config.rrd_bias_correction,
        )
        # R_fit is what is left of the miss without the spread: how well returns are explained.
        noted = {"train/R_loss": miss, "train/R_var": spread, "train/R_fit": miss - spread}
        return loss, {name: Mean.of(jax.lax.stop_gradient(x)) for name, x in noted.items()}

    def absorb(params: PyTree, whole: EpisodeSamples) -> PyTree:
        steps = whole.steps
        seen = (steps.obs, steps.action, steps.next_obs)
        return network.absorb(params, *seen, whole.length, whole.returned)  # type: ignore[misc]

    return RewardModel(network.init, reward, loss, absorb if network.absorb else None)


def absorbed(
    model: RewardModel,
    params: PyTree,
    draw: Callable[[], EpisodeSamples],
    normal: Callable[[Transition], Transition],
) -> PyTree:
    """Return params that have taken in the whole episodes drawn, if anything is solved for."""
    if model.absorb is None:
        return params
    whole = draw()
    return model.absorb(params, whole._replace(steps=normal(whole.steps)))
