"""Record episodes of trained or random policies, in robomimic's layout.

    python -m jaxrl.record runs/pendulum-s0-... --episodes 60 --noise 0 0.5 1 --out data.hdf5

`--noise` are fractions of random actions, each used for an equal number of episodes: 0 is the
policy as trained, 1 is uniformly random. Rewards can be learnt from data of mixed quality.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.config import TrainConfig, env_names, zoo
from jaxrl.errors import UserError, check_episodes, exit_status
from jaxrl.loggers import run_dir
from jaxrl.utils import command_line, progress
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
    config = run_dir.read_config(zoo.resolve(args.run), args.env, args.randomize, args.network)
    _check(args, config)
    # JAX is imported only now: help and errors about arguments never wait for it.
    import numpy as np

    from jaxrl.algorithms import policy as policies
    from jaxrl.data import hdf5
    from jaxrl.envs import factory as environments
    from jaxrl.envs.vector_env import VectorEnv
    from jaxrl.evaluation import recording
    from jaxrl.policies import load
    from jaxrl.programs import memory_estimate
    from jaxrl.utils import streams

    hdf5.h5py()  # missing, it should be missed before anything is played
    each = -(-args.episodes // len(args.noise))
    config = replace(config, task=replace(config.task, episodic_reward=False))
    # Trials would be played once each, whatever --episodes is.
    built = environments.build(config)
    assert isinstance(built, VectorEnv)  # no Gymnasium environment: checked above
    env = environments.for_evaluation(built, each, trials=False, randomize=True)
    memory_estimate.refuse_episodes(env, each)
    policy = load.load_policy(load.find(args.run, args.policy), network=config.network.module)
    if env.template.agents:
        raise UserError(f"{config.env} has several agents; only single agents can be recorded.")
    act = policies.make_policy(policy.networks, deterministic=True)
    play, played = recording.player(env, act, policy.params, policy.initial_carry(env.rows)), []
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
