"""Networks that predict the reward of a step from (s, a, s')."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.learning import reward_regression
from jaxrl.networks import actor_critic, cnn
from jaxrl.networks.q_network import StateActionMLP, action_vector, critic_obs, example_action
from jaxrl.types import Array, EnvSpec, Key, PyTree


class RewardNetwork(NamedTuple):
    """init(key) -> params;  apply(params, obs, action, next_obs) -> [...].

    update(params, obs, action, next_obs, length, episode_return) -> params fits whole episodes,
    [episodes, T, ...], without a gradient; None where no part is solved in closed form.
    """

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, Array, PyTree], Array]
    update: Callable[..., PyTree] | None = None


def build(spec: EnvSpec, config: NetworkConfig, *, quadratic: bool = False) -> RewardNetwork:
    """Build a network that predicts a step's reward from (s, a, s − s').

    With `quadratic` a linear regression on these inputs and their squares is added to it.
    """
    # The output of the untrained network would stay in the sum with the regression for long.
    gain = 0.01 if quadratic else 1.0
    module = StateActionMLP(config, norm="none", outputs=1, head_gain=gain)
    read = critic_obs(spec)

    def read_change(obs: PyTree, next_obs: PyTree) -> Array | cnn.ImageObs:
        before, after = read(obs), read(next_obs)
        if isinstance(before, cnn.ImageObs):
            return cnn.image_change(before, after)  # type: ignore[arg-type]
        return cnn.with_change(before, after)  # type: ignore[arg-type]

    def init(key: Key) -> PyTree:
        obs = actor_critic.example_obs(spec)
        return module.init(key, read_change(obs, obs), action_vector(spec, example_action(spec)))

    def apply(params: PyTree, obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        inputs = read_change(obs, next_obs), action_vector(spec, action)
        return module.apply(params, *inputs)  # type: ignore[return-value]

    def features(obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        inputs = [read_change(obs, next_obs), action_vector(spec, action)]
        x = jnp.concatenate(inputs, axis=-1)  # type: ignore[arg-type]
        return jnp.concatenate([x, jnp.square(x)], axis=-1)

    network = RewardNetwork(init, apply)
    return _with_regression(spec, network, features) if quadratic else network


def _with_regression(
    spec: EnvSpec, network: RewardNetwork, features: Callable[..., Array]
) -> RewardNetwork:
    """Add a linear regression, which is not trained by gradients; the network learns the rest."""

    def init(key: Key) -> PyTree:
        obs = actor_critic.example_obs(spec)
        size = features(obs, example_action(spec), obs).shape[-1]
        return {"rest": network.init(key), "fit": reward_regression.init(size)}

    def apply(params: PyTree, obs: PyTree, action: Array, next_obs: PyTree) -> Array:
        fit = jax.lax.stop_gradient(params["fit"])
        predicted = reward_regression.predict(fit, features(obs, action, next_obs))
        return predicted + network.apply(params["rest"], obs, action, next_obs)

    def update(
        params: PyTree,
        obs: PyTree,
        action: Array,
        next_obs: PyTree,
        length: Array,
        episode_return: Array,
    ) -> PyTree:
        x = features(obs, action, next_obs)
        fit = reward_regression.update(params["fit"], x, length, episode_return)
        return params | {"fit": fit}

    return RewardNetwork(init, apply, update)
