"""Settings of the learning algorithms."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxrl.config import algorithm_names
from jaxrl.config.metadata import Code, Setting, setting

# What a setting needs to have an effect (`only_if`).
_PRIORITIZED = ("ppo.sampling", "prioritized")
_ADAPTIVE_KL = ("ppo.schedule", "adaptive_kl")
_VTRACE = ("ppo.advantage", "vtrace")
_TEACHER = ("ppo.teacher",)
_AMP = ("amp.weight",)
_C51 = ("offpolicy.critic", "c51")
_SAC = ("algo", "sac")
_TD3 = ("algo", "td3")
_DQN = ("algo", "dqn")
_IQL = ("algo", "iql")
_VALUES = ("algo", "sac", "td3", "dqn", "iql")  # whatever learns Q values
_TWIN = ("algo", *algorithm_names.names(lambda info: info.critics == "twin q"))
_RRD = ("offpolicy.reward", "rrd")
# What makes a setting useless (`unless`).
_DATA = ("data.path",)
_REWARD_ONLY = ("rrd.reward_only",)

# Settings that several algorithms have, each with its own default.
_ROLLOUT_LENGTH = Setting("Steps per environment and iteration.", at_least=1)
_UPDATE_EPOCHS = Setting("Passes over each rollout.", at_least=1)
_LEARNING_RATE = Setting("The optimiser's step size.", at_least=0, traced=True)
_STEP_SCHEDULE = Setting("How the learning rate changes over the run.")
_SCHEDULE_FLOOR = Setting(
    "Where a falling schedule ends, as a fraction of the learning rate.",
    at_least=0,
    at_most=1,
    traced=True,
    only_if=(".schedule", "linear", "cosine", "exponential"),
)
_GAMMA = Setting("Discount per action.", at_least=0, at_most=1, traced=True)
_RETURN_LAMBDA = Setting("Lambda of the returns.", at_least=0, at_most=1, traced=True)
_STEP_MINIBATCHES = Setting("Minibatches of single steps per pass.", at_least=1)
_EPSILON_END = Setting(
    "Fraction of random actions at the end; it starts at 1.", at_least=0, at_most=1
)
_EPSILON_FRACTION = Setting(
    "Fraction of the run over which the fraction of random actions falls.", at_least=0, at_most=1
)
_MAX_GRAD_NORM = Setting(
    "Gradients of each network are scaled down to this norm; 0 switches it off.", at_least=0
)
_MAX_NONFINITE_UPDATES = Setting(
    "Stop the run after N consecutive non-finite gradient steps.", at_least=1
)
_ADAM_EPSILON = Setting("Adam's epsilon.", above=0)
_NORMALIZE_OBS = Setting("Normalise observations by running statistics.")
_REWARD_SCALE = Setting(
    "Factor of the rewards that are learnt from; logs show them without it.",
    above=0,
    traced=True,
)


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation."""

    rollout_length: int = setting(16, _ROLLOUT_LENGTH)
    bptt_horizon: int | None = setting(
        None,
        "Steps per segment, through which gradients of a recurrent layer flow; None: the rollout.",
        at_least=1,
    )
    update_epochs: int = setting(4, _UPDATE_EPOCHS)
    num_minibatches: int = setting(8, "Minibatches of segments per pass.", at_least=1)
    batch_size: int | None = setting(
        None,
        "Steps per minibatch; sets --ppo.num-minibatches. Without a recurrent "
        "layer, V-trace and prioritized sampling, single steps are then shuffled.",
        at_least=1,
    )
    sampling: Literal["sequential", "uniform", "prioritized"] = setting(
        "sequential",
        "Segments of a minibatch: each once per pass, sampled uniformly, or sampled by advantage.",
    )
    prio_alpha: float = setting(
        0.8,
        "Exponent of the priorities; 0 is uniform.",
        at_least=0,
        traced=True,
        only_if=_PRIORITIZED,
    )
    prio_beta0: float = setting(
        0.2,
        "Exponent of the importance weights at the start; it rises over the run.",
        at_least=0,
        at_most=1,
        traced=True,
        only_if=_PRIORITIZED,
    )
    accumulate: int = setting(
        1, "Parts a minibatch is split into to save memory: the same gradient step.", at_least=1
    )
    value_parts: int | None = setting(
        None,
        "Parts that the values of a rollout are computed in, to save memory, rounded up to a "
        "divisor of the rows; None: about 2 GiB each, but no smaller than a minibatch.",
        at_least=1,
    )
    optimizer: Literal["adam", "muon"] = setting(
        "adam", "Muon takes orthogonal steps in weight matrices (and needs larger learning rates)."
    )
    learning_rate: float = setting(3e-4, _LEARNING_RATE)
    schedule: Literal["constant", "linear", "cosine", "exponential", "adaptive_kl"] = setting(
        "constant",
        "How the learning rate changes over the run; adaptive_kl follows the KL divergence.",
    )
    schedule_floor: float = setting(0.0, _SCHEDULE_FLOOR)
    desired_kl: float = setting(
        0.01, "Target of the KL divergence.", above=0, traced=True, only_if=_ADAPTIVE_KL
    )
    min_learning_rate: float = setting(
        1e-5, "Lower bound of the learning rate.", above=0, traced=True, only_if=_ADAPTIVE_KL
    )
    max_learning_rate: float = setting(
        1e-2, "Upper bound of the learning rate.", above=0, traced=True, only_if=_ADAPTIVE_KL
    )
    gamma: float = setting(0.99, _GAMMA)
    lam: float = setting(0.95, "GAE's lambda.", at_least=0, at_most=1, traced=True)
    bootstrap_truncated: bool = setting(
        True,
        "Bootstrap from the value of the last state at time limits; otherwise they count as "
        "termination.",
        traced=True,
    )
    advantage: Literal["gae", "vtrace"] = setting(
        "gae", "Advantages once per rollout, or for every minibatch with the current policy."
    )
    rho_clip: float = setting(
        1.0, "Upper bound of a step's probability ratio.", at_least=0, traced=True, only_if=_VTRACE
    )
    c_clip: float = setting(
        1.0,
        "Upper bound of the ratios that carry errors to earlier steps.",
        at_least=0,
        traced=True,
        only_if=_VTRACE,
    )
    clip: float = setting(0.2, "Range of the probability ratio.", above=0, traced=True)
    value_clip: float = setting(
        0.0,
        "Range of the clipped value loss; 0: no clipping.",
        at_least=0,
        traced=True,
        zero_is_static=True,
    )
    value_coef: float = setting(0.5, "Weight of the value loss.", at_least=0, traced=True)
    entropy_coef: float = setting(0.0, "Weight of the entropy bonus.", at_least=0, traced=True)
    entropy_coef_end: float = setting(
        1.0,
        "Fraction of it left at the end of the run; it falls linearly.",
        at_least=0,
        at_most=1,
        only_if=("ppo.entropy_coef",),
    )
    bound_coef: float = setting(
        0.0,
        "Weight of the loss on action means beyond 1.1.",
        at_least=0,
        traced=True,
        zero_is_static=True,
    )
    l2_init_coef: float = setting(
        0.0,
        "Weight of the squared distance to the initial parameters.",
        at_least=0,
        traced=True,
        zero_is_static=True,
    )
    l2_init_coef_end: float = setting(
        1.0,
        "Fraction of it left at the end of the run.",
        at_least=0,
        at_most=1,
        only_if=("ppo.l2_init_coef",),
    )
    teacher: Path | None = setting(
        None,
        "Run folder or policy file of a teacher without a recurrent layer: stay close to its "
        "actions.",
    )
    teacher_coef: float = setting(
        1.0,
        "Weight of the KL divergence from the teacher.",
        at_least=0,
        traced=True,
        only_if=_TEACHER,
    )
    teacher_coef_end: float = setting(
        0.0, "Fraction of it left at the end of the run.", at_least=0, at_most=1, only_if=_TEACHER
    )
    extra_loss: str | None = setting(
        None,
        "A loss of your own, added to PPO's, as module:function of (networks, params, batch, "
        "actor's output, value) that returns a scalar.",
        code=Code("module:function"),
    )
    max_grad_norm: float = setting(
        0.5, _MAX_GRAD_NORM, help="Gradients are scaled down to this norm; 0 switches it off."
    )
    max_nonfinite_updates: int = setting(50, _MAX_NONFINITE_UPDATES)
    adam_epsilon: float = setting(1e-5, _ADAM_EPSILON)
    target_kl: float = setting(
        0.0,
        "Skip an iteration's remaining updates once KL exceeds 1.5 × this; 0: never.",
        at_least=0,
        traced=True,
    )
    normalize_advantage: Literal["batch", "minibatch", "none"] = setting(
        "minibatch", "Over which samples advantages get mean 0 and standard deviation 1."
    )
    advantage_floor: float = setting(
        0.0,
        "Smallest deviation that advantages are divided by: where nothing is rewarded yet, they "
        "are errors of the critic, which should not move the policy.",
        at_least=0,
        unless=("ppo.normalize_advantage", "none"),
    )
    normalize_obs: bool = setting(True, _NORMALIZE_OBS)
    normalize_reward: bool = setting(
        False, "Divide rewards by the running deviation of the discounted return (as VecNormalize)."
    )
    clip_reward: float = setting(
        10.0, "Clip normalised rewards at ± this.", above=0, only_if=("ppo.normalize_reward",)
    )
    normalize_value: bool = setting(False, "Let the critic predict normalised returns.")
    reward_scale: float = setting(1.0, _REWARD_SCALE)

    @property
    def horizon(self) -> int:
        """Steps per segment."""
        return self.bptt_horizon or self.rollout_length

    @property
    def updates(self) -> int:
        """Gradient steps per iteration."""
        return self.update_epochs * self.num_minibatches


