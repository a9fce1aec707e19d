"""What a run is: frozen settings, any of which the command line can override.

This module imports no JAX, so that `--help` and every error about settings come at once.
Numbers marked (traced) are arrays in the training state: they can differ between members of a
population without compiling again. All other settings fix shapes or structure.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from jaxrl.config.algorithms import AMPConfig, OffPolicyConfig, PPOConfig


@dataclass(frozen=True)
class TaskConfig:
    """How the environment is run."""

    episode_length: int | None = None
    """Time limit in environment steps; the environment's own (Brax: 1000) when not given."""
    action_repeat: int = 1
    """Environment steps per action; all counts and limits are in environment steps."""
    reset_pool: int | None = None
    """Fresh start states drawn per cycle; as many as environments when not given."""
    fresh_resets: bool = True
    """Episodes start in states from that pool; or else each environment always returns to the one
    state that it began with, which is what wrappers that cache the first reset do."""
    random_first_age: bool = True
    """Start the first episodes at random ages, so that resets do not come in waves."""
    episodic_reward: bool = False
    """Pay nothing until an episode ends, then the sum of its rewards."""
    on_nan: Literal["restart", "stop"] = "restart"
    """An environment whose observation, reward or ending is non-finite is reset and counted
    (rollout/diverged), with a warning; or stops the run, and its state is written to broken/."""
    async_factor: int = 2
    """Groups of Gymnasium environments: some step while another's actions are computed."""
    randomize: str | None = None
    """Domain randomisation: module:function with (sys, key) -> sys, drawn for every episode."""


@dataclass(frozen=True)
class MotionConfig:
    """Motion capture to follow."""

    clips: Path | None = None
    """A clip, or a folder of them; a small generated one when not given."""
    model: Path | None = None
    """MuJoCo model (MJCF) of the humanoid, with servos on its joints; our own when not given."""
    loop_seconds: float = 0.0
    """Clips that loop are repeated until they last at least this long; planned ones stay."""
    future: tuple[int, ...] = (1,)
    """Frames ahead of now that are seen, at 30 a second."""
    start: Literal["random", "start", "hybrid"] = "random"
    """Where in its clip an episode starts; hybrid: some at the start."""
    hybrid_share: float = 0.5
    """hybrid: share of episodes that start at the start."""
    random_heading: bool = True
    """Turn every episode's clip about the vertical."""
    substeps: int = 3
    """Steps of physics for each frame."""
    residual: bool = True
    """Actions are added to the clip's next pose; or else they span the range of the servos."""
    action_scale: float = 0.5
    """residual: radians that an action of 1 adds."""
    weights: tuple[float, float, float, float] = (0.5, 0.3, 0.1, 0.1)
    """What perfect position, rotation, velocity and spin of the bodies pay per step."""
    scales: tuple[float, float, float, float] = (100.0, 10.0, 0.1, 0.1)
    """How fast each payment falls with the mean squared error."""
    power_coef: float = 0.0005
    """Price of a watt, per step."""
    speeds: tuple[float, float] = (0.7, 1.3)
    """heading: range of the speeds that are asked for, in metres per second."""
    speed_scale: float = 2.0
    """heading: how fast the payment falls with the squared error of the speed."""
    amp_frames: int = 10
    """Frames that a discriminator sees (--amp.weight)."""
    distance: float = 0.25
    """An episode ends when a body is this far from where it should be, in metres."""
    resample_interval: int = 1
    """Epochs after which every clip is tried, and those that failed come up more often; 0: never.
    Settings of --eval do not change these trials."""
    resample_deterministic: bool = True
    """Take the most likely actions in these trials, or sample them."""
    resample_floor: float = 0.3
    """Share of the episodes whose clips are drawn evenly all the same."""
    resample_decay: float = 0.9
    """How much a failure still counts one update later."""


@dataclass(frozen=True)
class PickConfig:
    """An arm that brings a cube to a target (pick_place)."""

    difficulty: Literal["easy", "medium", "hard", "curriculum"] = "hard"
    """Fixed places; the cube drawn; cube and target drawn; drawn ever more widely with success."""
    substeps: int = 5
    """Steps of physics for each of the 25 actions a second."""
    attach_distance: float = 0.05
    """The suction cup takes hold of a cube whose centre is this near, in metres."""
    success_distance: float = 0.05
    """The held cube is at its target when this near, in metres."""
    hold: int = 5
    """Actions for which it must stay there."""
    lift_height: float = 0.08
    """Lifting pays up to this height, in metres."""
    approach_reward: float = 5.0
    """What a metre towards the cube pays."""
    grasp_reward: float = 2.0
    """What taking hold of it pays, and letting go costs."""
    lift_reward: float = 1.0
    """What lifting it pays."""
    place_reward: float = 5.0
    """What a metre towards the target pays."""
    success_reward: float = 10.0
    """What arriving and staying there pays."""
    time_cost: float = 0.02
    """Price of every action."""
    drop_cost: float = 0.5
    """Price of letting go before, and of a cube out of reach."""
    raise_at: float = 0.8
    """curriculum: share of a cycle's episodes that must succeed for a wider spread."""
    raise_by: float = 0.1
    """curriculum: how much wider, as a share of the whole."""


