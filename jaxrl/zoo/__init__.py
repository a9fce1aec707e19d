"""The zoo: trained policies that come with the package, each in a folder of its name.

python -m jaxrl.zoo                lists them
python -m jaxrl.zoo watch ant      plays an episode and shows it in 3-D
jaxrl.load_policy("zoo:ant")       loads one; commands take zoo:ant as a run, too

`tools/zoo.py` adds to it.
"""

import os
import secrets
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxrl.config import zoo
from jaxrl.config.zoo import Card, card, names
from jaxrl.errors import UserError, check_episodes, exit_status
from jaxrl.utils import command_line, progress
from jaxrl.utils.formatting import plural

__all__ = ["Card", "card", "names"]


@dataclass(frozen=True)
class ZooArgs:
    """List the trained policies that come with the package, or watch one: zoo watch ant."""

    action: Annotated[Literal["list", "watch"], tyro.conf.Positional] = "list"
    """What to do."""
    name: Annotated[str | None, tyro.conf.Positional] = None
    """Policy to watch."""
    episodes: int = 1
    """Number of episodes."""
    seed: int | None = None
    """Seed of the episodes; a new one every time by default."""
    out: Path | None = None
    """Page to write, .html; runs/zoo-NAME/episode.html by default."""
    open: bool = True
    """Open the page in the browser, where there is a display."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _run(command_line.parse(ZooArgs, arguments, "zoo")))


def _run(args: ZooArgs) -> None:
    if args.action == "watch":
        _watch(args)
    elif args.name is not None:
        raise UserError(f"list takes no name: jaxrl zoo watch {args.name} shows one.")
    else:
        print("\n\n".join(describe(name, card(name)) for name in names()))
        print("\nwatch one        jaxrl zoo watch ant")
        print('in Python        jaxrl.load_policy("zoo:ant")')


def describe(name: str, card: Card) -> str:
    """Return what a policy does, its figures and its command in a few lines."""
    lines = [
        f"{name:16} {card.about}",
        f"return           {card.figures} in {plural(card.episodes, 'episode')}",
        f"trained by       {card.command}",
        f"                 {card.env_steps:,} steps on {card.trained_on}, commit {card.commit[:7]}",
    ]
    return "\n".join([*lines, *([f"{'':16} {card.note}"] if card.note else [])])


def _watch(args: ZooArgs) -> None:
    if args.name is None:
        raise UserError(f"watch needs a name: one of {', '.join(names())}.")
    path = Path(zoo.PREFIX + args.name.removeprefix(zoo.PREFIX))
    out = args.out or zoo.output_folder(path) / "episode.html"
    if out.suffix != ".html":
        raise UserError(f"--out '{out}': the file must end in .html. For others use jaxrl render.")
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    check_episodes(args.episodes, seed)
    from jaxrl.loggers import run_dir
    from jaxrl.rendering.run import render_run

    run = zoo.resolve(path)
    config = run_dir.read_config(run)
    render_run(run, config, out, number=args.episodes, seed=seed, stage=progress.stage)
    print(f"written to {out} (--seed {seed} plays the same again)")
    if args.open and _has_display():
        webbrowser.open(out.resolve().as_uri())


def _has_display() -> bool:
    """Return whether a browser would be seen: without a display Python opens one in text."""
    is_desktop = sys.platform in ("darwin", "win32")
    return is_desktop or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
