"""jaxrl: environments, policy and learning as pure functions in one compiled JAX program.

fit, resume                train, or continue a run
load_policy, load_reward   use what was trained
presets, TrainConfig       named settings, and the settings of a run
callbacks                  code of your own between cycles, evaluations and epochs
"""

from typing import TYPE_CHECKING

from jaxrl.utils import lazy, xla_flags

if TYPE_CHECKING:
    from jaxrl import callbacks, presets
    from jaxrl.config import TrainConfig
    from jaxrl.policies.load import load_policy
    from jaxrl.policies.reward_files import load_reward
    from jaxrl.training.fit import fit, resume

__version__ = "0.1.0"
__all__ = [
    "TrainConfig",
    "callbacks",
    "fit",
    "load_policy",
    "load_reward",
    "presets",
    "resume",
]

xla_flags.add(xla_cpu_enable_concurrency_optimized_scheduler=False)
xla_flags.allocate_as_needed()

# Imported on first use, so that `python -m jaxrl.train --help` does not wait for JAX.
__getattr__ = lazy.exports(
    __name__,
    {
        "TrainConfig": "config",
        "callbacks": None,
        "fit": "training.fit",
        "load_policy": "policies.load",
        "load_reward": "policies.reward_files",
        "presets": None,
        "resume": "training.fit",
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
