"""Record the metrics of one tiny run of every kind, or compare with an earlier recording.

python tools/golden_runs.py before.json
... change code that must not change numbers ...
python tools/golden_runs.py after.json --against before.json

Numbers are compared bit by bit. They depend on the machine and the version of JAX, so recordings
are made and compared on one machine, and not committed.
"""

import argparse
import hashlib
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from jaxrl import train
from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode

_SMALL = "--devices 1 --network.hidden 8 --network.critic-hidden 8 --epochs 2 --cycles 2"
_PPO = (
    f"{_SMALL} --num-envs 8 --iterations 2 --eval.num-envs 4 --ppo.rollout-length 8 "
    "--ppo.num-minibatches 2 --ppo.update-epochs 2 --task.episode-length 20"
)
_REPLAY = (
    f"{_SMALL} --num-envs 4 --iterations 12 --eval.num-envs 4 --task.episode-length 8 "
    "--offpolicy.buffer-size 256 --offpolicy.warmup 32 --offpolicy.train-batches 2 "
    "--offpolicy.batch-size 8 "
    "--total-steps None"
)
_OFFLINE = (
    "--devices 1 --network.critic-hidden 8 --epochs 2 --cycles 2 --iterations 3 "
    "--total-steps None --offpolicy.train-batches 2 --data.path {data}"
)
_RRD = "--rrd.batch-size 8 --rrd.sample-size 4"
_AMP = "--amp.hidden 8 --amp.batch-size 8 --amp.updates 2 --amp.replay 16"
RUNS = {
    "ppo-mlp": f"cartpole {_PPO}",
    "ppo-continuous": f"pendulum {_PPO}",
    "ppo-lstm": f"memory {_PPO} --ppo.bptt-horizon 4 --network.rnn-size 8",
    "ppo-segments": (
        f"memory {_PPO} --ppo.bptt-horizon 4 --network.rnn-size 8 --ppo.sampling prioritized "
        "--ppo.advantage vtrace"
    ),
    "arena": f"arena-small {_PPO} --network.rnn-size 8",
    "pqn": (
        f"pqn-catch {_SMALL} --num-envs 8 --iterations 2 --eval.num-envs 4 "
        "--pqn.rollout-length 8 --pqn.num-minibatches 2"
    ),
    "reppo": (
        f"reppo-pendulum {_SMALL} --num-envs 8 --iterations 2 --eval.num-envs 4 "
        "--reppo.rollout-length 8 --reppo.num-minibatches 2 --reppo.update-epochs 2 "
        "--task.episode-length 20"
    ),
    "sac": f"rrd-quick {_REPLAY} --offpolicy.reward env --task.no-episodic-reward",
    "sac-c51": (
        f"rrd-quick {_REPLAY} --offpolicy.reward env --task.no-episodic-reward "
        "--offpolicy.critic c51"
    ),
    "td3": f"rrd-quick {_REPLAY} --algo td3 --offpolicy.reward env --task.no-episodic-reward",
    "sac-n-step": (
        f"rrd-quick {_REPLAY} --offpolicy.reward env --task.no-episodic-reward --offpolicy.n-step 3"
    ),
    "dqn": f"dqn-cartpole {_REPLAY}",
    "dqn-images": f"dqn-catch {_REPLAY}",
    "rrd": f"rrd-quick {_REPLAY} {_RRD}",
    "rrd-quadratic": f"rrd-quick {_REPLAY} {_RRD} --rrd.features quadratic --rrd.bias-correction",
    "ircr": f"rrd-quick {_REPLAY} --offpolicy.reward ircr",
    "offline": f"rrd-offline {_RRD} {_OFFLINE}",
    "iql": f"iql --network.hidden 8 --offpolicy.batch-size 8 {_OFFLINE}",
    "bc": f"bc --network.hidden 8 --offpolicy.batch-size 8 {_OFFLINE}",
    "amp": f"amp-walk-tiny {_PPO} {_AMP}",
    "imitate": f"imitate-walk-tiny {_PPO}",
    "pick-place": (
        f"pick-place-easy {_PPO} --pick.difficulty curriculum --pick.raise-at 0 "
        "--task.episode-length 8"
    ),
    "population": (
        f"cartpole {_PPO} --num-seeds 2 --vary ppo.learning-rate=1e-3,3e-3 ppo.gamma=0.9,0.99"
    ),
    "population-sac": (
        f"rrd-quick {_REPLAY} --offpolicy.reward env --task.no-episodic-reward --num-seeds 2"
    ),
    "gymnasium": f"gym-cartpole {_PPO} --task.async-factor 2",
}


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Record tiny runs of every kind, and compare them."
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier recording")
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    chosen = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        data = _write_episodes(Path(folder) / "data.hdf5")
        for name in chosen.only:
            found[name] = _record(name, Path(folder) / name, data)
            chosen.recording.write_text(json.dumps(found, indent=1))
    if chosen.against is None:
        return 0
    return _compare(json.loads(chosen.against.read_text()), found)


def _record(name: str, folder: Path, data: Path) -> dict[str, list]:
    """Train one run; return its rows without times, and a digest of its final policies."""
    words = shlex.split(RUNS[name].format(data=data))
    status = train.main([*words, "--run-dir", str(folder), "--log.no-tensorboard"])
    if status:
        raise SystemExit(f"{name} ended with status {status}")
    rows = {}
    for file in sorted(folder.rglob("metrics.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        rows[str(file.relative_to(folder))] = [
            {k: v for k, v in line.items() if not k.startswith(("time/", "memory/"))}
            for line in lines
        ]
    for file in sorted(folder.rglob("final.npz")):
        with np.load(file, allow_pickle=False) as arrays:
            digests = [
                hashlib.sha256(arrays[n].tobytes()).hexdigest()[:16]
                for n in sorted(arrays.files)
                if not n.endswith(".json")
            ]
        rows[str(file.relative_to(folder))] = sorted(digests)
    return rows


def _write_episodes(path: Path) -> Path:
    random, episodes = np.random.default_rng(0), []
    for _ in range(20):
        state = random.normal(size=(9, 2)).astype(np.float32)
        action = random.uniform(-1, 1, (8, 1)).astype(np.float32)
        episodes.append(Episode({"state": state[:-1]}, {"state": state[1:]}, action, state[:-1, 0]))
    hdf5.write(path, episodes, {}, {})
    return path


def _compare(before: dict, after: dict) -> int:
    """Print the differences; return the number of runs that differ."""
    differ = 0
    for name, files in after.items():
        wrong = [f for f in files if _text(files[f]) != _text(before[name].get(f))]
        differ += bool(wrong)
        print(f"{name}: {'equal' if not wrong else 'DIFFERS in ' + ', '.join(wrong[:3])}")
        for file in wrong[:1]:
            for old, new in zip(before[name].get(file) or [], files[file], strict=False):
                if isinstance(old, dict) and old != new:
                    keys = [k for k in {**old, **new} if old.get(k) != new.get(k)]
                    print("  ", {k: (old.get(k), new.get(k)) for k in sorted(keys)[:8]})
                    break
    return differ


def _text(rows: list | None) -> str:
    return json.dumps(rows, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
