"""jaxrl: environments, policy and learning as pure functions in one compiled JAX program."""

from typing import TYPE_CHECKING, Any

from jaxrl.utils import xla_flags

if TYPE_CHECKING:
    from jaxrl.config import TrainConfig
    from jaxrl.policies.load import load_policy
    from jaxrl.policies.reward_files import load_reward
    from jaxrl.training.fit import fit, resume

__version__ = "0.1.0"
__all__ = ["TrainConfig", "fit", "load_policy", "load_reward", "resume"]

xla_flags.add(xla_cpu_enable_concurrency_optimized_scheduler=False)


def __getattr__(name: str) -> Any:
    """Import on first use, so that `python -m jaxrl.train --help` does not wait for JAX."""
    if name == "load_policy":
        from jaxrl.policies.load import load_policy

        return load_policy
    if name == "load_reward":
        from jaxrl.policies.reward_files import load_reward

        return load_reward
    if name in ("fit", "resume"):
        from jaxrl.training import fit as fitting

        return getattr(fitting, name)
    if name == "TrainConfig":
        from jaxrl.config import TrainConfig

        return TrainConfig
    raise AttributeError(f"module 'jaxrl' has no attribute '{name}'")
