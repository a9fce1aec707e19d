"""What a run is: frozen settings, any of which the command line can override.

This module imports no JAX, so that `--help` and every error about settings come at once.
Each setting is declared once (`jaxrl.config.metadata`). Traced ones are arrays in the training
state: members of a population may differ in them without compiling again. All others fix shapes or
structure.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from jaxrl.config import algorithm_names, clip_split, env_names
from jaxrl.config.algorithms import (
    AMPConfig,
    LearningConfig,
    OffPolicyConfig,
    PPOConfig,
    PQNConfig,
    REPPOConfig,
    RRDConfig,
)
from jaxrl.config.metadata import INT64_MAX, UINT32_MAX, Code, Section, section, setting

_RECURRENT = ("network.rnn", "lstm", "gru", "mingru")
_REPLAY = ("algo", *algorithm_names.OFF_POLICY)
_STD = ("algo", *algorithm_names.names(lambda info: info.learns_std))
_OPEN = ("algo", *algorithm_names.names(lambda info: not info.chooses_distribution))
_CRITIC = ("algo", *algorithm_names.names(lambda info: bool(info.critics)))
_GYMNASIUM = ("env", env_names.ANY_GYMNASIUM_TASK)
_PHYSICS = (
    "env",
    env_names.ANY_BRAX_TASK,
    env_names.ANY_PLAYGROUND_TASK,
    *env_names.MOTION,
    *env_names.ARM,
)


@dataclass(frozen=True)
class TaskConfig(Section):
    """How the environment is run."""

    episode_length: int | None = setting(
        None,
        "Time limit in environment steps; None: the environment's own (Brax: 1000).",
        at_least=1,
    )
    action_repeat: int = setting(
        1,
        "Environment steps per action; all counts and limits are in environment steps.",
        at_least=1,
        unless=(*_GYMNASIUM, *env_names.MOTION),
    )
    reset_pool: int | None = setting(
        None,
        "Start states sampled per cycle; None: one per environment.",
        at_least=1,
        unless=_GYMNASIUM,
    )
    fresh_resets: bool = setting(
        True,
        "Start episodes in states from that pool; otherwise each environment always returns to its "
        "first state, as wrappers that cache the first reset do.",
        unless=_GYMNASIUM,
    )
    random_first_age: bool = setting(
        True, "Start the first episodes at random ages, so that resets do not come in waves."
    )
    frame_stack: int = setting(
        1,
        "Observations of the last N environment steps, observed together.",
        at_least=1,
        unless=_GYMNASIUM,
    )
    episodic_reward: bool = setting(
        False,
        "Give no reward until an episode ends, then the sum of its rewards.",
        unless=_GYMNASIUM,
    )
    on_nan: Literal["restart", "stop"] = setting(
        "restart",
        "What to do with an environment whose observation, reward or ending is non-finite: reset "
        "it, count it (rollout/diverged) and warn; or stop the run and write its state to "
        "nonfinite/.",
    )
    num_agents: int | None = setting(
        None,
        "Agents in each environment of the arena, or of your own if it takes num_agents; None: "
        "the environment's own.",
        at_least=1,
        limit=env_names.MOST_AGENTS,
        only_if=("env", *env_names.AGENTS),
    )
    async_factor: int = setting(
        2,
        "Groups of Gymnasium environments: some step while another's actions are computed.",
        at_least=1,
        only_if=_GYMNASIUM,
    )
    randomize: str | None = setting(
        None,
        "Domain randomisation: module:function with (sys, key) -> sys, for every episode; or "
        "playground: the randomiser that a task of MuJoCo Playground brings along.",
        only_if=_PHYSICS,
        code=Code("module:function", is_own=lambda name: name != env_names.OWN_RANDOMIZER),
        plays=True,
    )
    config: tuple[str, ...] = setting(
        (),
        "Settings of the task itself, as ctrl_dt=0.02 or reward_config.scales.orientation=-2.",
        only_if=("env", env_names.ANY_PLAYGROUND_TASK),
    )
    impl: Literal["jax", "warp"] = setting(
        "jax",
        "Implementation of MuJoCo's physics; warp needs the package warp-lang and an NVIDIA GPU.",
        only_if=("env", env_names.ANY_PLAYGROUND_TASK),
    )
    assets: Path | None = setting(
        None,
        "Folder of mujoco_menagerie, whose robots most of these tasks use; None: the one in "
        "JAXRL_MENAGERIE, or in Playground's package.",
        only_if=("env", env_names.ANY_PLAYGROUND_TASK),
        free_on_resume=True,
        plays=True,
        local=True,
    )


@dataclass(frozen=True)
class MotionConfig(Section):
    """Motion capture to follow."""

    clips: Path | None = setting(
        None, "A clip, or a folder of clips; None: a small generated one.", plays=True
    )
    split: clip_split.Split = setting(
        "all",
        "Which of these clips to use, by experiments/imitation/split.json: those for training, "
        "those for testing, or all.",
    )
    allow_test_clips: bool = setting(
        False, "Train on clips that are for testing, too: results on them are no longer unseen."
    )
    model: Path | None = setting(
        None,
        "MuJoCo model (MJCF) of the humanoid, with servos on its joints; None: our own.",
        plays=True,
    )
    loop_seconds: float = setting(
        0.0,
        "Repeat clips that loop until they last at least this long; planned ones stay.",
        at_least=0,
    )
    crop_seconds: float = setting(
        0.0,
        "Cut clips that are longer into even crops of at most this many seconds, each a clip of "
        "its own, as walk[0] and walk[1]; 0: never. 10 is puffer-phc's measure.",
        at_least=0,
    )
    max_clips: int = setting(
        0,
        "Clips on the device at once; the CPU holds the others, and another set is chosen every "
        "--motion.resample-interval epochs. 0: all.",
        at_least=0,
        only_if=("env", "imitation"),
    )
    future: tuple[int, ...] = setting((1,), "Observed frames ahead of now, at 30 Hz.", at_least=1)
    start: Literal["random", "start", "hybrid"] = setting(
        "random", "Where in its clip an episode starts; hybrid: a fraction of them at the start."
    )
    hybrid_fraction: float = setting(
        0.5,
        "Fraction of episodes that start at the start of their clip.",
        at_least=0,
        at_most=1,
        only_if=("motion.start", "hybrid"),
    )
    random_heading: bool = setting(True, "Rotate every episode's clip about the vertical.")
    plans: bool = setting(
        True, "Follow the plans of clips that have one; otherwise, the captured motion alone."
    )
    mirror: bool = setting(
        False,
        "Mirror every other episode's clip at random: left becomes right. Evaluations play the "
        "clips as they are.",
    )
    speed: float = setting(
        0.0,
        "Play each episode's clip up to this fraction slower or faster: 0.1 is ±10 %. Clips with "
        "plans cannot be. Evaluations play the clips as they are.",
        at_least=0,
        below=1,
        only_if=("env", "imitation"),
    )
    substeps: int = setting(3, "Physics steps per frame.", at_least=1)
    residual: bool = setting(
        True, "Add actions to the clip's next pose; otherwise they span the range of the servos."
    )
    action_scale: float = setting(
        0.5, "Radians that an action of 1 adds.", above=0, only_if=("motion.residual",)
    )
    weights: tuple[float, float, float, float] = setting(
        (0.5, 0.3, 0.1, 0.1),
        "Reward per step of perfect position, rotation, velocity and angular velocity of the "
        "bodies.",
        at_least=0,
    )
    scales: tuple[float, float, float, float] = setting(
        (100.0, 10.0, 0.1, 0.1),
        "How fast each of these rewards falls with the mean squared error.",
        at_least=0,
    )
    power_coef: float = setting(0.0005, "Cost of a watt, per step.", at_least=0)
    speeds: tuple[float, float] = setting(
        (0.7, 1.3), "Range of the target speeds, in metres per second.", only_if=("env", "heading")
    )
    command_every: float = setting(
        0.0,
        "Give another direction and speed after this many seconds on average; 0: one command for "
        "each episode.",
        at_least=0,
        only_if=("env", "heading"),
    )
    speed_scale: float = setting(
        2.0,
        "How fast the reward falls with the squared error of the speed.",
        above=0,
        only_if=("env", "heading"),
    )
    amp_frames: int = setting(
        10, "Frames that the discriminator sees.", at_least=1, only_if=("amp.weight",)
    )
    distance: float = setting(
        0.25, "End an episode when a body is this far from its target, in metres.", above=0
    )
    push: float = setting(
        0.0,
        "Push the root at random times: change its velocity by this many metres per second in a "
        "random horizontal direction. 0: never.",
        at_least=0,
        only_if=("env", "imitation"),
    )
    push_every: float = setting(
        2.0, "Seconds between pushes on average.", above=0, only_if=("motion.push",)
    )
    push_trials: bool = setting(
        False, "Push in evaluations and trials of clips, too.", only_if=("motion.push",)
    )
    fallen_starts: float = setting(
        0.0,
        "Fraction of the episodes that begin lying on the ground: the clip waits until the body "
        "stands near its pose.",
        at_least=0,
        at_most=1,
        only_if=("env", "imitation"),
    )
    recovery_seconds: float = setting(
        5.0,
        "Longest time that a clip waits; episodes do not terminate meanwhile.",
        above=0,
        only_if=("motion.fallen_starts",),
    )
    resample_interval: int = setting(
        1,
        "Epochs between trials of every clip, after which clips that failed are sampled more "
        "often; 0: never. Settings of --eval do not change these trials.",
        at_least=0,
    )
    resample_deterministic: bool = setting(
        True,
        "Take the most likely actions in these trials, or sample them.",
        only_if=("motion.resample_interval",),
    )
    resample_floor: float = setting(
        0.3,
        "Fraction of the episodes whose clips are sampled uniformly all the same.",
        at_least=0,
        at_most=1,
        only_if=("motion.resample_interval",),
    )
    resample_decay: float = setting(
        0.9,
        "How much a failure still counts one update later.",
        at_least=0,
        at_most=1,
        only_if=("motion.resample_interval",),
    )


@dataclass(frozen=True)
class PickConfig:
    """An arm that brings a cube to a target (pick_place)."""

    difficulty: Literal["easy", "medium", "hard", "curriculum"] = setting(
        "hard",
        "Fixed places; a random cube; a random cube and target; a spread that widens with success.",
    )
    substeps: int = setting(
        5, "Physics steps per action, of which there are 25 a second.", at_least=1
    )
    attach_distance: float = setting(
        0.05, "The suction cup grasps a cube whose centre is this near, in metres.", above=0
    )
    success_distance: float = setting(
        0.05, "A held cube is at its target when this near, in metres.", above=0
    )
    hold: int = setting(5, "Actions for which it must stay there.", at_least=1)
    lift_height: float = setting(0.08, "Lifting is rewarded up to this height, in metres.", above=0)
    approach_reward: float = setting(5.0, "Reward of a metre towards the cube.", at_least=0)
    grasp_reward: float = setting(
        2.0, "Reward of grasping the cube, and cost of releasing it.", at_least=0
    )
    lift_reward: float = setting(1.0, "Reward of lifting it.", at_least=0)
    place_reward: float = setting(5.0, "Reward of a metre towards the target.", at_least=0)
    success_reward: float = setting(10.0, "Reward of arriving and staying there.", at_least=0)
    time_cost: float = setting(0.02, "Cost of every action.", at_least=0)
    drop_cost: float = setting(
        0.5, "Cost of releasing the cube before, and of a cube out of reach.", at_least=0
    )
    raise_at: float = setting(
        0.8,
        "Fraction of a cycle's episodes that must succeed for a wider spread.",
        at_least=0,
        at_most=1,
        only_if=("pick.difficulty", "curriculum"),
    )
    raise_by: float = setting(
        0.1,
        "How much wider, as a fraction of the full spread.",
        at_least=0,
        at_most=1,
        only_if=("pick.difficulty", "curriculum"),
    )


@dataclass(frozen=True)
class NetworkConfig:
    """Actor and critic."""

    hidden: tuple[int, ...] = setting(
        (64, 64, 64),
        "Widths of the actor's layers.",
        at_least=1,
        weights_of="actor",
        unless=("rrd.reward_only",),
    )
    critic_hidden: tuple[int, ...] = setting(
        (128, 128, 128),
        "Widths of the critic's layers.",
        at_least=1,
        weights_of="critic",
        only_if=_CRITIC,
    )
    activation: Literal["swish", "relu", "tanh", "elu", "gelu"] = setting(
        "swish", "Activation function.", weights_of="actor"
    )
    norm: Literal["none", "layer", "rms"] = setting(
        "none",
        "Normalise each layer before its activation: by mean and deviation, or by its root mean "
        "square.",
        weights_of="actor",
    )
    residual_blocks: int = setting(
        0,
        "Residual blocks after the layers of actor, critics and a learnt reward (not of reppo's "
        "critic), each of two layers, the first four times as wide.",
        at_least=0,
        weights_of="actor",
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "Arithmetic of the hidden layers; parameters and outputs are always float32."
    )
    init: Literal["lecun", "orthogonal"] = setting("lecun", "Weight initialisation.")
    distribution: Literal["tanh_normal", "normal", "noisy", "greedy"] = setting(
        "tanh_normal",
        "Continuous actions: squashed into their range, or clipped at its ends.",
        reserved=("noisy", "greedy"),  # of td3 and bc, and of dqn
        weights_of="actor",
        only_if=_OPEN,
        continuous=True,
    )
    state_dependent_std: bool = setting(
        True,
        "Let the network output the standard deviation of actions, or learn one number per action.",
        weights_of="actor",
        only_if=_OPEN,
        unless=("network.sde",),
        continuous=True,
    )
    init_std: float = setting(
        0.7,
        "Standard deviation of actions at the start.",
        above=0,
        only_if=_STD,
        continuous=True,
    )
    fixed_std: bool = setting(
        False,
        "Keep that standard deviation for the whole run.",
        only_if=_STD,
        unless=("network.sde",),
        continuous=True,
    )
    min_std: float = setting(
        0.001,
        "Lower bound of the standard deviation.",
        above=0,
        only_if=_STD,
        continuous=True,
    )
    clip_obs: float = setting(10.0, "Clip normalised observations at ± this.", above=0)
    sde: bool = setting(
        False,
        "State-dependent exploration (gSDE): rollouts perturb actions by a random linear function "
        "of the actor's last features, with learnt scales.",
        weights_of="actor",
        only_if=("algo", *algorithm_names.names(lambda info: info.sde)),
        unless=("data.path",),
        continuous=True,
    )
    sde_sample_freq: int | None = setting(
        None,
        "Steps after which an environment samples that function again, besides at the start of an "
        "episode; None: those of a rollout.",
        at_least=1,
        only_if=("network.sde",),
    )
    rnn: Literal["none", "lstm", "gru", "mingru"] = setting(
        "none",
        "Recurrent layer after the others. On a GPU, mingru computes all steps of a segment in "
        "parallel.",
        weights_of="actor",
        only_if=("algo", *algorithm_names.names(lambda info: info.recurrent)),
    )
    rnn_size: int = setting(128, "Width of the recurrent layer.", at_least=1, only_if=_RECURRENT)
    rnn_timescale: float = setting(
        0.0,
        "Steps that the recurrent layer remembers at the start of training, at most (chrono "
        "initialisation), 2 or more; 0: a few.",
        at_least=0,
        only_if=_RECURRENT,
    )
    rnn_layers: int = setting(
        1,
        "Number of recurrent layers, one after the other.",
        at_least=1,
        weights_of="actor",
        only_if=_RECURRENT,
    )
    rnn_of: Literal["actor", "critic", "both"] = setting(
        "both", "Which network has it.", weights_of="actor", only_if=_RECURRENT
    )
    module: str | None = setting(
        None,
        "Networks of your own, as module:build; build(spec, config) returns an ActorCritic.",
        weights_of="actor",
        code=Code("module:build"),
        plays=True,
    )


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation of the policy, which leaves training as it is."""

    num_envs: int = setting(
        128,
        "Episodes per evaluation, one in each environment; 0 switches evaluation off.",
        at_least=0,
    )
    every: int = setting(
        0,
        "Evaluate every N cycles, in addition to the end of each epoch; 0: only then.",
        at_least=0,
        compiled=False,
    )
    every_steps: int = setting(
        0,
        "Also evaluate every N environment steps, at the end of the cycle; 0: never.",
        at_least=0,
        limit=INT64_MAX,
        compiled=False,
    )
    deterministic: bool = setting(True, "Act by the distribution's mode.")
    randomize: bool = setting(
        False,
        "Randomise the physics of evaluations too.",
        only_if=("task.randomize",),
    )

    def sample_actions(self, stochastic: bool | None) -> bool:
        """Tell whether to sample actions; None: as the run's own evaluations do."""
        return not self.deterministic if stochastic is None else stochastic


