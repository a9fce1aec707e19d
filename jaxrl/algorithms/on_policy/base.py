"""The record of functions that defines an on-policy algorithm that learns from single steps."""

from collections.abc import Callable
from typing import NamedTuple

from jaxrl.types import Array, Key, Metrics, PyTree, Rollout

# Networks by name -> parameters; each has its own optimiser.
Params = dict[str, PyTree]
HParams = dict[str, Array]
# (params, hparams, rollout, key) -> batch [T, N, ...]. The rollout has normalised observations and
# scaled rewards; the parameters are those before the first gradient step.
MakeBatch = Callable[[Params, HParams, Rollout, Key], PyTree]
# (params, hparams, batch [1, rows, ...], key) -> (sum of all losses, metrics). Each loss must reach
# only the network it trains: use stop_gradient for the others.
Loss = Callable[[Params, HParams, PyTree, Key], tuple[Array, Metrics]]


class OnPolicyAlgorithm(NamedTuple):
    """An on-policy algorithm as a record of pure functions."""

    init: Callable[[Key], Params]
    make_batch: MakeBatch
    loss: Loss
    actor: str  # the network that acts
    # (progress, actor's params) -> params with exploration set for that point of the run.
    # Progress is the fraction of the run.
    explore: Callable[[Array, PyTree], PyTree] = lambda progress, params: params
