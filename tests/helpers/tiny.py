"""A tiny run with training and evaluation; many tests share its compiled programs."""

import json
import shlex
from pathlib import Path

import numpy as np

from jaxrl import train

FLAGS = shlex.split(
    "cartpole --devices 1 --num-envs 8 --epochs 2 --cycles 2 --iterations 2 --eval.num-envs 4 "
    "--network.hidden 8 --network.critic-hidden 8 --ppo.rollout-length 8 --ppo.num-minibatches 2 "
    "--ppo.update-epochs 2 --ppo.schedule constant --task.episode-length 20"
)

REPPO = shlex.split(
    "pendulum --algo reppo --devices 1 --num-envs 8 --epochs 2 --cycles 2 --iterations 2 "
    "--network.hidden 8 --network.critic-hidden 8 8 --reppo.rollout-length 8 "
    "--reppo.num-minibatches 4 --reppo.update-epochs 2 --task.episode-length 20"
)

PQN = shlex.split(
    "cartpole --algo pqn --devices 1 --num-envs 8 --epochs 2 --cycles 2 --iterations 2 "
    "--network.hidden 8 --pqn.rollout-length 8 --pqn.num-minibatches 4 --pqn.update-epochs 2 "
    "--pqn.schedule constant --pqn.epsilon-fraction 0 --task.episode-length 20"
)


def flags(run_dir, *extra):
    return [*FLAGS, "--run-dir", str(run_dir), *extra]


def run(run_dir, *extra):
    """Train in this process and return the folder; the run must succeed."""
    assert train.main(flags(run_dir, *extra)) == 0
    return Path(run_dir)


def rows(folder, *, timed=False):
    """Return the logged rows, without times and memory unless `timed`."""
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    points = [json.loads(line) for line in lines]
    if timed:
        return points
    return [
        {k: v for k, v in point.items() if not k.startswith("time/") or k == "time/iterations"}
        for point in points
    ]


def policy(folder, which="final"):
    """Return a saved policy's arrays."""
    with np.load(Path(folder) / "policies" / f"{which}.npz", allow_pickle=False) as data:
        return {name: data[name] for name in data.files if name != "policy.json"}


def assert_same_policy(one, two):
    a, b = policy(one), policy(two)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