class _SingleSteps:
    """What follows from the settings of on-policy algorithms that learn from single steps."""

    rollout_length: int
    update_epochs: int
    num_minibatches: int

    @property
    def horizon(self) -> int:
        """Steps per segment: there is no recurrent layer to cut."""
        return self.rollout_length

    @property
    def updates(self) -> int:
        """Gradient steps per iteration."""
        return self.update_epochs * self.num_minibatches


@dataclass(frozen=True)
class REPPOConfig(_SingleSteps):
    """Relative entropy pathwise policy optimisation."""

    rollout_length: int = setting(128, _ROLLOUT_LENGTH)
    update_epochs: int = setting(8, _UPDATE_EPOCHS)
    num_minibatches: int = setting(64, _STEP_MINIBATCHES)
    learning_rate: float = setting(3e-4, _LEARNING_RATE)
    schedule: Literal["constant", "linear", "cosine", "exponential"] = setting(
        "constant", _STEP_SCHEDULE
    )
    schedule_floor: float = setting(0.0, _SCHEDULE_FLOOR)
    gamma: float = setting(0.99, _GAMMA)
    lam: float = setting(0.95, _RETURN_LAMBDA)
    num_atoms: int = setting(
        151, "Values that the critic's distributions are spread over.", at_least=2
    )
    v_min: float = setting(
        -10.0,
        "The lowest of them, in scaled rewards; train/clipped_targets tells how many returns lie "
        "outside.",
    )
    v_max: float = setting(10.0, "The highest of them.")
    critic_loss: Literal["hl_gauss", "mse"] = setting(
        "hl_gauss",
        "Cross-entropy with a histogram around the return, or the squared error of the mean.",
    )
    aux_coef: float = setting(
        1.0,
        "Weight of the loss by which the critic predicts the reward and its next embedding.",
        at_least=0,
        traced=True,
    )
    kl_bound: float = setting(
        0.1,
        "Above this KL divergence from the policy that acted, the actor only reduces it.",
        above=0,
        traced=True,
    )
    beta_init: float = setting(0.01, "Weight of that divergence at the start.", above=0)
    alpha_init: float = setting(0.01, "Weight of the entropy at the start.", above=0)
    target_entropy: float = setting(-0.5, "Target entropy per action dimension.", traced=True)
    max_grad_norm: float = setting(0.5, _MAX_GRAD_NORM)
    max_nonfinite_updates: int = setting(50, _MAX_NONFINITE_UPDATES)
    adam_epsilon: float = setting(1e-8, _ADAM_EPSILON)
    normalize_obs: bool = setting(True, _NORMALIZE_OBS)
    reward_scale: float = setting(1.0, _REWARD_SCALE)

    @property
    def support(self) -> tuple[float, float, int]:
        """Lowest and highest value of the critic's distributions, and how many there are."""
        return self.v_min, self.v_max, self.num_atoms


