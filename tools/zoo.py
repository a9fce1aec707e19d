"""Maintain the zoo, the policies in jaxrl/zoo: add one, or make the page that shows them all.

python tools/zoo.py add runs/ant-s0-... ant --about "a four-legged robot runs"
python tools/zoo.py gallery

`add` copies the best policy of a run. It stores the weights in half precision, unless that costs
return, evaluates the stored policy and writes its card. Command, commit and machine are read from
the run folder; flags replace them where the folder has been copied without them. `gallery` writes
docs/zoo.html, and the table in docs/gallery.md.
"""

import argparse
import dataclasses
import json
import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import numpy as np

from jaxrl.algorithms.policy import PolicyParams
from jaxrl.config import TrainConfig, overrides, serialization, settings, zoo
from jaxrl.config.settings import SETTINGS
from jaxrl.config.zoo import Card
from jaxrl.envs import factory as environments
from jaxrl.errors import UserError, exit_status
from jaxrl.loggers import run_dir
from jaxrl.policies import files, load
from jaxrl.policies.load import LoadedPolicy
from jaxrl.rendering import episodes as recording
from jaxrl.rendering import html_viewer, video
from jaxrl.utils import atomic_io, compilation_cache, progress

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES, MAX_TOTAL = 2**20, 8 * 2**20  # of one policy with its files, and of all of them
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class Provenance:
    """Where a policy comes from, as its card says it."""

    command: str
    commit: str
    machine: str


def add(
    run: Path, name: str, provenance: Provenance, about: str, episodes: int, note: str = ""
) -> Card:
    """Store the best policy of a run as zoo:NAME, in place of one that has this name."""
    if not _NAME.fullmatch(name):
        raise UserError(f"'{name}' is no name for the zoo: use a-z, 0-9, - and _.")
    config = without_paths(run_dir.read_config(run))
    file = load.find(run)
    trained = load.load_policy(file)
    rounded = trained._replace(params=round_weights(trained.params))
    compilation_cache.enable()
    env = environments.build(config)

    def returns(policy: LoadedPolicy) -> np.ndarray:
        deterministic = not config.eval.sample_actions(None)
        played = load.run_episodes(
            policy,
            config,
            episodes=episodes,
            deterministic=deterministic,
            env=env,
            stage=progress.stage,
        )
        return np.asarray(played.returns, np.float64)

    before, after = returns(trained), returns(_as_loaded(rounded))
    half = loses_nothing(before, after)
    stored, kept = (rounded, after) if half else (trained, before)
    card = Card(
        about=about,
        command=provenance.command,
        commit=provenance.commit,
        trained_on=provenance.machine,
        env_steps=int(trained.info["env_steps"]),
        mean_return=float(kept.mean()),
        std_return=float(kept.std()),
        episodes=len(kept),
        evaluated_on=_this_machine(),
        precision="float16" if half else "float32",
        float32_return=float(before.mean()),
        note=note,
    )
    _write(zoo.FOLDER / name, config, stored, files.read(file), card)
    return card


def without_paths(config: TrainConfig) -> TrainConfig:
    """Return the settings without paths; raise a UserError if the policy needs files or code."""
    named = settings.named_files(config)
    files = [path for path in named if SETTINGS[path].plays and not SETTINGS[path].local]
    if wanting := [*map(settings.flag, files), *settings.imported_code(config)]:
        raise UserError(f"{', '.join(wanting)}: a policy of the zoo needs nothing but the package.")
    return overrides.changed(config, dict.fromkeys(named))


def round_weights(params: PolicyParams) -> PolicyParams:
    """Return parameters with weights in half precision; the normaliser needs its range."""
    actor = jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.float16), params.actor)
    return params._replace(actor=actor)


def _as_loaded(policy: LoadedPolicy) -> LoadedPolicy:
    """Return a policy with weights in float32 again, as a file is loaded."""
    actor = jax.tree.map(lambda leaf: leaf.astype(np.float32), policy.params.actor)
    return policy._replace(params=policy.params._replace(actor=actor))


