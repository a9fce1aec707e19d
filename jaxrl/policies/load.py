"""Load trained policies, call them, and play them in their environment."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.algorithms import policy as policies
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, TrainConfig, env_names, zoo
from jaxrl.config.obs_keys import PRIVILEGED
from jaxrl.envs import factory as environments
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import EnvState, VectorEnv
from jaxrl.errors import UserError
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation import gymnasium
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from jaxrl.policies import files
from jaxrl.types import Array, EnvSpec, PyTree
from jaxrl.utils import streams, user_code, xla_options
from jaxrl.utils.formatting import plural
from jaxrl.utils.progress import Stage, silent

# (spec, config) -> networks
NetworkBuilder = Callable[[EnvSpec, NetworkConfig], actor_critic.ActorCritic]


class LoadedPolicy(NamedTuple):
    """A trained policy: call it with an observation (or a batch of them) to get an action.

    A recurrent policy is called by `step`, which takes and returns its carry.
    """

    step: Callable[..., tuple[Array, PyTree]]
    params: PyTree
    networks: actor_critic.ActorCritic
    spec: EnvSpec
    info: dict[str, Any]

    def __repr__(self) -> str:
        """Return what it plays and how it was trained, in one line."""
        shapes = jax.tree.map(lambda leaf: leaf.shape, self.spec.obs)
        number = self.spec.action.size
        kind = "discrete" if self.spec.action.discrete else "continuous"
        env, steps = self.info.get("env"), self.info.get("env_steps", 0)
        return (
            f"<LoadedPolicy of {env} after {steps:,} steps: observations {shapes}, "
            f"{plural(number, f'{kind} action')}>"
        )

    def __call__(self, obs: PyTree, key: Array | None = None) -> Array:
        """Return the most likely action; with a key, a random one."""
        if jax.tree.leaves(self.initial_carry(1)):
            raise UserError(
                "This policy is recurrent: use action, carry = policy.step(obs, carry)."
            )
        return self.step(obs, (), key)[0]

    def initial_carry(self, number: int) -> PyTree:
        """Return the carry of `number` new episodes."""
        return self.networks.actor.initial_carry(number)


def split_checkpoint(path: Path) -> tuple[Path, int | None]:
    """Return the run folder and the step of RUN/checkpoints/STEP; of other paths, no step."""
    if path.parent.name == "checkpoints" and path.name.isdecimal():
        return path.parent.parent, int(path.name)
    return path, None


def find(path: Path, which: str = "best") -> Path:
    """Return the policy file of a path: that file, a run folder, RUN/checkpoints/STEP or zoo:NAME.

    `which` is best, final or the step of a checkpoint.
    """
    path, step = split_checkpoint(zoo.resolve(path))
    which = which if step is None else str(step)
    candidates = [path, path.parent / f"{path.name}.npz", path / "policies" / f"{which}.npz"]
    if which == "best":
        candidates.append(path / "policies" / "final.npz")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if files_of_runs := sorted(path.glob("*/policies/*.npz")):
        raise UserError(
            f"'{path}' holds several runs: name one of them, as {files_of_runs[0].parents[1]}."
        )
    there = sorted((file.stem for file in path.glob("policies/*.npz")), key=lambda n: (len(n), n))
    listed = f" It has {', '.join(there)}." if there else ""
    raise UserError(
        f"No policy at '{path}': give a run folder that holds policies/{which}.npz, or that file."
        f"{listed}"
    )


def load_policy(
    path: str | Path, which: str = "best", network: str | NetworkBuilder | None = None
) -> LoadedPolicy:
    """Load a policy from a run folder or a policy file, or one that comes with the package.

    Args:
      path: of the run folder or file, or zoo:NAME.
      which: best, final, or the step of a checkpoint.
      network: for a policy with networks of your own, the function that built them, or its name
        as module:build, which may then be imported.
    """
    if not isinstance(path, str | Path):
        raise UserError(f"load_policy: give a run folder, a policy file or zoo:NAME, not {path!r}.")
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
        raise UserError(f"--ppo.teacher: '{path}' is recurrent, which a teacher cannot be.")
    shapes = [jax.tree.map(lambda s: s.shape, obs) for obs in (policy.spec.obs, spec.obs)]
    if policy.networks.distribution.kind != networks.distribution.kind:
        raise UserError(f"--ppo.teacher: '{path}' has another --network.distribution.")
    if shapes[0] != shapes[1] or policy.spec[1:] != spec[1:]:
        raise UserError(
            f"--ppo.teacher: '{path}' maps observations {shapes[0]} to {policy.spec[1:]}, this "
            f"environment has {shapes[1]} and {spec[1:]}."
        )
    return ppo.Teacher(policy.networks.actor, policy.params)


def _abstract_params(networks: actor_critic.ActorCritic, spec: EnvSpec) -> policies.PolicyParams:
    actor = jax.eval_shape(networks.actor.init, jax.random.key(0))
    return policies.PolicyParams(
        actor, jax.eval_shape(lambda: normalizer.init(spec.obs, networks.clip_obs))
    )


def _bind(
    networks: actor_critic.ActorCritic, params: PyTree, spec: EnvSpec, info: dict
) -> LoadedPolicy:
    greedy, stochastic = (policies.make_policy(networks, greedy) for greedy in (True, False))
    unused = jax.random.key(0)

    @jax.jit
    def act(params: PyTree, obs: PyTree, carry: PyTree) -> tuple[Array, PyTree]:
        return greedy(params, obs, carry, unused)[:2]

    @jax.jit
    def sample(params: PyTree, obs: PyTree, carry: PyTree, key: Array) -> tuple[Array, PyTree]:
        return stochastic(params, obs, carry, key)[:2]

    def step(obs: PyTree, carry: PyTree, key: Array | None = None) -> tuple[Array, PyTree]:
        # A list of numbers is one array, not a tree of numbers.
        obs = jax.tree.map(_as_array, obs, is_leaf=lambda part: not isinstance(part, dict))
        _check_given(obs, spec)
        obs = _with_privileged(obs, spec)
        return act(params, obs, carry) if key is None else sample(params, obs, carry, key)

    return LoadedPolicy(step, params, networks, spec, info)


def run_episodes(
    policy: LoadedPolicy,
    config: TrainConfig,
    *,
    episodes: int,
    seed: int = 0,
    deterministic: bool = True,
    env: VectorEnv | GymnasiumEnv | None = None,
    record: Callable[[EnvState], PyTree] | None = None,
    randomize: bool = False,
    stage: Stage = silent,
) -> evaluation.Episodes:
    """Play complete episodes in the environment of a configuration.

    Args:
      policy: the policy to play.
      config: settings of the run, which name the environment.
      episodes: number of episodes; an environment with trials plays each of them once instead.
      seed: for sampling start states and actions.
      deterministic: take the most likely actions.
      env: the environment of `config`, if it was built before.
      record: without trials, maps each state to the values of `Episodes.trace`.
      randomize: randomise physics as in training (--task.randomize).
      stage: reports what begins: compiling, playing.
    """
    built: VectorEnv | GymnasiumEnv = environments.build(config) if env is None else env
    if isinstance(built, GymnasiumEnv):
        _check_obs(policy, built.spec)
        act = jax.jit(gymnasium.make_act(policies.make_policy(policy.networks, deterministic)))
        key, carry = streams.key(seed, streams.COMMAND), policy.initial_carry(episodes)
        with stage(f"playing {plural(episodes, 'episode')}"):
            return gymnasium.play(built, act, policy.params, carry, episodes, (seed,), key)
    copies = environments.for_evaluation(built, episodes, randomize=randomize)
    record = None if copies.trials else record
    options = {"seed": seed, "deterministic": deterministic, "record": record, "stage": stage}
    return player(policy, config, copies, **options)(policy.params)


def player(
    policy: LoadedPolicy,
    config: TrainConfig,
    env: VectorEnv,
    *,
    seed: int,
    deterministic: bool,
    record: Callable[[EnvState], PyTree] | None = None,
    record_start: bool = False,
    stage: Stage = silent,
) -> Callable[[PyTree], evaluation.Episodes]:
    """Return a compiled function of the policy's parameters: one episode in each environment.

    See `evaluation.episodes` for `record`.
    """
    _check_obs(policy, env.spec)
    act, carry = (
        policies.make_policy(policy.networks, deterministic),
        policy.initial_carry(env.rows),
    )
    loops = env_names.solves_in_loops(config.env, config.backend)
    run = jax.jit(
        evaluation.episodes(env, act, carry, record=record, record_start=record_start),
        compiler_options=xla_options.options(loops=loops),
    )
    key = streams.key(seed, streams.COMMAND)
    all_trials = env.hooks.all_trials if env.trials and env.trial_numbers is None else None

    def calls() -> Iterator[tuple]:
        return iter([()]) if all_trials is None else ((None, each) for each in all_trials())

    with stage(f"compiling ({env_names.compile_time(config.env, config.backend)})"):
        program = run.lower(policy.params, key, *next(calls())).compile()

    def play_episodes(params: PyTree) -> evaluation.Episodes:
        with stage(f"playing {plural(env.num_envs, 'episode')}"):
            parts = [jax.device_get(program(params, key, *call)) for call in calls()]
        return (
            parts[0] if all_trials is None else evaluation.join(parts, len(env.hooks.trial_names))
        )

    return play_episodes


def _with_privileged(obs: PyTree, spec: EnvSpec) -> PyTree:
    """Add zeros for the critic's part of an observation, which the actor does not read."""
    if not isinstance(obs, dict) or PRIVILEGED in obs or PRIVILEGED not in spec.obs:
        return obs
    name, given = next(iter(obs.items()))
    batch = given.shape[: given.ndim - len(spec.obs[name].shape)]
    missing = spec.obs[PRIVILEGED]
    return obs | {PRIVILEGED: jnp.zeros((*batch, *missing.shape), missing.dtype)}