@dataclass(frozen=True)
class PQNConfig(_SingleSteps):
    """Q-learning without replay and target networks (PQN), for discrete actions."""

    rollout_length: int = setting(32, _ROLLOUT_LENGTH)
    update_epochs: int = setting(2, _UPDATE_EPOCHS)
    num_minibatches: int = setting(16, _STEP_MINIBATCHES)
    learning_rate: float = setting(2.5e-4, _LEARNING_RATE)
    schedule: Literal["constant", "linear", "cosine", "exponential"] = setting(
        "linear", _STEP_SCHEDULE
    )
    schedule_floor: float = setting(0.0, _SCHEDULE_FLOOR)
    gamma: float = setting(0.99, _GAMMA)
    lam: float = setting(0.65, _RETURN_LAMBDA)
    epsilon_end: float = setting(0.05, _EPSILON_END)
    epsilon_fraction: float = setting(0.2, _EPSILON_FRACTION)
    layer_norm: bool = setting(
        True,
        "Normalise the hidden layers, unless --network.norm does: values may diverge otherwise.",
    )
    max_grad_norm: float = setting(10.0, _MAX_GRAD_NORM)
    max_nonfinite_updates: int = setting(50, _MAX_NONFINITE_UPDATES)
    adam_epsilon: float = setting(1e-8, _ADAM_EPSILON)
    normalize_obs: bool = setting(True, _NORMALIZE_OBS)
    reward_scale: float = setting(1.0, _REWARD_SCALE)


