"""The actor and the critic of an environment, as records of pure functions."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.config.obs_keys import ACTION_MASK, AMP, PRIVILEGED
from jaxrl.learning import distributions, exploration, normalizer, sde
from jaxrl.learning.distributions import Distribution
from jaxrl.learning.exploration import Carry, Exploration
from jaxrl.networks import cnn
from jaxrl.networks.mlp import MLP, kernel_init
from jaxrl.networks.recurrent import RNN, apply_layers, initial_carry, layer_names
from jaxrl.types import Array, EnvSpec, Key, PyTree

_NOISE = "noise_log_std"  # the actor's parameter of state-dependent exploration


class Network(NamedTuple):
    """init(key) -> params;  apply(params, obs, carry) -> (output, carry)."""

    init: Callable[[Key], PyTree]
    apply: Callable[[PyTree, PyTree, PyTree], tuple[Array, PyTree]]
    initial_carry: Callable[[int], PyTree]


class ActorCritic(NamedTuple):
    """The actor, the critic, and the distribution that the actor's output parametrises.

    Segments are time-major [T, N, ...]; `carry` is the recurrent state before their first step, and
    `ended` [T, N] says after which steps it is reset. Both are () if not recurrent.
    """

    actor: Network
    critic: Network
    distribution: Distribution
    # (params {"actor", "critic"}, obs, carry {"actor", "critic"}, ended) -> (output, value)
    forward: Callable[[PyTree, PyTree, PyTree, PyTree], tuple[Array, Array]]
    # (critic's params, obs, next_obs, carry, ended) -> (value, value of next_obs, carry)
    values: Callable[[PyTree, PyTree, PyTree, PyTree, PyTree], tuple[Array, Array, PyTree]]
    is_recurrent: bool
    clip_obs: float = normalizer.CLIP  # of normalised observations, ±
    exploration: Exploration | None = None  # of rollouts; None: actions are sampled at every step


def _torso(c: NetworkConfig, hidden: tuple[int, ...]) -> MLP:
    return MLP(hidden, c.activation, c.norm, c.init, c.precision, c.residual_blocks)


def rnn_of(c: NetworkConfig, part: str) -> str:
    """Return the kind of RNN that "actor" or "critic" has, or "none"."""
    return c.rnn if c.rnn_of in (part, "both") else "none"


def _rnn_layers(c: NetworkConfig) -> list[RNN]:
    """Return the recurrent layers; inside a module they become parts of it."""
    return [_rnn(c, name) for name in layer_names(c.rnn_layers)]


def _rnn(c: NetworkConfig, name: str | None = None) -> RNN:
    return RNN(c.rnn, c.rnn_size, c.rnn_timescale, name=name)


class _Actor(nn.Module):
    config: NetworkConfig
    param_size: int
    has_std: bool

    @nn.compact
    def __call__(
        self,
        x: Array,
        carry: PyTree = (),
        ended: PyTree = None,
        *,
        from_features: bool = False,
        to_features: bool = False,
    ) -> tuple[Array, PyTree]:
        """Return the distribution's parameters, or the features they are computed from."""
        c = self.config
        if not from_features:
            x = cnn.encode(x)
            x = _torso(c, c.hidden)(x)
            if rnn_of(c, "actor") != "none":
                x, _, carry = apply_layers(_rnn_layers(c), x, carry, ended)
        if to_features:
            return x, carry
        size = self.param_size // 2 if self.has_std else self.param_size
        if c.distribution == "greedy":  # the last output is epsilon, a parameter
            size -= 1
        # A small last layer: the first policy is near uniform for every observation.
        head = kernel_init(c.init, gain=0.01)
        out = nn.Dense(size, kernel_init=head, name="head")(x)
        if c.distribution == "greedy":
            epsilon = self.param("epsilon", nn.initializers.ones, ())
            epsilon = jnp.broadcast_to(epsilon.reshape((1,) * out.ndim), (*out.shape[:-1], 1))
            out = jnp.concatenate([out, epsilon], axis=-1)
        if not self.has_std:
            return out, carry
        if c.sde:
            log_std = sde.action_log_std(x, self._noise_log_std(x.shape[-1], size), c.min_std)
        elif c.fixed_std:
            log_std = jnp.full_like(out, jnp.log(c.init_std))
        elif c.state_dependent_std and c.distribution != "noisy":
            raw = nn.Dense(size, kernel_init=head, name="std_head")(x)
            # softplus(raw + offset) is init_std at raw = 0.
            offset = jnp.log(jnp.expm1(c.init_std))
            log_std = jnp.log(nn.softplus(raw + offset) + c.min_std)
        else:
            free = self.param("log_std", nn.initializers.constant(jnp.log(c.init_std)), (size,))
            log_std = jnp.broadcast_to(free.reshape((1,) * (out.ndim - 1) + (size,)), out.shape)
            log_std = jnp.maximum(log_std, jnp.log(c.min_std))
        return jnp.concatenate([out, log_std], axis=-1), carry

    def _noise_log_std(self, features: int, size: int) -> Array:
        """Return log σ of the noise; actions start with init_std if mean f² is 1."""
        start = nn.initializers.constant(jnp.log(self.config.init_std / features**0.5))
        return self.param(_NOISE, start, (features, size))


