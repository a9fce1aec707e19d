"""The environments of this package, each a Brax environment in a module of its own.

`jaxrl.envs.make` builds them by name; `PROBES` are tiny ones with known answers. What a task adds
to training, evaluation and reports goes through `jaxrl.envs.hooks`.
"""

from typing import TYPE_CHECKING

from jaxrl.utils import lazy

if TYPE_CHECKING:
    from jaxrl.envs.tasks.arena import Arena
    from jaxrl.envs.tasks.catch import Catch
    from jaxrl.envs.tasks.classic import CartPole, Pendulum
    from jaxrl.envs.tasks.heading import Heading
    from jaxrl.envs.tasks.imitation import Imitation
    from jaxrl.envs.tasks.probes import PROBES
    from jaxrl.envs.tasks.recall import DelayedMatch, Recall

__all__ = [
    "PROBES",
    "Arena",
    "CartPole",
    "Catch",
    "DelayedMatch",
    "Heading",
    "Imitation",
    "Pendulum",
    "Recall",
]

__getattr__ = lazy.exports(
    __name__,
    {
        "PROBES": "probes",
        "Arena": "arena",
        "CartPole": "classic",
        "Catch": "catch",
        "DelayedMatch": "recall",
        "Heading": "heading",
        "Imitation": "imitation",
        "Pendulum": "classic",
        "Recall": "recall",
    },
)
