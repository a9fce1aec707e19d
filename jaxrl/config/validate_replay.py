"""Can this configuration of off-policy learning be run? Part of `config_checks`."""

from jaxrl.config import TrainConfig, env_names


def replay_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check that batches can be shared out, and that there is room for what they are drawn from."""
    c, problems = config.offpolicy, []
    rows = config.num_envs * env_names.AGENTS.get(config.env, 1)
    if config.num_envs % shards or c.batch_size % shards:
        problems.append(
            f"--num-envs {config.num_envs} and --batch-size {c.batch_size} must both divide over "
            f"{shards} devices: use {near(config.num_envs, shards)} and "
            f"{near(c.batch_size, shards)}, or fewer --devices."
        )
    if c.buffer_size < rows * c.rollout_length:
        problems.append(
            f"--offpolicy.buffer-size {c.buffer_size} is less than one rollout: use at least "
            f"{rows * c.rollout_length}."
        )
    if c.warmup > c.buffer_size:
        problems.append(
            f"--offpolicy.warmup {c.warmup} is more than --offpolicy.buffer-size {c.buffer_size} "
            "can hold."
        )
    if c.rrd_batch_size < c.rrd_sample_size:
        problems.append(
            f"--rrd.batch-size {c.rrd_batch_size} is less than one episode's "
            f"--rrd.sample-size {c.rrd_sample_size}."
        )
    if c.rrd_bias_correction and c.rrd_sample_size < 2:
        problems.append("--rrd.bias-correction needs --rrd.sample-size 2 or more.")
    if c.critic == "c51" and (c.num_atoms < 2 or c.v_min >= c.v_max):
        problems.append("--offpolicy.critic c51 needs 2 atoms or more, and v-min below v-max.")
    if c.critic == "c51" and config.algo == "dqn":
        problems.append("--offpolicy.critic c51 is for sac and td3: use mse with dqn.")
    if c.reward == "rrd" and c.rrd_batch_size // c.rrd_sample_size % shards:
        problems.append(
            f"--rrd.batch-size {c.rrd_batch_size} // --rrd.sample-size {c.rrd_sample_size} do not "
            f"divide over {shards} devices."
        )
    if config.network.rnn != "none":
        problems.append(f"--network.rnn: --algo {config.algo} learns from single steps: none.")
    return problems


def data_problems(config: TrainConfig, shards: int) -> list[str]:
    """Check that recorded episodes and learning from them alone go together."""
    problems, alone = [], config.offline
    if alone != (config.env == env_names.OFFLINE):
        problems.append(f"--rrd.reward-only goes with --env {env_names.OFFLINE}, and only with it.")
    if not alone and config.data.path is not None:
        problems.append("--data.path is for --rrd.reward-only: see the preset rrd-offline.")
    if alone and (config.algo == "ppo" or config.offpolicy.reward != "rrd"):
        problems.append("--rrd.reward-only needs --algo sac and --offpolicy.reward rrd.")
    if alone and config.eval.num_envs:
        problems.append("--rrd.reward-only has no environment to play in: use --eval.num-envs 0.")
    if alone and shards > 1:
        problems.append("--rrd.reward-only runs on one device: use --devices 1.")
    if not 0 <= config.data.holdout < 1:
        problems.append(
            f"--data.holdout must be at least 0 and below 1, not {config.data.holdout}."
        )
    return problems


def near(number: int, unit: int) -> str:
    """Name the multiples of `unit` next to a number."""
    two = {number // unit * unit, -(-number // unit) * unit} - {0}
    return " or ".join(str(n) for n in sorted(two))