class _Critic(nn.Module):
    config: NetworkConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        carry: PyTree = (),
        ended: PyTree = None,
        next_x: Array | None = None,
        *,
        from_features: bool = False,
    ) -> tuple[Array, Array | None, PyTree]:
        """Return the values of x and (after x) of next_x, and the carry."""
        c = self.config
        if not from_features:
            torso = _torso(c, c.critic_hidden)
            if isinstance(x, cnn.ImageObs):
                layers = cnn.make()
                x, next_x = layers(x), None if next_x is None else layers(next_x)  # type: ignore[arg-type]
            x, next_x = torso(x), None if next_x is None else torso(next_x)
            if rnn_of(c, "critic") != "none":
                x, next_x, carry = apply_layers(_rnn_layers(c), x, carry, ended, next_x)
        head = nn.Dense(1, kernel_init=kernel_init(c.init, 1.0), name="head")
        value, next_value = (None if y is None else head(y)[..., 0] for y in (x, next_x))
        return value, next_value, carry  # type: ignore[return-value]


def select_obs(obs: PyTree, keys: tuple[str, ...]) -> Array:
    """Return the observation as one vector; of a dict, the parts named by `keys`, joined."""
    if not isinstance(obs, dict):
        return obs
    return jnp.concatenate([obs[key] for key in keys], axis=-1)


def one_hot(tokens: Array, sizes: tuple[int, ...]) -> Array:
    """Return the one-hot vectors of tokens [..., number, features]: [..., number · Σ sizes]."""
    if tokens.shape[-1] != len(sizes):
        raise ValueError(f"tokens have {tokens.shape[-1]} features, but the sizes are {sizes}")
    parts = [jax.nn.one_hot(tokens[..., i], size) for i, size in enumerate(sizes)]
    joined = jnp.concatenate(parts, axis=-1)
    return joined.reshape(*joined.shape[:-2], -1)


def obs_reader(spec: EnvSpec, keys: tuple[str, ...]) -> Callable[[PyTree], Any]:
    """Return the function from an observation to a network's input: a vector, or an ImageObs."""
    if spec.tokens:
        return lambda obs: one_hot(obs, spec.tokens)
    shapes = _only(spec.obs, keys)
    if any(map(cnn.is_image, jax.tree.leaves(shapes))):
        return lambda obs: cnn.split(_only(obs, keys), shapes)
    return lambda obs: select_obs(obs, keys)


def has_images(spec: EnvSpec) -> bool:
    """Return whether some part of the observation is an image."""
    return any(map(cnn.is_image, jax.tree.leaves(spec.obs)))