@dataclass(frozen=True)
class NetworkConfig:
    """Actor and critic."""

    hidden: tuple[int, ...] = (64, 64, 64)
    """Widths of the actor's layers."""
    critic_hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of the critic's layers."""
    activation: Literal["swish", "relu", "tanh", "elu", "gelu"] = "swish"
    """Activation function."""
    layer_norm: bool = False
    """Normalise each layer."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the hidden layers; parameters and outputs are always float32."""
    init: Literal["lecun", "orthogonal"] = "lecun"
    """Weight initialisation."""
    distribution: Literal["tanh_normal", "normal", "noisy", "greedy"] = "tanh_normal"
    """Continuous actions: squashed into their range, or clipped at its ends. The other two belong
    to td3 and dqn, which choose them themselves."""
    state_dependent_std: bool = True
    """Let the network choose the spread of actions, or learn one number per action."""
    init_std: float = 0.7
    """Spread of actions at the start."""
    fixed_std: bool = False
    """Leave it there: actions are spread alike from beginning to end."""
    min_std: float = 0.001
    """Spread never falls below this."""
    rnn: Literal["none", "lstm", "gru"] = "none"
    """A recurrent layer after the others: remembers the episode so far."""
    rnn_size: int = 128
    """Its width."""
    rnn_of: Literal["actor", "critic", "both"] = "both"
    """Who has it."""
    module: str | None = None
    """Networks of your own, as module:build; build(spec, config) returns an ActorCritic."""


@dataclass(frozen=True)
class EvalConfig:
    """Measuring the policy, beside training and without touching it."""

    num_envs: int = 128
    """Episodes per evaluation, one in each environment; 0 switches evaluation off."""
    every: int = 0
    """Also evaluate every this many cycles; the end of each epoch always is."""
    deterministic: bool = True
    """Act by the distribution's mode."""

    def samples(self, asked: bool | None) -> bool:
        """Tell whether to sample actions: as asked, or else as the run does."""
        return not self.deterministic if asked is None else asked


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept on disk."""

    save_freq: int = 1
    """Save the full state every this many epochs; the end of a run always is."""
    keep_last: int = 3
    """Newest checkpoints kept, besides the best one."""
    replay: bool = True
    """Keep the replay of off-policy learning too: a resumed run then goes on exactly. Without it
    checkpoints are small, and a resumed run begins by filling it anew."""


@dataclass(frozen=True)
class DataConfig:
    """Recorded episodes to learn from."""

    path: Path | None = None
    """HDF5 file, or a folder of them, in robomimic's or LIBERO's layout."""
    obs_keys: tuple[str, ...] = ()
    """Observations to look at; all of them when none is named."""
    part: str | None = None
    """Only the episodes of this mask (train, valid, ...)."""
    holdout: float = 0.1
    """Share of the episodes kept aside to judge by: the same ones for all seeds."""


@dataclass(frozen=True)
class LogConfig:
    """Where metrics go besides metrics.jsonl."""

    tensorboard: bool = True
    """Write TensorBoard files."""
    wandb: bool = False
    """Send metrics to Weights & Biases (needs the extra jaxrl[wandb])."""
    wandb_project: str = "jaxrl"
    """Its project."""


@dataclass(frozen=True)
class TrainConfig:
    """One training run: epochs × cycles × iterations, each iteration one rollout and learning."""

    env: str = "inverted_pendulum"
    """One of Brax's, one of ours (arena, cartpole, catch, imitation, pendulum, pick_place, recall,
    heading), Gymnasium's as gym:<id>, or your own as module:Class."""
    backend: str | None = None
    """Brax physics: generalized, mjx, positional or spring; the environment's own if not given."""
    algo: str = "ppo"
    """Learning algorithm: ppo, sac, td3 or dqn, or your own as module:make. --ppo holds the
    settings of the first, --offpolicy of all others."""
    num_envs: int = 2048
    """Environments run side by side."""
    seed: int = 0
    """Seed of everything random."""
    epochs: int = 10
    """Epochs; each ends with an evaluation and a checkpoint."""
    cycles: int = 5
    """Cycles per epoch; each is one compiled call and one row of the log."""
    iterations: int = 10
    """Iterations per cycle; each collects one rollout and learns from it."""
    total_steps: int | None = None
    """Environment steps to train for, in whole cycles; takes the place of --epochs."""
    run_dir: Path | None = None
    """Run folder; runs/<preset>-s<seed>-<stamp> when not given."""
    init_from: Path | None = None
    """Start with the policy, critic and normaliser of another run: its folder, or a policy file of
    it, which has no critic. Counters, optimiser and replay begin anew."""
    profile: bool = False
    """Write a trace of one cycle into profile/, for TensorBoard's profiler or ui.perfetto.dev."""
    devices: int | None = None
    """Number of local devices to spread the environments over; all when not given."""
    task: TaskConfig = field(default_factory=TaskConfig)
    motion: MotionConfig = field(default_factory=MotionConfig)
    pick: PickConfig = field(default_factory=PickConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    amp: AMPConfig = field(default_factory=AMPConfig)
    offpolicy: OffPolicyConfig = field(default_factory=OffPolicyConfig)
    data: DataConfig = field(default_factory=DataConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    preset: tyro.conf.Suppress[str] = "custom"
    """Name of the preset this started from."""

    @property
    def learning(self) -> PPOConfig | OffPolicyConfig:
        """Settings of the algorithm that is used."""
        return self.ppo if self.algo == "ppo" else self.offpolicy

    @property
    def offline(self) -> bool:
        """Whether there is no environment, only recorded episodes."""
        return self.offpolicy.rrd_reward_only

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps in one iteration; gradient steps where there is no environment."""
        if self.offline:
            return self.offpolicy.train_batches
        return self.num_envs * self.learning.rollout_length * self.task.action_repeat

    @property
    def total_cycles(self) -> int:
        """Cycles in the whole run."""
        if self.total_steps is None:
            return self.epochs * self.cycles
        return -(-self.total_steps // (self.steps_per_iteration * self.iterations))

    @property
    def total_iterations(self) -> int:
        """Iterations in the whole run."""
        return self.total_cycles * self.iterations
