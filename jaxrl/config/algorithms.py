"""Settings of the learning algorithms; `jaxrl.config` explains what (traced) means."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

T = TypeVar("T")
# Known by these names from the systems they come from: flags without a section before them.
Plain = Annotated[T, tyro.conf.arg(prefix_name=False)]
PLAIN = ("train_batches", "batch_size")


def _rrd(name: str) -> Any:
    """Return the marker of a setting whose flag is --rrd.<name>."""
    return tyro.conf.arg(name=f"rrd.{name}", prefix_name=False)


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation."""

    rollout_length: int = 16
    """Steps per environment and iteration."""
    bptt_horizon: int | None = None
    """Steps per segment: as far as memory is trained through time; the whole rollout if None."""
    update_epochs: int = 4
    """Passes over each rollout."""
    num_minibatches: int = 8
    """Minibatches per pass, each of whole segments."""
    sampling: Literal["sequential", "uniform", "prioritized"] = "sequential"
    """Segments of a minibatch: each once per pass, drawn afresh, or drawn by advantage."""
    prio_alpha: float = 0.8
    """prioritized: how much large advantages count; 0 is uniform (traced)."""
    prio_beta0: float = 0.2
    """prioritized: how far weights make up for that at the start; more later (traced)."""
    accumulate: int = 1
    """Parts a minibatch is taken in, one after the other: the same step in less memory."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Muon takes orthogonal steps in weight matrices (and wants larger learning rates)."""
    learning_rate: float = 3e-4
    """The optimiser's step size (traced)."""
    schedule: Literal["constant", "linear", "cosine", "exponential", "adaptive_kl"] = "constant"
    """How the learning rate changes over the run; adaptive_kl steers by the KL divergence."""
    schedule_floor: float = 0.0
    """Where a falling schedule ends, as a share of the learning rate (traced)."""
    desired_kl: float = 0.01
    """adaptive_kl: the divergence aimed at (traced)."""
    min_learning_rate: float = 1e-5
    """adaptive_kl: lower bound (traced)."""
    max_learning_rate: float = 1e-2
    """adaptive_kl: upper bound (traced)."""
    gamma: float = 0.99
    """Discount per action (traced)."""
    lam: float = 0.95
    """GAE's lambda (traced)."""
    bootstrap_truncated: bool = True
    """Time limits cut an episode, whose value goes on; or else they count as its end (traced)."""
    advantage: Literal["gae", "vtrace"] = "gae"
    """Advantages once per rollout, or for every minibatch by the policy as it is then."""
    rho_clip: float = 1.0
    """vtrace: most that a step's probability ratio may count (traced)."""
    c_clip: float = 1.0
    """vtrace: most that it may count for earlier steps (traced)."""
    clip: float = 0.2
    """Range of the probability ratio (traced)."""
    value_clip: float = 0.0
    """Range of the clipped value loss; 0 means the plain loss (traced)."""
    value_coef: float = 0.5
    """Weight of the value loss (traced)."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus (traced)."""
    entropy_coef_end: float = 1.0
    """Share of it left at the end of the run; it falls linearly."""
    bound_coef: float = 0.0
    """Weight of the loss on action means beyond 1.1 (traced)."""
    l2_init_coef: float = 0.0
    """Weight of the squared distance to the initial parameters (traced)."""
    l2_init_coef_end: float = 1.0
    """Share of it left at the end of the run."""
    teacher: Path | None = None
    """Run folder or policy file of a teacher without memory: stay close to what it would do."""
    teacher_coef: float = 1.0
    """Weight of the KL divergence from the teacher (traced)."""
    teacher_coef_end: float = 0.0
    """Share of it left at the end of the run."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm; 0 switches it off."""
    max_bad_updates: int = 50
    """Stop the run after this many non-finite gradient steps in a row."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    target_kl: float = 0.0
    """Skip an iteration's remaining updates once KL exceeds 1.5 × this; 0: never (traced)."""
    normalize_advantage: Literal["batch", "minibatch", "none"] = "minibatch"
    """Over which samples advantages get mean 0 and standard deviation 1."""
    normalize_obs: bool = True
    """Normalise observations by running statistics."""
    normalize_reward: bool = False
    """Divide rewards by the running deviation of the discounted return (as VecNormalize)."""
    normalize_value: bool = False
    """Let the critic predict normalised returns."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before learning (traced); logs show the plain ones."""

    @property
    def horizon(self) -> int:
        """Steps per segment."""
        return self.bptt_horizon or self.rollout_length

    @property
    def updates(self) -> int:
        """Gradient steps per iteration."""
        return self.update_epochs * self.num_minibatches


