"""Record episodes of trained or random policies, in robomimic's layout.

    python -m jaxrl.record runs/pendulum-s0-... --episodes 60 --noise 0 0.5 1 --out data.hdf5

`--noise` are fractions of random actions, each used for an equal number of episodes: 0 is the
policy as trained, 1 is uniformly random. Rewards can be learnt from data of mixed quality.
"""

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from jaxrl.algorithms import policy as policies
from jaxrl.config import TrainConfig, env_names, zoo
from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode, h5py
from jaxrl.envs import factory as environments
from jaxrl.envs.rows import as_mask
from jaxrl.envs.vector_env import StepResult, VectorEnv
from jaxrl.errors import UserError, check_episodes, exit_status
from jaxrl.loggers import run_dir
from jaxrl.policies import load
from jaxrl.programs import memory_estimate
from jaxrl.types import Array, Key, Policy, PyTree
from jaxrl.utils import command_line, progress, streams
from jaxrl.utils.formatting import plural


@dataclass(frozen=True)
class RecordArgs:
    """Record episodes of a policy to a file."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder of the policy, or zoo:NAME."""
    out: Path
    """HDF5 file to write."""
    episodes: int = 60
    """Number of episodes."""
    noise: tuple[float, ...] = (0.0, 0.5, 1.0)
    """Fractions of random actions."""
    policy: str = "best"
    """best, final, or the step of a checkpoint."""
    valid: float = 0.1
    """Fraction of the episodes in the mask `valid`; the others are in `train`."""
    seed: int = 0
    """Random seed."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""
    randomize: Annotated[str | None, tyro.conf.arg(name="task.randomize")] = None
    """Needed only if the run has it: the module:function that may be imported."""
    network: Annotated[str | None, tyro.conf.arg(name="network.module")] = None
    """Needed only for networks of your own: the module:build that may be imported."""


def player(
    env: VectorEnv, policy: Policy, params: PyTree, carry: PyTree
) -> Callable[[Key, float], list[Episode]]:
    """Return (key, noise) -> one episode of each environment; `noise` of the actions are random."""
    spec = env.spec.action

    def step(noise: Array, state: tuple, key: Key):
        env_state, carry = state
        key_act, key_is_random, key_random = jax.random.split(key, 3)
        obs = env.observe(env_state)
        action, carry, _ = policy(params, obs, carry, key_act)
        if spec.discrete:
            random_action = jax.random.randint(key_random, action.shape, 0, spec.size)
        else:
            random_action = jax.random.uniform(key_random, action.shape, minval=-1.0)
        is_random = jax.random.uniform(key_is_random, action.shape[:1]) < noise
        action = jnp.where(as_mask(is_random, action), random_action, action)
        env_state, result = env.advance(env_state, action)
        return (env_state, carry), (obs, action, result)

    @jax.jit
    def run(key: Key, noise: Array):
        key_start, key_steps = jax.random.split(key)
        start = env.reset(key_start, stagger=False)
        keys = jax.random.split(key_steps, env.longest_episode)
        return jax.lax.scan(partial(step, noise), (start, carry), keys)[1]

    def play(key: Key, noise: float) -> list[Episode]:
        obs, action, result = jax.device_get(run(key, jnp.float32(noise)))
        ended = result.terminated | result.truncated
        return [_episode(row, obs, action, result, ended) for row in range(ended.shape[1])]

    return play


def _episode(
    row: int, obs: PyTree, action: np.ndarray, result: StepResult, ended: np.ndarray
) -> Episode:
    """Return one row up to the end of its episode."""
    length = int(np.argmax(ended[:, row])) + 1

    def select(tree: PyTree) -> dict[str, np.ndarray]:
        tree = tree if isinstance(tree, dict) else {"state": tree}
        return {key: leaf[:length, row] for key, leaf in tree.items()}

    actions = action[:length, row].reshape(length, -1)
    reward = np.asarray(result.reward[:length, row], np.float32)
    terminated = bool(result.terminated[length - 1, row])
    return Episode(select(obs), select(result.next_obs), actions, reward, terminated)


def _check(args: RecordArgs, config: TrainConfig) -> None:
    """Raise UserError if the run cannot be recorded, before anything is played."""
    if config.env == env_names.OFFLINE:
        raise UserError(f"'{args.run}' learnt from recorded episodes and has no environment.")
    if env_names.is_gymnasium(config.env):
        raise UserError(f"{config.env} is a Gymnasium environment and cannot be recorded.")
    if not args.noise or not all(0 <= n <= 1 for n in args.noise):
        raise UserError(f"--noise: fractions between 0 and 1, not {args.noise}.")
    check_episodes(args.episodes, args.seed)
    if not 0 <= args.valid < 1:
        raise UserError(f"--valid: a fraction of at least 0 and below 1, not {args.valid}.")


def _record(args: RecordArgs) -> None:
    """Play, write, and say what was written."""
    h5py()  # missing, it should be missed before anything is played
    config = run_dir.read_config(zoo.resolve(args.run), args.env, args.randomize, args.network)
    _check(args, config)
    each = -(-args.episodes // len(args.noise))
    config = dataclasses.replace(
        config, task=dataclasses.replace(config.task, episodic_reward=False)
    )
    # Trials would be played once each, whatever --episodes is.
    built = environments.build(config)
    assert isinstance(built, VectorEnv)  # no Gymnasium environment: checked above
    env = environments.for_evaluation(built, each, trials=False, randomize=True)
    memory_estimate.refuse_episodes(env, each)
    policy = load.load_policy(load.find(args.run, args.policy), network=config.network.module)
    if env.template.agents:
        raise UserError(f"{config.env} has several agents; only single agents can be recorded.")
    act = policies.make_policy(policy.networks, deterministic=True)
    play, played = player(env, act, policy.params, policy.initial_carry(env.rows)), []
    for number, noise in enumerate(args.noise):
        with progress.stage(
            f"playing {plural(each, 'episode')} with {noise:g} of the actions random"
        ):
            played += play(streams.key(args.seed, streams.RECORD, number), noise)
    order = np.random.default_rng(args.seed).permutation(len(played))[: args.episodes]
    episodes = [played[i] for i in order]
    num_valid = min(round(args.valid * len(episodes)), len(episodes) - 1)
    masks = {
        "valid": list(range(num_valid)),
        "train": list(range(num_valid, len(episodes))),
    }
    spec = env.spec.action
    env_args = {"env_name": config.env, "backend": config.backend, "action": spec._asdict()}
    hdf5.write(args.out, episodes, env_args, masks)
    returns = [float(e.reward.sum()) for e in episodes]
    steps = sum(len(e.reward) for e in episodes)
    print(
        f"{plural(len(episodes), 'episode')}, {plural(steps, 'step')}, "
        f"returns {min(returns):.4g} to {max(returns):.4g} written to {args.out}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _record(command_line.parse(RecordArgs, arguments, "record")))


if __name__ == "__main__":
    sys.exit(main())
