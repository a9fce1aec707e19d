"""Policies as files: one npz with the weights, the normaliser, and how to build the network.

No code and no pickle: the file names layers and numbers, this module knows how to read them.
"""

import dataclasses
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import config_json
from jaxrl.algorithms import acting, ppo
from jaxrl.config import NetworkConfig, TrainConfig
from jaxrl.envs import build as environments
from jaxrl.envs.host import HostEnv
from jaxrl.errors import UserError
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from jaxrl.runtime import evaluation, files, host_play
from jaxrl.types import ActionSpec, Array, EnvSpec, PyTree

FORMAT = 1
_HEADER = "policy.json"


class LoadedPolicy(NamedTuple):
    """A trained policy: call it with an observation (or a batch of them) to get an action.

    A policy with memory is called by `step`, which takes and returns what it remembers.
    """

    step: Callable[..., tuple[Array, PyTree]]
    params: PyTree
    networks: actor_critic.ActorCritic
    spec: EnvSpec
    info: dict[str, Any]

    def __call__(self, obs: PyTree, key: Array | None = None) -> Array:
        """Return the most likely action; with a key, a random one."""
        if jax.tree.leaves(self.initial_carry(1)):
            raise UserError("This policy has memory: use action, carry = policy.step(obs, carry).")
        return self.step(obs, (), key)[0]

    def initial_carry(self, number: int) -> PyTree:
        """Return the memory that `number` episodes begin with."""
        return self.networks.actor.initial_carry(number)


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _describe_obs(obs: PyTree) -> Any:
    if isinstance(obs, dict):
        return {name: _describe_obs(part) for name, part in obs.items()}
    return {"shape": list(obs.shape), "dtype": str(obs.dtype)}


def _obs_from(description: Any) -> PyTree:
    if set(description) == {"shape", "dtype"}:
        shape = tuple(int(n) for n in description["shape"])
        return jax.ShapeDtypeStruct(shape, np.dtype(description["dtype"]))
    return {name: _obs_from(part) for name, part in description.items()}


def save_policy(
    path: Path, params: PyTree, spec: EnvSpec, network: NetworkConfig, info: dict[str, Any]
) -> None:
    """Write a policy; the file appears whole or not at all."""
    header = {
        "format": FORMAT,
        "obs": _describe_obs(spec.obs),
        "action": {"size": spec.action.size, "discrete": spec.action.discrete},
        "tokens": list(spec.tokens),
        "network": dataclasses.asdict(network),
        "info": info,
    }
    arrays = {name: np.asarray(leaf) for name, leaf in _named_leaves(params).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **arrays)


def find(path: Path, which: str = "best") -> Path:
    """Return the policy file meant by a file, or by a run folder."""
    candidates = [path, path.parent / f"{path.name}.npz", path / "policies" / f"{which}.npz"]
    if which == "best":
        candidates.append(path / "policies" / "final.npz")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(
        f"No policy at '{path}': give a run folder that holds policies/{which}.npz, or that file."
    )


def load_policy(path: str | Path, which: str = "best") -> LoadedPolicy:
    """Load a policy from a run folder or a policy file."""
    file = find(Path(path), which)
    header, arrays = _read(file)
    try:
        tokens = tuple(int(n) for n in header.get("tokens", ()))
        spec = EnvSpec(_obs_from(header["obs"]), ActionSpec(**header["action"]), tokens)
        network = config_json.read(NetworkConfig, header["network"], str(file))
        networks = actor_critic.build(spec, network)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{file}' is not a policy this version can read: {error!r}") from error
    params = _fill(_abstract_params(networks, spec), arrays, file)
    return _bind(networks, params, spec, header["info"])


def load_teacher(path: Path, spec: EnvSpec, networks: actor_critic.ActorCritic) -> ppo.Teacher:
    """Load a policy for another to learn from; it must see and do the same."""
    policy = load_policy(path)
    if jax.tree.leaves(policy.initial_carry(1)):
        raise UserError(f"--ppo.teacher: '{path}' has memory, which a teacher cannot have.")
    seen = [jax.tree.map(lambda s: s.shape, obs) for obs in (policy.spec.obs, spec.obs)]
    if policy.networks.distribution.noise_size != networks.distribution.noise_size:
        raise UserError(f"--ppo.teacher: '{path}' has another --network.distribution.")
    if seen[0] != seen[1] or policy.spec[1:] != spec[1:]:
        raise UserError(
            f"--ppo.teacher: '{path}' maps observations {seen[0]} to {policy.spec[1:]}, this "
            f"environment has {seen[1]} and {spec[1:]}."
        )
    return ppo.Teacher(policy.networks.actor, policy.params)


def _read(file: Path) -> tuple[dict, dict[str, np.ndarray]]:
    try:
        with np.load(file, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        header = json.loads(str(arrays.pop(_HEADER)))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"'{file}' is damaged or not a jaxrl policy: {error}") from error
    if header.get("format") != FORMAT:
        raise UserError(f"'{file}' has format {header.get('format')}, this version reads {FORMAT}.")
    return header, arrays


def _abstract_params(networks: actor_critic.ActorCritic, spec: EnvSpec) -> acting.PolicyParams:
    actor = jax.eval_shape(networks.actor.init, jax.random.key(0))
    return acting.PolicyParams(actor, jax.eval_shape(lambda: normalizer.init(spec.obs)))


def _fill(target: PyTree, arrays: dict[str, np.ndarray], file: Path) -> PyTree:
    """Put named arrays into the place of a tree of shapes."""
    wanted = _named_leaves(target)
    for name, leaf in wanted.items():
        if name not in arrays or arrays[name].shape != leaf.shape:
            have = arrays[name].shape if name in arrays else "nothing"
            raise UserError(f"'{file}': leaf {name} is {have}, the network needs {leaf.shape}.")
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(target), leaves)


def _bind(
    networks: actor_critic.ActorCritic, params: PyTree, spec: EnvSpec, info: dict
) -> LoadedPolicy:
    greedy, random = acting.make_policy(networks, True), acting.make_policy(networks, False)
    unused = jax.random.key(0)

    @jax.jit
    def act(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        return greedy(params, obs, carry, unused)[:2]

    @jax.jit
    def sample(params: PyTree, obs: PyTree, carry: PyTree, key: Array) -> tuple[Array, PyTree]:
        return random(params, obs, carry, key)[:2]

    def step(obs: PyTree, carry: PyTree, key: Array | None = None) -> tuple[Array, PyTree]:
        obs = jax.tree.map(jnp.asarray, obs)
        return act(params, obs, carry) if key is None else sample(params, obs, carry, key)

    return LoadedPolicy(step, params, networks, spec, info)


def run_episodes(
    policy: LoadedPolicy,
    config: TrainConfig,
    *,
    episodes: int,
    seed: int = 0,
    deterministic: bool = True,
) -> evaluation.Episodes:
    """Play whole episodes in the environment of a configuration."""
    env = environments.build(config)
    if jax.tree.map(lambda s: s.shape, env.spec.obs) != jax.tree.map(
        lambda s: s.shape, policy.spec.obs
    ):
        raise UserError("The policy was trained on observations of another shape.")
    act = acting.make_policy(policy.networks, deterministic)
    if isinstance(env, HostEnv):
        decide = jax.jit(host_play.acting(act, seed))
        return host_play.play(
            env, decide, policy.params, policy.initial_carry(episodes), episodes, (seed,)
        )
    env = environments.for_evaluation(env, episodes)
    carry = policy.initial_carry(env.rows)
    play = jax.jit(evaluation.episodes(env, act, carry))
    return jax.device_get(play(policy.params, jax.random.key(seed)))
