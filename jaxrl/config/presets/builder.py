"""How a preset is built: from changes of the default configuration, by dotted path."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxrl.config import TrainConfig, overrides

_DEFAULTS = {"num_envs": 4096, "cycles": 2}


def preset(env: str, steps: float, *changes: Mapping[str, Any]) -> TrainConfig:
    """Build a configuration that trains for about `steps` environment steps.

    Args:
      env: name of the environment.
      steps: environment steps, rounded up to iterations.
      changes: settings by dotted path, as flags without `--`; later ones replace earlier ones.
    """
    config = TrainConfig(env=env)
    for each in (_DEFAULTS, *changes):
        config = overrides.changed(config, each)
    per_iteration = config.steps_per_iteration * config.epochs * config.cycles
    return replace(config, iterations=math.ceil(steps / per_iteration))


def under(section: str, **settings: Any) -> dict[str, Any]:
    """Return settings of one section by dotted path."""
    return {f"{section}.{name}": value for name, value in settings.items()}
