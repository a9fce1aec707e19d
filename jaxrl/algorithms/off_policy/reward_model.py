"""Where the rewards of a Bellman target come from, if not from the environment."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from jaxrl.config import RRDConfig
from jaxrl.learning import rrd
from jaxrl.learning.episode_index import EpisodeSamples
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.reward_network import RewardNetwork
from jaxrl.types import Array, Key, Mean, Metrics, PyTree


class RewardParams(NamedTuple):
    """What predicting rewards needs: weights, and the statistics that normalise observations."""

    reward: PyTree
    obs_stats: RunningStats


class RewardModel(NamedTuple):
    """A learnt reward: reward(params, transitions), and the loss that trains it on samples.

    update(params, episodes) -> params uses whole episodes, where a part is solved in closed form.
    """

    init: Callable[[Key], PyTree]
    reward: Callable[[PyTree, Transition], Array]
    loss: Callable[[PyTree, EpisodeSamples], tuple[Array, Metrics]]
    update: Callable[[PyTree, EpisodeSamples], PyTree] | None = None


def rrd_model(config: RRDConfig, network: RewardNetwork) -> RewardModel:
    """Compose randomized return decomposition."""

    def reward(params: PyTree, batch: Transition) -> Array:
        return network.apply(params, batch.obs, batch.action, batch.next_obs)

    def loss(params: PyTree, samples: EpisodeSamples) -> tuple[Array, Metrics]:
        loss, error, variance = rrd.loss(
            reward(params, samples.steps),
            samples.length,
            samples.episode_return,
            whole_return=config.whole_return,
            unbiased=config.bias_correction,
        )
        # R_fit is the error without the variance term: how well returns are explained.
        metrics = {
            "train/R_loss": error,
            "train/R_var": variance,
            "train/R_fit": error - variance,
        }
        return loss, {name: Mean.of(jax.lax.stop_gradient(x)) for name, x in metrics.items()}

    fit = network.update
    if fit is None:
        return RewardModel(network.init, reward, loss)

    def update(params: PyTree, episodes: EpisodeSamples) -> PyTree:
        steps = episodes.steps
        inputs = (steps.obs, steps.action, steps.next_obs)
        return fit(params, *inputs, episodes.length, episodes.episode_return)

    return RewardModel(network.init, reward, loss, update)


def update_params(
    model: RewardModel,
    params: PyTree,
    sample: Callable[[], EpisodeSamples],
    normal: Callable[[Transition], Transition],
) -> PyTree:
    """Return params updated with sampled episodes, if a part is solved in closed form."""
    if model.update is None:
        return params
    episodes = sample()
    return model.update(params, episodes._replace(steps=normal(episodes.steps)))
