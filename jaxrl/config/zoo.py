"""The names of the zoo: `zoo:NAME` stands for a run folder inside the package.

The folder has the settings (config.json), a policy (policies/best.npz) and a card (card.json):
how the policy was trained, and the return that it reaches.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from jaxrl.config import serialization
from jaxrl.errors import UserError, nearest
from jaxrl.utils import atomic_io

PREFIX = "zoo:"
FOLDER = Path(__file__).parent.parent / "zoo"
CARD = "card.json"


@dataclass(frozen=True)
class Card:
    """How a policy of the zoo was trained, and what it reaches as it is stored."""

    about: str
    """What is seen, in a few words."""
    command: str
    """Command that trained it."""
    commit: str
    """Commit of jaxrl that trained it."""
    trained_on: str
    """Machine that trained it."""
    env_steps: int
    """Environment steps up to this policy."""
    mean_return: float
    """Mean return of `episodes` episodes."""
    std_return: float
    """Standard deviation of these returns."""
    episodes: int
    """Number of episodes that were evaluated."""
    evaluated_on: str
    """Machine that evaluated it."""
    precision: str
    """Data type of the stored weights; they are float32 when loaded."""
    float32_return: float
    """Mean return of the same episodes with the weights as they were trained."""
    note: str = ""
    """What else to know."""

    @property
    def figures(self) -> str:
        """Mean and standard deviation of the return; two digits of the deviation say enough."""
        spread = self.std_return
        digits = max(0, 1 - math.floor(math.log10(spread))) if spread > 0 else 0
        return f"{self.mean_return:,.{digits}f} ± {spread:,.{digits}f}"


def names() -> list[str]:
    """Return the names of all policies of the zoo."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def card(name: str) -> Card:
    """Return the card of a policy.

    Args:
      name: one of `names()`.
    """
    file = resolve(Path(PREFIX + name)) / CARD
    data = serialization.parse(atomic_io.read_text(file), str(file))
    return serialization.read(Card, data, str(file))


def is_name(path: Path) -> bool:
    """Return whether a path is written as zoo:NAME."""
    return str(path).startswith(PREFIX)


def resolve(path: Path) -> Path:
    """Return the folder of zoo:NAME; other paths as they are.

    Raises:
      UserError: the zoo has no policy of this name.
    """
    if not is_name(path):
        return path
    name = str(path).removeprefix(PREFIX)
    if name not in names():
        raise UserError(
            f"The zoo has no policy '{name}'.{nearest(name, names(), PREFIX)} "
            f"It has {', '.join(names())}."
        )
    return FOLDER / name


def output_folder(path: Path) -> Path:
    """Return the folder for results: that of the run, or runs/zoo-NAME for zoo:NAME."""
    return Path("runs", f"zoo-{resolve(path).name}") if is_name(path) else path
