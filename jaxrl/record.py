"""Record episodes of trained or random policies, in robomimic's layout.

    python -m jaxrl.record runs/pendulum-s0-... --episodes 60 --noise 0 0.5 1 --out data.hdf5

`--noise` are shares of random actions, each used for as many episodes as the others: 0 is the
policy as trained, 1 pure chance. Data of mixed quality is what rewards can be learnt from.
"""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from jaxrl.algorithms import policy as acting
from jaxrl.config import TrainConfig, env_names
from jaxrl.data import writing
from jaxrl.data.hdf5 import Episode, h5py
from jaxrl.envs import factory as environments
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError, check_episodes, exit_status
from jaxrl.loggers import run_dir
from jaxrl.policies import load
from jaxrl.programs import memory_estimate
from jaxrl.types import Key, Policy, PyTree
from jaxrl.utils import streams


@dataclass(frozen=True)
class RecordArgs:
    """What to record, and where to."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder whose policy plays."""
    out: Path
    """HDF5 file to write."""
    episodes: int = 60
    """Episodes in all."""
    noise: tuple[float, ...] = (0.0, 0.5, 1.0)
    """Shares of random actions."""
    policy: str = "best"
    """best or final."""
    valid: float = 0.1
    """Share of the episodes that the mask `valid` names; `train` names the others."""
    seed: int = 0
    """Seed of everything random."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""
    randomize: Annotated[str | None, tyro.conf.arg(name="task.randomize")] = None
    """Needed only if the run has it: the module:function that may be imported."""
    network: Annotated[str | None, tyro.conf.arg(name="network.module")] = None
    """Needed only for networks of your own: the module:build that may be imported."""


def play(
    env: VectorEnv, policy: Policy, params: PyTree, carry: PyTree, key: Key, noise: float
) -> list[Episode]:
    """Play one whole episode in each environment, taking random actions now and then."""
    spec = env.spec.action

    def step(state: tuple, key: Key):
        env_state, carry = state
        key_act, key_when, key_what = jax.random.split(key, 3)
        obs = env.observe(env_state)
        action, carry, _ = policy(params, obs, carry, key_act)
        if spec.discrete:
            other = jax.random.randint(key_what, action.shape, 0, spec.size)
        else:
            other = jax.random.uniform(key_what, action.shape, minval=-1.0)
        random = jax.random.uniform(key_when, action.shape[:1]) < noise
        random = random.reshape(random.shape + (1,) * (action.ndim - 1))
        action = jnp.where(random, other, action)
        env_state, outcome = env.advance(env_state, action)
        return (env_state, carry), (obs, action, outcome)

    @jax.jit
    def run(key: Key):
        key_start, key_steps = jax.random.split(key)
        start = env.reset(key_start, stagger=False)
        keys = jax.random.split(key_steps, env.longest_episode)
        return jax.lax.scan(step, (start, carry), keys)[1]

    obs, action, outcome = jax.device_get(run(key))
    ended = outcome.terminated | outcome.truncated
    return [_cut(row, obs, action, outcome, ended) for row in range(ended.shape[1])]


def _cut(row: int, obs: PyTree, action: np.ndarray, outcome: PyTree, ended: np.ndarray) -> Episode:
    """Take one row up to the end of its episode."""
    length = int(np.argmax(ended[:, row])) + 1

    def part(tree: PyTree) -> dict[str, np.ndarray]:
        tree = tree if isinstance(tree, dict) else {"state": tree}
        return {key: leaf[:length, row] for key, leaf in tree.items()}

    actions = action[:length, row].reshape(length, -1)
    reward = outcome.reward[:length, row].astype(np.float32)
    terminated = bool(outcome.terminated[length - 1, row])
    return Episode(part(obs), part(outcome.next_obs), actions, reward, terminated)


def _check(command: RecordArgs, config: TrainConfig) -> None:
    """Refuse what cannot be recorded before anything is played."""
    if config.offline:
        raise UserError(f"'{command.run}' learnt from recorded episodes and has no policy to play.")
    if env_names.is_hosted(config.env):
        raise UserError(f"{config.env} keeps its state to itself and cannot be recorded.")
    if not command.noise or not all(0 <= n <= 1 for n in command.noise):
        raise UserError(f"--noise: shares between 0 and 1, not {command.noise}.")
    check_episodes(command.episodes, command.seed)
    if not 0 <= command.valid < 1:
        raise UserError(f"--valid: a share of at least 0 and below 1, not {command.valid}.")


def _record(command: RecordArgs) -> None:
    """Play, write, and say what was written."""
    h5py()  # missing, it should be missed before anything is played
    config = run_dir.read_config(command.run, command.env, command.randomize, command.network)
    _check(command, config)
    each = -(-command.episodes // len(command.noise))
    config = dataclasses.replace(
        config, task=dataclasses.replace(config.task, episodic_reward=False)
    )
    # Fixed trials would be played once each, however many episodes were asked for.
    env = environments.for_evaluation(environments.build(config), each, trials=False)
    memory_estimate.refuse_episodes(env, each)
    policy = load.load_policy(load.find(command.run, command.policy), network=config.network.module)
    if env.template.agents:
        raise UserError(f"{config.env} has several agents; episodes of one agent are recorded.")
    act = acting.make_policy(policy.networks, deterministic=True)
    played = []
    for number, noise in enumerate(command.noise):
        key = streams.key(command.seed, streams.RECORD, number)
        played += play(env, act, policy.params, policy.initial_carry(env.rows), key, noise)
    order = np.random.default_rng(command.seed).permutation(len(played))[: command.episodes]
    episodes = [played[i] for i in order]
    aside = min(round(command.valid * len(episodes)), len(episodes) - 1)
    parts = {
        "valid": list(range(aside)),
        "train": list(range(aside, len(episodes))),
    }
    spec = env.spec.action
    about = {"env_name": config.env, "backend": config.backend, "action": spec._asdict()}
    writing.write(command.out, episodes, about, parts)
    returns = [float(e.reward.sum()) for e in episodes]
    steps = sum(len(e.reward) for e in episodes)
    print(
        f"{len(episodes)} episodes, {steps:,} steps, returns {min(returns):.4g} to "
        f"{max(returns):.4g} written to {command.out}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    program = "python -m jaxrl.record"
    return exit_status(lambda: _record(tyro.cli(RecordArgs, args=arguments, prog=program)))


if __name__ == "__main__":
    sys.exit(main())