@dataclass(frozen=True)
class AMPConfig:
    """Adversarial motion priors: a discriminator rewards motion like that of the clips."""

    weight: float = setting(
        0.0,
        "Weight of the style reward; 0: no discriminator.",
        at_least=0,
        only_if=("algo", "ppo"),
    )
    task_weight: float = setting(1.0, "Weight of the task's own reward.", at_least=0, only_if=_AMP)
    scale: float = setting(2.0, "Factor of the style reward.", above=0, only_if=_AMP)
    loss: Literal["bce", "least_squares"] = setting(
        "bce", "Cross-entropy, or the squared distance from ±1.", only_if=_AMP
    )
    gradient_penalty: float = setting(
        5.0, "Weight of the squared gradient at demonstrations.", at_least=0, only_if=_AMP
    )
    logit_reg: float = setting(
        0.01, "Weight of the squared norm of the last layer.", at_least=0, only_if=_AMP
    )
    weight_decay: float = setting(
        1e-4, "Weight decay, times the learning rate.", at_least=0, only_if=_AMP
    )
    learning_rate: float = setting(1e-4, "Adam's step size.", at_least=0, only_if=_AMP)
    hidden: tuple[int, ...] = setting(
        (1024, 512), "Widths of its layers.", at_least=1, only_if=_AMP
    )
    batch_size: int = setting(
        4096, "Histories of each kind per gradient step.", at_least=1, only_if=_AMP
    )
    updates: int = setting(8, "Gradient steps per iteration.", at_least=1, only_if=_AMP)
    replay: int = setting(
        100_000, "Capacity of the agent's replay of histories.", at_least=1, only_if=_AMP
    )