@dataclass(frozen=True)
class CheckpointConfig:
    """What is stored on disk."""

    save_freq: int = setting(
        1, "Save the full state every N epochs, and at the end of the run.", at_least=1
    )
    every_steps: int = setting(
        0,
        "Also save every N environment steps, at the end of the cycle; 0: at epochs only.",
        at_least=0,
        limit=INT64_MAX,
    )
    keep: int | Literal["all"] = setting(
        3, "Number of newest checkpoints to keep, besides the best one; or all.", at_least=1
    )
    replay: bool = setting(
        True,
        "Save the replay buffer too: a resumed run then continues exactly. Without it checkpoints "
        "are small, and a resumed run starts with an empty buffer.",
        only_if=_REPLAY,
    )


@dataclass(frozen=True)
class DataConfig:
    """Recorded episodes to learn from, instead of environments."""

    path: Path | None = setting(
        None,
        "HDF5 file, or a folder of them, in robomimic's or LIBERO's layout. --env then evaluates "
        "the policy; --task.episodic-reward replaces recorded rewards by their sum at the end.",
    )
    obs_keys: tuple[str, ...] = setting((), "Observations to read; all of them if none is named.")
    part: str | None = setting(None, "Read only the episodes of this mask (train, valid, ...).")
    holdout: float = setting(
        0.1,
        "Fraction of the episodes held out for evaluation: the same ones for all seeds.",
        at_least=0,
        below=1,
    )
    normalize_returns: bool = setting(
        True,
        "Scale the rewards that values are learnt from so that the returns of the data span 1,000.",
    )