def _as_array(leaf: Any) -> Array:
    try:
        return jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise UserError(f"The policy takes observations as arrays, not {leaf!r:.80}.") from error


def _check_given(obs: PyTree, spec: EnvSpec) -> None:
    """Raise UserError unless observations, or a batch of them, have the shape of the training."""

    def fits(given: Array, trained: jax.ShapeDtypeStruct) -> bool:
        batch = given.ndim - len(trained.shape)
        return batch >= 0 and given.shape[batch:] == trained.shape

    wanted = spec.obs
    if isinstance(wanted, dict) and isinstance(obs, dict):  # the critic's part may be left out
        wanted = {k: v for k, v in wanted.items() if k in obs or k != PRIVILEGED}
    same = jax.tree.structure(obs) == jax.tree.structure(wanted)
    if not same or not all(jax.tree.leaves(jax.tree.map(fits, obs, wanted))):
        given, trained = (jax.tree.map(lambda leaf: leaf.shape, o) for o in (obs, wanted))
        raise UserError(
            f"The policy takes observations of shape {trained}, or a batch of them, not {given}."
        )


def _check_obs(policy: LoadedPolicy, spec: EnvSpec) -> None:
    shapes = [jax.tree.map(lambda s: s.shape, obs) for obs in (spec.obs, policy.spec.obs)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"The policy was trained on observations of another shape: {shapes[1]}, this "
            f"environment has {shapes[0]}."
        )
