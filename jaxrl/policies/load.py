"""Trained policies: loaded, called, and played in their environment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.algorithms import policy as acting
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, TrainConfig, env_names
from jaxrl.envs import factory as environments
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.errors import UserError
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation import gymnasium, tracking
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from jaxrl.policies import files
from jaxrl.types import Array, EnvSpec, PyTree
from jaxrl.utils import streams, user_code, xla_options

# (spec, config) -> networks
NetworkBuilder = Callable[[EnvSpec, NetworkConfig], actor_critic.ActorCritic]


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


def find(path: Path, which: str = "best") -> Path:
    """Return the policy file meant by a file, or by a run folder."""
    candidates = [path, path.parent / f"{path.name}.npz", path / "policies" / f"{which}.npz"]
    if which == "best":
        candidates.append(path / "policies" / "final.npz")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if inside := sorted(path.glob("*/policies/*.npz")):
        raise UserError(
            f"'{path}' holds several runs: name one of them, as {inside[0].parents[1]}."
        )
    raise UserError(
        f"No policy at '{path}': give a run folder that holds policies/{which}.npz, or that file."
    )


def load_policy(
    path: str | Path, which: str = "best", network: str | NetworkBuilder | None = None
) -> LoadedPolicy:
    """Load a policy from a run folder or a policy file.

    Args:
      path: of the run folder or file.
      which: best or final.
      network: for a policy with networks of your own, the function that built them, or its name
        as module:build, which may then be imported.
    """
    file = find(Path(path), which)
    stored = files.read(file)
    build = _builder(file, stored.config.module, network)
    with files.building(file):
        networks = build(stored.spec, stored.config)
        shapes = _abstract_params(networks, stored.spec)
    params = files.fill(shapes, stored.arrays, file)
    return _bind(networks, params, stored.spec, stored.info)


def _builder(
    file: Path, module: str | None, network: str | NetworkBuilder | None
) -> NetworkBuilder:
    """Return what builds the networks of a file, which must not decide what is imported."""
    if callable(network):
        return network
    if network != module:
        wanted = f"add --network.module {module}" if module else "leave --network.module out"
        raise UserError(
            f"'{file}' has networks of {module or 'jaxrl'}, not of {network or 'jaxrl'}: {wanted} "
            "(`network` of load_policy)."
        )
    return user_code.load("--network.module", module) if module else actor_critic.build


def load_teacher(
    path: Path, spec: EnvSpec, networks: actor_critic.ActorCritic, module: str | None = None
) -> ppo.Teacher:
    """Load a policy for another to learn from; it must see and do the same.

    Its networks are jaxrl's, or of `module`, those of the run that learns.
    """
    stored = files.read(find(path)).config.module
    policy = load_policy(path, network=stored if stored == module else None)
    if jax.tree.leaves(policy.initial_carry(1)):
        raise UserError(f"--ppo.teacher: '{path}' has memory, which a teacher cannot have.")
    seen = [jax.tree.map(lambda s: s.shape, obs) for obs in (policy.spec.obs, spec.obs)]
    if policy.networks.distribution.kind != networks.distribution.kind:
        raise UserError(f"--ppo.teacher: '{path}' has another --network.distribution.")
    if seen[0] != seen[1] or policy.spec[1:] != spec[1:]:
        raise UserError(
            f"--ppo.teacher: '{path}' maps observations {seen[0]} to {policy.spec[1:]}, this "
            f"environment has {seen[1]} and {spec[1:]}."
        )
    return ppo.Teacher(policy.networks.actor, policy.params)


def _abstract_params(networks: actor_critic.ActorCritic, spec: EnvSpec) -> acting.PolicyParams:
    actor = jax.eval_shape(networks.actor.init, jax.random.key(0))
    return acting.PolicyParams(actor, jax.eval_shape(lambda: normalizer.init(spec.obs)))


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
    env: Any = None,
    poses: bool = False,
    record: Callable[[Any], PyTree] | None = None,
) -> evaluation.Episodes:
    """Play whole episodes in the environment of a configuration, which may be built already.

    Trials of motion tracking can note the `poses` of their humanoid too, for drawing them. What
    `record` makes of each state, in environments without trials, is in the episodes' trace.
    """
    env = env or environments.build(config)
    if jax.tree.map(lambda s: s.shape, env.spec.obs) != jax.tree.map(
        lambda s: s.shape, policy.spec.obs
    ):
        raise UserError("The policy was trained on observations of another shape.")
    act = acting.make_policy(policy.networks, deterministic)
    key = streams.key(seed, streams.COMMAND)
    if isinstance(env, GymnasiumEnv):
        decide, carry = jax.jit(gymnasium.acting(act)), policy.initial_carry(episodes)
        return gymnasium.play(env, decide, policy.params, carry, episodes, (seed,), key)
    env = environments.for_evaluation(env, episodes)
    carry = policy.initial_carry(env.rows)
    if env.trials:
        record = tracking.with_poses(env) if poses else None
    loops = env_names.solves_in_loops(config.env, config.backend)
    play = jax.jit(
        evaluation.episodes(env, act, carry, record=record),
        compiler_options=xla_options.options(loops=loops),
    )
    return jax.device_get(play(policy.params, key))