def loses_nothing(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether the mean has not fallen by more than two standard errors of the difference."""
    error = math.sqrt((before.var() + after.var()) / len(before))
    return bool(np.isfinite(after).all() and after.mean() >= before.mean() - 2 * error)


def _write(
    folder: Path, config: TrainConfig, policy: LoadedPolicy, stored: files.PolicyFile, card: Card
) -> None:
    out = folder / "policies" / "best.npz"
    files.write(out, policy.params, policy.spec, stored.config, stored.info)
    atomic_io.write_text(folder / "config.json", serialization.to_json(config) + "\n")
    text = json.dumps(dataclasses.asdict(card), indent=2, ensure_ascii=False)
    atomic_io.write_text(folder / zoo.CARD, text + "\n")
    check_sizes()


def check_sizes() -> None:
    """Raise a UserError if a policy or the whole zoo is too large for a package."""
    sizes = {name: _bytes(zoo.FOLDER / name) for name in zoo.names()}
    for name, size in (*sizes.items(), ("", sum(sizes.values()))):
        if size > (MAX_BYTES if name else MAX_TOTAL):
            raise UserError(f"{zoo.FOLDER / name} has {size:,} bytes: train a smaller network.")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _this_machine() -> str:
    kinds = [device.device_kind for device in jax.local_devices()]
    if jax.default_backend() == "cpu":
        return f"{os.cpu_count()} CPU cores"
    return f"{len(kinds)} × {kinds[0]}"


def read_provenance(
    run: Path, command: str | None, commit: str | None, machine: str | None
) -> Provenance:
    """Return the provenance of a run as its folder records it, where it is not given."""
    if not command:
        words = _read(run / "command.txt", "--command").splitlines()[0].split()
        words = " ".join(words).replace("python -m jaxrl.train", "jaxrl train", 1)
        command = re.sub(r" --run-dir[ =]\S+", "", words)
    if not (commit and machine):
        recorded = json.loads(_read(run / "provenance.json", "--commit and --machine"))
        commit = commit or recorded["git"]["commit"]
        devices = [name.partition(": ")[2] for name in recorded["devices"]]
        machine = machine or f"{len(devices)} × {devices[0]}"
    return Provenance(command, commit or "", machine)


def _read(file: Path, flags: str) -> str:
    if not file.is_file():
        raise UserError(f"There is no '{file}': give {flags}.")
    return atomic_io.read_text(file)


def gallery(out: Path, seconds: float) -> None:
    """Write a page on which every policy of the zoo plays the first seconds of an episode."""
    compilation_cache.enable()
    views = [_view(name, seconds) for name in sorted(zoo.names(), key=_most_steps_first)]
    intro = (
        "Trained policies that come with the package: `jaxrl zoo` lists them. Drag to turn a view; "
        "`jaxrl zoo watch ant` plays a new episode on a page of its own."
    )
    atomic_io.write_text(out, html_viewer.gallery_page("The zoo of jaxrl", intro, views))


def table() -> str:
    """Return all policies with their figures as a Markdown table."""
    lines = ["| policy | | return | steps | trained by | on |", "|---|---|---:|---:|---|---|"]
    for name in zoo.names():
        card = zoo.card(name)
        row = (f"`{name}`", card.about, card.figures, f"{card.env_steps / 1e6:.2g} M")
        lines.append(f"| {' | '.join(row)} | {_command(card)} | {card.trained_on} |")
    return "\n".join(lines)


def _command(card: Card) -> str:
    return f"`{card.command}`" + (f" ({card.note})" if card.note else "")


def write_table(page: Path) -> None:
    """Replace the table of the zoo in a page."""
    pattern = re.escape(table().splitlines()[0]) + r"\n(\|.*\n)*"
    text = atomic_io.read_text(page)
    if not re.search(pattern, text):
        raise UserError(f"'{page}' has no table of the zoo to replace: add its first line.")
    atomic_io.write_text(page, re.sub(pattern, lambda _: table() + "\n", text))


def _most_steps_first(name: str) -> int:
    return -zoo.card(name).env_steps


def _view(name: str, seconds: float) -> html_viewer.GalleryView:
    run, card = zoo.FOLDER / name, zoo.card(name)
    config = run_dir.read_config(run)
    env = recording.build_env(config)
    with progress.stage(f"playing {name}"):
        deterministic = not config.eval.sample_actions(None)
        policy = load.load_policy(run)
        played = recording.record_episodes(
            policy, config, env, number=1, deterministic=deterministic
        )
        data = video.page_data(video.VideoSpec(env, name, seconds=seconds), played)
    lines = (
        f"{card.about}: return {card.figures}",
        f"{_command(card)}, {card.env_steps / 1e6:.2g} M steps on {card.trained_on}",
    )
    return html_viewer.GalleryView(name, lines, data)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="action", required=True)
    showing = commands.add_parser("gallery", help="make the page that shows all of them")
    showing.add_argument("--out", type=Path, default=ROOT / "docs" / "zoo.html")
    showing.add_argument("--page", type=Path, default=ROOT / "docs" / "gallery.md")
    showing.add_argument("--seconds", type=float, default=10.0, help="length of each view")
    adding = commands.add_parser("add", help="store the best policy of a run")
    adding.add_argument("run", type=Path, help="run folder")
    adding.add_argument("name", help="its name in the zoo")
    adding.add_argument("--about", required=True, help="what is seen, in a few words")
    adding.add_argument("--episodes", type=int, default=100, help="episodes to evaluate")
    adding.add_argument("--command", help="command that trained it; of the run folder by default")
    adding.add_argument("--commit", help="commit that trained it; of the run folder by default")
    adding.add_argument("--machine", help="machine that trained it; of the run folder by default")
    adding.add_argument("--note", default="", help="what else to know")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _run(_parser().parse_args(arguments)))


def _run(args: argparse.Namespace) -> None:
    if args.action == "gallery":
        gallery(args.out, args.seconds)
        write_table(args.page)
        print(f"written to {args.out}: {args.out.stat().st_size:,} bytes")
        return
    provenance = read_provenance(args.run, args.command, args.commit, args.machine)
    given = (args.about, args.episodes, args.note)
    card = add(args.run, args.name, provenance, *given)
    size = _bytes(zoo.FOLDER / args.name)
    print(
        f"{zoo.PREFIX}{args.name}: {card.figures} with {card.precision}, "
        f"{card.float32_return:,.5g} with float32, {size:,} bytes"
    )


if __name__ == "__main__":
    sys.exit(main())