@dataclass(frozen=True)
class AMPConfig:
    """A discriminator that pays for moving like the clips do (AMP), with ppo."""

    weight: float = 0.0
    """What style counts in the reward; 0: no discriminator."""
    task_weight: float = 1.0
    """What the task's own reward counts beside it."""
    scale: float = 2.0
    """Style rewards are multiplied by this."""
    loss: Literal["bce", "least_squares"] = "bce"
    """Cross-entropy, or the squared distance from ±1."""
    gradient_penalty: float = 5.0
    """Weight of the squared slope at demonstrations."""
    logit_reg: float = 0.01
    """Weight of the last layer's squared size."""
    weight_decay: float = 1e-4
    """Share by which all weights shrink, times the learning rate."""
    learning_rate: float = 1e-4
    """Adam's step size."""
    hidden: tuple[int, ...] = (1024, 512)
    """Widths of its layers."""
    batch_size: int = 4096
    """Histories of each kind per gradient step."""
    updates: int = 8
    """Gradient steps per iteration."""
    replay: int = 100_000
    """Histories of the agent's that are remembered."""


@dataclass(frozen=True)
class OffPolicyConfig:
    """SAC, TD3 and DQN, and where their rewards come from."""

    rollout_length: int = 1
    """Steps per environment and iteration."""
    train_batches: Plain[int] = 64
    """Gradient steps per iteration."""
    batch_size: Plain[int] = 256
    """Transitions per gradient step."""
    buffer_size: int = 1_000_000
    """Steps kept, of all environments together; rounded down to fit them."""
    warmup: int = 10_000
    """Steps stored before learning begins."""
    gamma: float = 0.99
    """Discount per action (traced)."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before learning (traced); logs show the plain ones."""
    pi_lr: float = 3e-4
    """Adam's step size for the actor (traced)."""
    q_lr: float = 3e-4
    """The same for the critics (traced)."""
    max_grad_norm: float = 0.0
    """Gradients of each network are scaled down to this norm; 0 switches it off."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon."""
    polyak: float = 0.995
    """How much of the target networks is kept when they follow (traced)."""
    target_update_interval: int = 1
    """They follow every this many gradient steps."""
    layer_norm: bool = True
    """Normalise the layers of the critics (dqn: of its network)."""
    normalize_obs: bool = True
    """Normalise observations by running statistics."""
    critic: Literal["mse", "c51"] = "mse"
    """Critics predict a value, or a distribution over values (not for dqn)."""
    num_atoms: int = 101
    """c51: values that the distribution is spread over."""
    v_min: float = -10.0
    """c51: the lowest, in scaled rewards."""
    v_max: float = 10.0
    """c51: the highest."""
    pessimism: Literal["min", "mean"] = "min"
    """Which of the two critics to believe: the lower one, or both."""
    alpha_init: float = 1.0
    """sac: weight of the entropy at the start."""
    alpha_lr: float = 3e-4
    """sac: Adam's step size for it; 0 leaves it as it is (traced)."""
    target_entropy: float = -1.0
    """sac: entropy aimed at, for each number of an action (traced)."""
    exploration_noise: float = 0.1
    """td3: noise on the actions it explores with."""
    policy_delay: int = 2
    """td3: gradient steps of the critics for each one of the actor."""
    target_noise: float = 0.2
    """td3: noise on the actions that targets are taken from (traced)."""
    target_noise_clip: float = 0.5
    """td3: its bound (traced)."""
    double: bool = True
    """dqn: the network chooses the next action, its target network values it."""
    epsilon_end: float = 0.05
    """dqn: share of random actions in the end; it begins with all of them."""
    epsilon_share: float = 0.2
    """dqn: share of the run that it takes to get there."""
    reward: Literal["env", "rrd", "ircr"] = "env"
    """What critics learn from: the environment's rewards; rewards learnt from whole returns by
    randomized return decomposition; or each episode's rank among those seen."""
    r_lr: float = 3e-4
    """rrd: Adam's step size for the reward network (traced)."""
    rrd_batch_size: Annotated[int, _rrd("batch-size")] = 256
    """rrd: steps per gradient step, of batch-size // sample-size episodes."""
    rrd_sample_size: Annotated[int, _rrd("sample-size")] = 64
    """rrd: steps drawn from each episode."""
    rrd_bias_correction: Annotated[bool, _rrd("bias-correction")] = False
    """rrd: leave out the part of the loss that evens out rewards."""
    rrd_reward_only: Annotated[bool, _rrd("reward-only")] = False
    """rrd: learn nothing but the reward, from recorded episodes (--data.path)."""
    rrd_features: Annotated[Literal["none", "quadratic"], _rrd("features")] = "none"
    """rrd: none is the published algorithm. quadratic: ridge regression on episode means of
    (s, a, s − s') and their squares gives most of the reward; the network learns the residual."""
    rrd_whole_return: Annotated[bool, _rrd("whole-return")] = False
    """rrd: compare sums with the return, not means with the return per step."""
    max_bad_updates: int = 50
    """Stop the run after this many non-finite gradient steps in a row."""

    @property
    def horizon(self) -> int:
        """Steps per segment: there is no memory to cut."""
        return self.rollout_length

    @property
    def updates(self) -> int:
        """Gradient steps per iteration."""
        return self.train_batches

    @property
    def keeps_episodes(self) -> bool:
        """Whether rewards come from whole episodes."""
        return self.reward != "env"
