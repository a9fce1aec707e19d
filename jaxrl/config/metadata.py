"""How a setting is declared: once, with its default, help, range and role, as field metadata.

`setting` declares a field and `section` a group of fields; `jaxrl.config.settings` reads them. The
command line, validation, resume, populations, the trace cache and the docs all follow from these
declarations.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

INT32_MAX = 2**31 - 1  # arrays are indexed, and iterations counted, by int32
INT64_MAX = 2**63 - 1  # environment steps are Python integers; log files hold them as int64
UINT32_MAX = 2**32 - 1


@dataclass(frozen=True)
class Code:
    """How a setting names a class or function of the user's own, whose module is imported."""

    form: str
    """As in `module:build`."""
    is_own: Callable[[str], bool] = lambda name: True
    """Whether a value names the user's code and not a part of this package."""


@dataclass(frozen=True)
class Setting:
    """The facts about a setting besides its type and its default."""

    help: str
    at_least: float | None = None
    """Bounds of a number, or of every number of a tuple."""
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    limit: int = INT32_MAX
    """Largest integer that its counter can hold."""
    traced: bool = False
    """An array of the training state: members of one compiled program may differ in it."""
    zero_is_static: bool = False
    """A traced setting that leaves a part of the program out when it is 0."""
    compiled: bool = True
    """Compiled programs depend on it, by its value or, if traced, by its presence."""
    free_on_resume: bool = False
    """May differ between a run and its continuation."""
    identity: bool = False
    """Tells one run from another, and has no part in how a population is compiled or labelled."""
    weights_of: Literal["actor", "critic"] | None = None
    """Weights of this network are useless to a run that differs in it (--init-from)."""
    only_if: tuple[str, ...] = ()
    """Has an effect only if another setting, named first, has one of the values named after it;
    without values: if it is neither None, False nor 0. ".name" is one of its own section."""
    unless: tuple[str, ...] = ()
    """Has no effect, and is an error, if another setting has such a value."""
    continuous: bool = False
    """Has an effect only if actions are continuous."""
    reserved: tuple[str, ...] = ()
    """Values of its type that algorithms choose, and users cannot."""
    code: Code | None = None
    """It names code of the user's own. No file decides that such code is imported."""
    is_path: bool = False
    """It names a file or folder; `walk` reads this from the type."""
    plays: bool = False
    """Code or files that playing a trained policy needs too; others are read by training only.
    Paths to such files are stored as absolute ones: policies are played from other folders."""
    local: bool = False
    """Where files are, which each machine may know by another name."""

    @property
    def short_help(self) -> str:
        """Help without what the setting needs, for a run that has it."""
        return self.help.removesuffix(".") + (" (traced)." if self.traced else ".")

    @property
    def full_help(self) -> str:
        """Help with what the declaration says besides."""
        needs = f" Needs {condition_text(self.only_if)}." if self.only_if else ""
        return self.short_help + needs

    @property
    def has_range(self) -> bool:
        """Whether some numbers are out of range."""
        return any(bound is not None for bound in self._bounds)

    @property
    def _bounds(self) -> tuple[float | None, ...]:
        return self.at_least, self.above, self.at_most, self.below

    @property
    def requirement(self) -> str:
        """The range in words, as in `--ppo.gamma must lie between 0 and 1`."""
        if self.at_least is not None and self.at_most is not None:
            return f"must lie between {self.at_least} and {self.at_most}"
        words = ("at least", "greater than", "at most", "below")
        bounds = zip(words, self._bounds, strict=True)
        return "must be " + " and ".join(f"{word} {x}" for word, x in bounds if x is not None)

    @property
    def range(self) -> str:
        """The range in symbols, as in `≥ 0, ≤ 1`; empty if there is none."""
        bounds = zip("≥>≤<", self._bounds, strict=True)
        return ", ".join(f"{sign} {x}" for sign, x in bounds if x is not None)

    def problem(self, value: Any) -> str | None:
        """Return what a value of the right type must be instead, or None if it is in range."""
        if value is None or isinstance(value, str) or not self.has_range:
            return None
        values = value if isinstance(value, tuple) else (value,)
        if not values:
            return "needs one or more values"
        return None if all(map(self._contains, values)) else self.requirement

    def _contains(self, x: float) -> bool:
        return (
            (self.at_least is None or x >= self.at_least)
            and (self.above is None or x > self.above)
            and (self.at_most is None or x <= self.at_most)
            and (self.below is None or x < self.below)
        )


def setting(default: Any, help: str | Setting, /, **facts: Any) -> Any:
    """Declare a field of a configuration; `facts` are fields of `Setting`.

    What several groups have in common is a `Setting`, which takes the place of the help.
    """
    declared = Setting(help, **facts) if isinstance(help, str) else replace(help, **facts)
    metadata = {"help": declared.short_help, "setting": declared}  # tyro reads "help"
    return dataclasses.field(default=default, metadata=metadata)


def section(cls: type, **facts: Any) -> Any:
    """Declare a group of settings; `compiled` and `free_on_resume` hold for all of them.

    With `only_if` a flag of the group is an error, not just without effect, in other runs.
    """
    declared = Setting(help=(cls.__doc__ or "").strip(), **facts)
    return dataclasses.field(default_factory=cls, metadata={"setting": declared})


def flag(path: str) -> str:
    """Return the command-line flag of a setting or section."""
    return "--" + path.replace("_", "-")


def choices(declared: Setting, hint: Any) -> tuple[str, ...]:
    """Return the words that a setting of this type may be given; none if it takes others."""
    words = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
    return tuple(word for word in words if word not in declared.reserved)


def condition_text(condition: tuple[str, ...]) -> str:
    """Return a condition as flags, as in `--algo sac or td3`."""
    path, *values = condition
    return " ".join([flag(path), " or ".join(values)]).strip()


@functools.cache
def walk(cls: type) -> dict[str, Setting]:
    """Return every setting of a configuration by its dotted path, in declaration order."""
    hints, settings = typing.get_type_hints(cls), {}
    for each in dataclasses.fields(cls):
        declared, hint = each.metadata["setting"], hints[each.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            for name, inner in walk(hint).items():
                settings[f"{each.name}.{name}"] = replace(
                    inner,
                    only_if=_inside(each.name, inner.only_if),
                    compiled=inner.compiled and declared.compiled,
                    free_on_resume=inner.free_on_resume or declared.free_on_resume,
                )
        else:
            is_path = Path in (hint, *typing.get_args(hint))
            settings[each.name] = replace(declared, is_path=is_path)
    return settings


def _inside(section: str, condition: tuple[str, ...]) -> tuple[str, ...]:
    """Return a condition with the full path of a setting that is named as `.name`."""
    path, *values = condition or ("",)
    return (section + path, *values) if path.startswith(".") else condition


class Section:
    """A group of settings, as a base class."""

    def __post_init__(self) -> None:
        """Store absolute paths to what playing a policy needs."""
        for name, declared in walk(type(self)).items():
            path = getattr(self, name) if declared.is_path and declared.plays else None
            if isinstance(path, Path):
                object.__setattr__(self, name, path.expanduser().absolute())


def sections(cls: type) -> dict[str, Setting]:
    """Return what is declared of every section of a configuration, by its name."""
    leaves = walk(cls)
    return {
        each.name: each.metadata["setting"]
        for each in dataclasses.fields(cls)
        if each.name not in leaves
    }


def traced(config: Any) -> dict[str, float]:
    """Return the traced settings of one section (a `PPOConfig`, say): name to value."""
    return {name: getattr(config, name) for name, each in walk(type(config)).items() if each.traced}