@dataclass(frozen=True)
class LogConfig:
    """Where metrics go besides metrics.jsonl."""

    tensorboard: bool = setting(True, "Write TensorBoard files.", compiled=False)
    episodes: bool = setting(
        False,
        "Write each training episode to monitor.csv, as SB3's Monitor does, and log means over the "
        "last 100. Takes 8 bytes on the device for each step of a cycle.",
    )
    video_epochs: int = setting(
        0,
        "Record five seconds of the best policy every N epochs: a GIF in videos/, and an image in "
        "TensorBoard; 0: never.",
        at_least=0,
        compiled=False,
    )
    wandb: bool = setting(
        False,
        "Send metrics and the final policy to Weights & Biases (needs the extra `wandb`).",
        compiled=False,
    )
    wandb_project: str = setting(
        "jaxrl", "Project in Weights & Biases.", only_if=("log.wandb",), compiled=False
    )
    mlflow: bool = setting(
        False,
        "Send metrics and the final policy to MLflow, at MLFLOW_TRACKING_URI (needs the extra "
        "`mlflow`).",
        compiled=False,
    )
    mlflow_experiment: str = setting(
        "jaxrl", "Experiment in MLflow.", only_if=("log.mlflow",), compiled=False
    )
    sink: str | None = setting(
        None,
        "A logger of your own, as module:make; make(config, folder) returns a function of "
        "(environment steps, row of the log).",
        compiled=False,
        code=Code("module:make"),
    )