def _only(obs: PyTree, keys: tuple[str, ...]) -> PyTree:
    return {key: obs[key] for key in keys} if isinstance(obs, dict) else obs


def observed_keys(spec_obs: PyTree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the observation keys of actor and critic, of which the critic's may be privileged.

    By the convention of MuJoCo Playground, `privileged_state` already contains what the critic
    needs; every other part belongs to both. An action mask belongs to neither.
    """
    if not isinstance(spec_obs, dict):
        return (), ()
    shared = tuple(key for key in sorted(spec_obs) if key not in (PRIVILEGED, AMP, ACTION_MASK))
    return shared, ((PRIVILEGED,) if PRIVILEGED in spec_obs else shared)


def network_obs(obs: PyTree) -> PyTree:
    """Return the parts of an observation that actor and critic read."""
    return {k: v for k, v in obs.items() if k != AMP} if isinstance(obs, dict) else obs


def example_obs(spec: EnvSpec) -> PyTree:
    """Return a batch of one observation of zeros, as after normalisation: uint8 or float32."""

    def blank(s: jax.ShapeDtypeStruct) -> Array:
        return jnp.zeros((1, *s.shape), jnp.uint8 if s.dtype == jnp.uint8 else jnp.float32)

    return jax.tree.map(blank, spec.obs)


def masked(output: Array, obs: PyTree) -> Array:
    """Return logits or Q values with those of invalid actions very low, if there is a mask."""
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return output
    valid = obs[ACTION_MASK] > 0
    number = valid.shape[-1]
    choice = jnp.where(valid, output[..., :number], distributions.INVALID)
    return jnp.concatenate([choice, output[..., number:]], axis=-1)


def _network(
    module: "_Actor | _Critic", spec: EnvSpec, read: Callable[[PyTree], Any], kind: str
) -> Network:
    c = module.config

    def first_carry(number: int) -> PyTree:
        return initial_carry(kind, c.rnn_size, number, c.rnn_layers)

    def init(key: Key) -> PyTree:
        example = example_obs(spec)
        return module.init(key, read(example), first_carry(1))

    def apply(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        out, *_, carry = module.apply(params, read(obs), carry)
        return masked(out, obs) if isinstance(module, _Actor) else out, carry  # type: ignore[return-value, arg-type]

    return Network(init, apply, first_carry)


def build(spec: EnvSpec, config: NetworkConfig) -> ActorCritic:
    """Build networks that fit an environment's observations and actions."""
    kind = distributions.kind_for(config.distribution, spec.action.discrete)
    distribution = distributions.DISTRIBUTIONS[kind](spec.action.size)
    if kind == "greedy" and isinstance(spec.obs, dict) and ACTION_MASK in spec.obs:
        distribution = distributions.greedy(spec.action.size, masked=True)
    actor_keys, critic_keys = observed_keys(spec.obs)
    actor = _Actor(config, distribution.param_size, has_std=not spec.action.discrete)
    critic = _Critic(config)
    readers = obs_reader(spec, actor_keys), obs_reader(spec, critic_keys)
    networks = (
        _network(actor, spec, readers[0], rnn_of(config, "actor")),
        _network(critic, spec, readers[1], rnn_of(config, "critic")),
    )
    same_body = config.hidden == config.critic_hidden and actor_keys == critic_keys
    same_body = same_body and not has_images(spec)
    same_body = same_body and rnn_of(config, "actor") == rnn_of(config, "critic")
    forward = (_batched_forward if same_body else _plain_forward)(actor, critic, readers)

    def values(params: PyTree, obs: PyTree, next_obs: PyTree, carry: PyTree, ended: PyTree) -> Any:
        return critic.apply(params, readers[1](obs), carry, ended, readers[1](next_obs))

    explore = None
    if config.sde and not spec.action.discrete:
        explore = _sde(actor, readers[0], distribution)
    is_recurrent = config.rnn != "none"
    return ActorCritic(
        *networks, distribution, forward, values, is_recurrent, config.clip_obs, explore
    )


def _sde(actor: _Actor, read: Callable[[PyTree], Any], dist: Distribution) -> Exploration:
    """Build state-dependent exploration."""
    c = actor.config
    features = c.hidden[-1] if rnn_of(c, "actor") == "none" else c.rnn_size
    actions = actor.param_size // 2

    def act(params: PyTree, obs: PyTree, carry: Carry, key: Key) -> tuple[Array, Array, Carry]:
        noise = sde.resample(carry.noise, key, c.sde_sample_freq)
        x, network_carry = actor.apply(params, read(obs), carry.network_carry, to_features=True)
        out, _ = actor.apply(params, x, from_features=True)
        log_std = params["params"][_NOISE]
        perturbation = sde.perturbation(x, log_std, c.min_std, noise.matrix)  # type: ignore[arg-type]
        return out, dist.mode(out) + perturbation, Carry(network_carry, noise)  # type: ignore[return-value, arg-type]

    return Exploration(lambda number: sde.initial_noise(number, features, actions), act)


def with_noise(networks: ActorCritic, max_hold: int, min_scale: float) -> ActorCritic:
    """Return networks whose rollouts hold and scale the noise: see `learning.exploration`."""
    dist = networks.distribution

    def act(params: PyTree, obs: PyTree, carry: Carry, key: Key) -> tuple[Array, Array, Carry]:
        noise = exploration.resample(carry.noise, key, max_hold, min_scale)
        out, network_carry = networks.actor.apply(params, obs, carry.network_carry)
        raw = dist.mode(out) + dist.std(out) * noise.scale[:, None] * noise.sample
        return out, raw, Carry(network_carry, noise)

    size = dist.param_size // 2
    explore = Exploration(lambda number: exploration.initial_noise(number, size), act)
    return networks._replace(exploration=explore)


def _plain_forward(actor: _Actor, critic: _Critic, readers: tuple[Callable, Callable]):
    def forward(params: PyTree, obs: PyTree, carry: PyTree, ended: PyTree) -> tuple[Array, Array]:
        output, _ = actor.apply(params["actor"], readers[0](obs), carry["actor"], ended)
        value, *_ = critic.apply(params["critic"], readers[1](obs), carry["critic"], ended)
        return masked(output, obs), value  # type: ignore[return-value, arg-type]

    return forward


def _batched_forward(actor: _Actor, critic: _Critic, readers: tuple[Callable, Callable]):
    """Return `forward` for bodies of equal shape: each pair of layers is one batched product."""
    c = actor.config
    torso, rnn = _torso(c, c.hidden), _rnn(c)
    names = () if c.rnn == "none" else layer_names(c.rnn_layers)

    def body(params: PyTree, carry: PyTree, x: Array, ended: PyTree) -> Array:
        x = torso.apply({"params": params["MLP_0"]}, x)  # type: ignore[assignment]
        if not names:
            return x
        layers = [partial(rnn.apply, {"params": params[name]}) for name in names]
        return apply_layers(layers, x, carry, ended)[0]  # type: ignore[arg-type]

    def forward(params: PyTree, obs: PyTree, carry: PyTree, ended: PyTree) -> tuple[Array, Array]:
        pair = [
            ({part: params[each]["params"][part] for part in ("MLP_0", *names)}, carry[each])
            for each in ("actor", "critic")
        ]
        pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair)
        x = jax.vmap(body, (0, 0, None, None))(pair[0], pair[1], readers[0](obs), ended)
        output, _ = actor.apply(params["actor"], x[0], from_features=True)
        value, *_ = critic.apply(params["critic"], x[1], from_features=True)
        return masked(output, obs), value  # type: ignore[return-value, arg-type]

    return forward
