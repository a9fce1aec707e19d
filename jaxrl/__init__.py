"""jaxrl: environments, policy and learning as pure functions in one compiled JAX program."""

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.config import TrainConfig
    from jaxrl.runtime.fitting import fit, resume
    from jaxrl.runtime.policies import load_policy
    from jaxrl.runtime.reward_files import load_reward

__version__ = "0.1.0"
__all__ = ["TrainConfig", "fit", "load_policy", "load_reward", "resume"]

_SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler"


def _avoid_waiting_for_ever() -> None:
    """Tell XLA, before it is first used, not to order operations for running side by side.

    On processors, physics with loops of unknown length (MuJoCo's solver) can otherwise end with
    every thread idle, waiting for a result that nobody computes: with a thousand environments
    nearly always, and not cured by the same option of a single program. Training was no slower for
    it where we looked. An XLA that does not know a flag refuses to start: only known ones get it.
    """
    known = (0, 10) <= tuple(map(int, version("jaxlib").split(".")[:2])) <= (0, 12)
    flags = os.environ.get("XLA_FLAGS", "")
    if known and _SCHEDULER not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_SCHEDULER}=false".strip()


_avoid_waiting_for_ever()


def __getattr__(name: str) -> Any:
    """Import on first use, so that `python -m jaxrl.train --help` does not wait for JAX."""
    if name == "load_policy":
        from jaxrl.runtime.policies import load_policy

        return load_policy
    if name == "load_reward":
        from jaxrl.runtime.reward_files import load_reward

        return load_reward
    if name in ("fit", "resume"):
        from jaxrl.runtime import fitting

        return getattr(fitting, name)
    if name == "TrainConfig":
        from jaxrl.config import TrainConfig

        return TrainConfig
    raise AttributeError(f"module 'jaxrl' has no attribute '{name}'")