@dataclass(frozen=True)
class TrainConfig:
    """One training run: epochs × cycles × iterations, each iteration one rollout and learning."""

    env: str = setting(
        "inverted_pendulum",
        "One of Brax's, one of ours (arena, cartpole, catch, delayed_match, imitation, pendulum, "
        "pick_place, recall, heading), MuJoCo Playground's as playground:<name>, Gymnasium's as "
        "gym:<id>, or your own as module:Class; with --data.path it only evaluates, and offline "
        "stands for none.",
        code=Code("module:Class", is_own=env_names.imports_code),
        plays=True,
    )
    env_args: tuple[str, ...] = setting(
        (),
        "Arguments of the environment's class, Brax's or your own, as wind=0.3 or name=hills.",
        only_if=("env", env_names.ANY_BRAX_TASK, *env_names.CLASSIC),
        unless=("data.path",),
    )
    backend: str | None = setting(
        None,
        "Brax physics: generalized, mjx, positional or spring; None: the environment's own.",
        only_if=("env", env_names.ANY_BRAX_TASK),
    )
    physics: Literal["fast", "stock"] = setting(
        "fast",
        "Functions that MuJoCo's physics (backend mjx, Playground, imitation, pick and place) is "
        "stepped with: this package's, or MJX's own. Both compute the same.",
        only_if=_PHYSICS,
        unless=("data.path",),
    )
    algo: str = setting(
        "ppo",
        "Learning algorithm: ppo, reppo, pqn, sac, td3 or dqn; from recorded episodes "
        "(--data.path) also iql and bc; or your own as module:make. --ppo, --reppo and --pqn hold "
        "the settings of the first three, --offpolicy of all others. A preset is that of the "
        "algorithm, if there is one.",
        code=Code("module:make", is_own=env_names.is_custom),
    )
    num_envs: int = setting(
        2048, "Number of parallel environments.", at_least=1, unless=("data.path",)
    )
    seed: int = setting(
        0,
        "Seed of all random numbers.",
        at_least=0,
        limit=UINT32_MAX,
        compiled=False,
        identity=True,
    )
    epochs: int = setting(
        10,
        "Epochs; each ends with an evaluation and a checkpoint.",
        at_least=1,
        free_on_resume=True,
    )
    cycles: int = setting(
        5, "Cycles per epoch; each is one compiled call and one row of the log.", at_least=1
    )
    iterations: int = setting(
        10, "Iterations per cycle; each collects one rollout and learns from it.", at_least=1
    )
    total_steps: int | None = setting(
        None,
        "Environment steps to train for, rounded up to cycles; replaces --epochs.",
        at_least=1,
        limit=INT64_MAX,
        free_on_resume=True,
    )
    run_dir: Path | None = setting(
        None,
        "Run folder; None: runs/<preset>-s<seed>-<stamp>.",
        compiled=False,
        free_on_resume=True,
        identity=True,
        local=True,
    )
    init_from: Path | None = setting(
        None,
        "Start with the policy, critic and normaliser of another run: its folder, or a policy file "
        "or zoo:NAME, which have no critic. Counters, optimiser and replay start from scratch.",
        compiled=False,
        free_on_resume=True,
    )
    reward_from: Path | None = setting(
        None,
        "Learn from the rewards that another run has learnt (rewards/best.npz of its folder, or "
        "such a file) instead of the environment's or the data's.",
    )
    profile: bool = setting(
        False,
        "Write a trace of one cycle into profile/, for TensorBoard's profiler or ui.perfetto.dev.",
        compiled=False,
        free_on_resume=True,
    )
    devices: int | None = setting(
        None,
        "Number of local devices to spread the environments over; None: all.",
        at_least=1,
        compiled=False,
        free_on_resume=True,
    )
    task: TaskConfig = section(TaskConfig)
    motion: MotionConfig = section(MotionConfig, only_if=("env", *env_names.MOTION))
    pick: PickConfig = section(PickConfig, only_if=("env", *env_names.ARM))
    network: NetworkConfig = section(NetworkConfig)
    ppo: PPOConfig = section(PPOConfig, only_if=("algo", "ppo"))
    reppo: REPPOConfig = section(REPPOConfig, only_if=("algo", "reppo"))
    pqn: PQNConfig = section(PQNConfig, only_if=("algo", "pqn"))
    amp: AMPConfig = section(AMPConfig, only_if=("env", *env_names.MOTION))
    offpolicy: OffPolicyConfig = section(OffPolicyConfig, only_if=_REPLAY)
    rrd: RRDConfig = section(RRDConfig, only_if=_REPLAY)
    data: DataConfig = section(DataConfig, only_if=_REPLAY)
    eval: EvalConfig = section(EvalConfig, free_on_resume=True)
    checkpoint: CheckpointConfig = section(CheckpointConfig, compiled=False, free_on_resume=True)
    log: LogConfig = section(LogConfig, free_on_resume=True)
    preset: tyro.conf.Suppress[str] = setting(
        "custom",
        "Name of the preset this started from.",
        compiled=False,
        free_on_resume=True,
        identity=True,
    )

    def __post_init__(self) -> None:
        """Let --ppo.batch-size set the number of minibatches, if it divides the rollout."""
        ppo, size = self.ppo, self.ppo.batch_size
        if size is None or not all(
            isinstance(count, int) and count > 0
            for count in (size, self.num_envs, ppo.rollout_length)
        ):
            return  # not given, or an error that validation names
        steps = self.rows * ppo.rollout_length
        if steps % size:
            return
        ppo = replace(ppo, num_minibatches=steps // size)
        plain = ppo.advantage == "gae" and ppo.sampling != "prioritized"
        if ppo.bptt_horizon is None and self.network.rnn == "none" and plain:
            ppo = replace(ppo, bptt_horizon=1)
        object.__setattr__(self, "ppo", ppo)

    @property
    def rows(self) -> int:
        """Agents of all environments."""
        return self.num_envs * (self.task.num_agents or env_names.AGENTS.get(self.env, 1))

    @property
    def algo_section(self) -> str:
        """Section that holds the settings of the algorithm that is used."""
        return algorithm_names.section(self.algo)

    @property
    def learning(self) -> LearningConfig:
        """Settings of the algorithm that is used."""
        return getattr(self, self.algo_section)

    @property
    def offline(self) -> bool:
        """Whether the run learns from recorded episodes instead of environments."""
        return self.data.path is not None or self.env == env_names.OFFLINE

    @property
    def evaluates(self) -> bool:
        """Whether policies are evaluated in an environment."""
        return self.eval.num_envs > 0 and self.env != env_names.OFFLINE

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps in one iteration; gradient steps of recorded episodes."""
        if self.offline:
            return self.offpolicy.train_batches
        return self.num_envs * self.learning.rollout_length * self.task.action_repeat

    @property
    def total_cycles(self) -> int:
        """Cycles in the run."""
        if self.total_steps is None:
            return self.epochs * self.cycles
        return -(-self.total_steps // (self.steps_per_iteration * self.iterations))

    def is_epoch_end(self, cycles: int) -> bool:
        """Tell whether an epoch ends after that many cycles; the last one may be short."""
        return cycles % self.cycles == 0 or cycles == self.total_cycles

    @property
    def total_iterations(self) -> int:
        """Iterations in the run."""
        return self.total_cycles * self.iterations