@dataclass(frozen=True)
class OffPolicyConfig:
    """SAC, TD3, DQN, IQL and behaviour cloning, and where their rewards come from."""

    rollout_length: int = setting(1, _ROLLOUT_LENGTH, unless=_DATA)
    train_batches: int = setting(64, "Gradient steps per iteration.", at_least=1)
    batch_size: int = setting(
        256, "Transitions per gradient step.", at_least=1, unless=_REWARD_ONLY
    )
    buffer_size: int = setting(
        1_000_000,
        "Capacity of the replay buffer in steps of all environments together; rounded down to fit "
        "them.",
        at_least=1,
    )
    replay_dtype: Literal["float32", "float16"] = setting(
        "float32",
        "Type of stored observations: float16 takes half the memory and keeps three digits.",
        unless=_DATA,
    )
    warmup: int = setting(10_000, "Steps stored before learning begins.", at_least=0, unless=_DATA)
    gamma: float = setting(0.99, _GAMMA, only_if=_VALUES, unless=_REWARD_ONLY)
    n_step: int = setting(
        1,
        "Rewards that a target adds up before it bootstraps; fewer at the end of an episode.",
        at_least=1,
        only_if=("algo", "sac", "td3", "dqn"),
        unless=_DATA,
    )
    reward_scale: float = setting(1.0, _REWARD_SCALE, only_if=_VALUES, unless=_REWARD_ONLY)
    pi_lr: float = setting(
        3e-4,
        "Adam's step size for the actor.",
        at_least=0,
        traced=True,
        only_if=("algo", "sac", "td3", "iql", "bc"),
        unless=_REWARD_ONLY,
    )
    q_lr: float = setting(
        3e-4,
        "Adam's step size for the critics.",
        at_least=0,
        traced=True,
        only_if=_VALUES,
        unless=_REWARD_ONLY,
    )
    max_grad_norm: float = setting(0.0, _MAX_GRAD_NORM)
    adam_epsilon: float = setting(1e-8, _ADAM_EPSILON)
    weight_decay: float = setting(
        0.0,
        "Weight decay of actor and critics, times the learning rate (AdamW).",
        at_least=0,
        only_if=("algo", "sac", "td3", "dqn", "iql", "bc"),
        unless=_REWARD_ONLY,
    )
    polyak: float = setting(
        0.995,
        "Weight of the old target parameters in the moving average.",
        at_least=0,
        at_most=1,
        traced=True,
        only_if=_VALUES,
        unless=_REWARD_ONLY,
    )
    target_update_interval: int = setting(
        1,
        "Gradient steps between updates of the target networks.",
        at_least=1,
        only_if=_VALUES,
        unless=_REWARD_ONLY,
    )
    critic_norm: Literal["none", "layer", "rms", "batch"] = setting(
        "layer",
        "Normalise the layers of the critics (dqn: of its network, unless --network.norm does): "
        "over their units, or each unit over a batch (not for dqn).",
        weights_of="critic",
        only_if=_VALUES,
        unless=_REWARD_ONLY,
    )
    unit_weights: bool = setting(
        False,
        "Scale the incoming weights of every hidden unit of actor and critics to norm 1 after each "
        "gradient step: for networks whose layers are normalised.",
        unless=_REWARD_ONLY,
    )
    normalize_obs: bool = setting(True, _NORMALIZE_OBS)
    normalize_reward: bool = setting(
        False,
        "Divide rewards by the running deviation of the discounted return, or by more, so that "
        "returns lie within ±5.",
        only_if=("algo", "sac", "td3", "dqn"),
        unless=_DATA,
    )
    critic: Literal["mse", "c51"] = setting(
        "mse",
        "Critics predict a value, or a distribution over values (not for dqn).",
        only_if=("algo", "sac", "td3"),
        unless=_REWARD_ONLY,
    )
    num_atoms: int = setting(
        101, "Values that the distribution is spread over.", at_least=2, only_if=_C51
    )
    v_min: float = setting(-10.0, "The lowest value, in scaled rewards.", only_if=_C51)
    v_max: float = setting(10.0, "The highest value, in scaled rewards.", only_if=_C51)
    pessimism: Literal["min", "mean"] = setting(
        "min", "How the values of the two critics are combined.", only_if=_TWIN, unless=_REWARD_ONLY
    )
    alpha_init: float = setting(1.0, "Weight of the entropy at the start.", above=0, only_if=_SAC)
    alpha_lr: float = setting(
        3e-4,
        "Adam's step size for the weight of the entropy; 0: a fixed weight.",
        at_least=0,
        traced=True,
        only_if=_SAC,
    )
    target_entropy: float = setting(
        -1.0, "Target entropy per action dimension.", traced=True, only_if=_SAC
    )
    exploration_noise: float = setting(
        0.1, "Standard deviation of the noise on actions of the rollout.", at_least=0, only_if=_TD3
    )
    exploration_noise_min: float | None = setting(
        None,
        "Each environment samples its standard deviation between this and exploration-noise at the "
        "start of every episode; None: all have exploration-noise.",
        at_least=0,
        only_if=_TD3,
        unless=_DATA,
    )
    exploration_hold: int = setting(
        1,
        "Most steps for which a rollout holds a sample of its noise: n with a probability in "
        "proportion to 1 / n²; 1: a new one at every step.",
        at_least=1,
        only_if=("algo", "sac", "td3"),
        unless=_DATA,
    )
    policy_delay: int | None = setting(
        None,
        "Gradient steps of the critics per step of the actor (sac: and of the entropy's weight); "
        "None: 2 for td3, 1 for sac.",
        at_least=1,
        only_if=("algo", "sac", "td3"),
        unless=_REWARD_ONLY,
    )
    target_noise: float = setting(
        0.2,
        "Standard deviation of the noise on target actions.",
        at_least=0,
        traced=True,
        only_if=_TD3,
    )
    target_noise_clip: float = setting(
        0.5, "Bound of that noise.", at_least=0, traced=True, only_if=_TD3
    )
    bc_alpha: float = setting(
        0.0,
        "TD3+BC: weight of Q values beside the squared distance from recorded actions (2.5 in the "
        "paper); 0: TD3 without that distance.",
        at_least=0,
        traced=True,
        zero_is_static=True,
        only_if=_TD3,
    )
    cql_alpha: float = setting(
        0.0,
        "Conservative Q-learning: weight of the gap between the values of all actions and of "
        "recorded ones (5 in the paper); 0: none.",
        at_least=0,
        traced=True,
        zero_is_static=True,
        only_if=("algo", "sac", "dqn"),
    )
    expectile: float = setting(
        0.7,
        "Expectile of Q values that V approaches; 0.5 is their mean.",
        above=0,
        below=1,
        traced=True,
        only_if=_IQL,
    )
    awr_beta: float = setting(
        3.0,
        "Inverse temperature of the weights exp(beta × advantage) of recorded actions.",
        at_least=0,
        traced=True,
        only_if=_IQL,
    )
    double: bool = setting(
        True,
        "Double DQN: the network selects the next action, the target network evaluates it.",
        only_if=_DQN,
    )
    epsilon_end: float = setting(0.05, _EPSILON_END, only_if=_DQN)
    epsilon_fraction: float = setting(0.2, _EPSILON_FRACTION, only_if=_DQN)
    reward: Literal["env", "rrd", "ircr"] = setting(
        "env",
        "What critics learn from: the rewards of the environment or data; rewards learnt from "
        "episode returns by randomized return decomposition; or each episode's rank among those "
        "seen.",
    )
    r_lr: float = setting(
        3e-4, "Adam's step size for the reward network.", at_least=0, traced=True, only_if=_RRD
    )
    max_nonfinite_updates: int = setting(50, _MAX_NONFINITE_UPDATES)

    @property
    def horizon(self) -> int:
        """Steps per segment: there is no recurrent layer to cut."""
        return self.rollout_length

    @property
    def updates(self) -> int:
        """Gradient steps per iteration."""
        return self.train_batches

    @property
    def keeps_episodes(self) -> bool:
        """Whether rewards come from episode returns."""
        return self.reward != "env"


