"""Very small runs of every kind, which processes train together or one alone."""

_ALL = (
    "--cycles 2 --epochs 2 --eval.num-envs 8 --network.hidden 8 --network.critic-hidden 8 "
    "--task.episode-length 20 --log.no-tensorboard"
)
_PPO = (
    f"cartpole {_ALL} --num-envs 16 --iterations 2 --ppo.rollout-length 8 --ppo.num-minibatches 2"
)
_REPLAY = (
    f"{_ALL} --num-envs 4 --iterations 16 --total-steps None --offpolicy.buffer-size 256 "
    "--offpolicy.warmup 32 --offpolicy.train-batches 2 --offpolicy.batch-size 8"
)
_GYMNASIUM = (
    f"{_ALL} --num-envs 8 --iterations 2 --ppo.rollout-length 8 --ppo.num-minibatches 2 "
    "--eval.no-deterministic"
)
RUNS = {
    name: flags.split()
    for name, flags in {
        "ppo": _PPO,
        "lstm": f"{_PPO} --network.rnn lstm",
        "rrd": f"rrd-quick {_REPLAY} --rrd.batch-size 8 --rrd.sample-size 4",
        "population": f"{_PPO} --num-seeds 4",
        "gym": f"gym-cartpole {_GYMNASIUM} --log.episodes",
        "gym-replay": f"gym-cartpole {_REPLAY} --algo dqn --offpolicy.reward ircr",
    }.items()
}
CONTINUED = "gym-replay"  # after its end, by the processes that trained it
# Without evaluation, which is a program of its own.
PLAIN = [*RUNS["ppo"], "--eval.num-envs", "0"]
