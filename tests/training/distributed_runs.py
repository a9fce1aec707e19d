"""Very small runs of every kind, which processes train together or one alone."""

_ALL = (
    "--cycles 2 --epochs 2 --eval.num-envs 8 --network.hidden 8 --network.critic-hidden 8 "
    "--task.episode-length 20 --log.no-tensorboard"
)
_PPO = (
    f"cartpole {_ALL} --num-envs 16 --iterations 2 --ppo.rollout-length 8 --ppo.num-minibatches 2 "
    "--ppo.update-epochs 2"
)
_REPLAY = (
    f"{_ALL} --num-envs 8 --iterations 8 --total-steps None --offpolicy.buffer-size 512 "
    "--offpolicy.warmup 32 --offpolicy.train-batches 1 --offpolicy.batch-size 8"
)
_GYMNASIUM = (
    f"{_ALL} --num-envs 8 --iterations 2 --ppo.rollout-length 8 --ppo.num-minibatches 2 "
    "--ppo.update-epochs 2 --eval.no-deterministic"
)
_FLAGS = {
    "ppo": _PPO,
    "lstm": f"{_PPO} --network.rnn lstm --network.rnn-size 4",
    "rrd": f"rrd-quick {_REPLAY} --rrd.batch-size 8 --rrd.sample-size 4",
    "population": f"{_PPO} --num-seeds 8",
    "gym": f"gym-cartpole {_GYMNASIUM} --log.episodes",
    "gym-replay": f"gym-cartpole {_REPLAY} --algo dqn --offpolicy.reward ircr",
}
UNEVALUATED = ["--eval.num-envs", "0"]
EVALUATED = ("ppo", "gym")
_SHORT = ["--epochs", "1"]
RUNS = {
    name: [*flags.split(), *(() if name in EVALUATED else UNEVALUATED)]
    for name, flags in _FLAGS.items()
}
for _name in ("lstm", "population", "gym"):
    RUNS[_name] += _SHORT
CONTINUED = "gym-replay"  # after its end, by the processes that trained it
# Without evaluation, which is a program of its own: for every layout of processes and devices.
PLAIN = [*RUNS["ppo"], *UNEVALUATED]
_SAC = f"pendulum --algo sac {_REPLAY}".split()
LAYOUTS = {
    "plain-ppo": PLAIN,
    "plain-lstm": RUNS["lstm"],
    "plain-sac": [*_SAC, *UNEVALUATED, *_SHORT],
    "plain-population": RUNS["population"],
}