@dataclass(frozen=True)
class RRDConfig:
    """Rewards learnt from episode returns, by randomized return decomposition."""

    batch_size: int = setting(
        256,
        "Steps per gradient step, of batch-size // sample-size episodes.",
        at_least=1,
        only_if=_RRD,
    )
    sample_size: int = setting(64, "Steps sampled from each episode.", at_least=1, only_if=_RRD)
    bias_correction: bool = setting(False, "Leave out the variance term of the loss.", only_if=_RRD)
    reward_only: bool = setting(
        False, "Learn nothing but the reward, from recorded episodes (--data.path).", only_if=_RRD
    )
    features: Literal["none", "quadratic"] = setting(
        "none",
        "none is the published algorithm. quadratic: ridge regression on episode means of "
        "(s, a, s − s') and their squares gives most of the reward; the network learns the "
        "residual.",
        only_if=_RRD,
    )
    whole_return: bool = setting(
        False, "Compare sums with the return, not means with the return per step.", only_if=_RRD
    )

    @property
    def episodes(self) -> int:
        """Episodes per gradient step."""
        return self.batch_size // self.sample_size


# Settings of what `algorithms.on_policy` composes; PPO learns from segments, and has its own.
OnPolicyConfig = REPPOConfig | PQNConfig
LearningConfig = PPOConfig | OnPolicyConfig | OffPolicyConfig
