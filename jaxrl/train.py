"""Train: `python -m jaxrl.train [PRESET] [--any.flag VALUE]`, or `--resume RUN`."""

import contextlib
import gc
import sys
import traceback
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.config import (
    TrainConfig,
    distributed,
    env_names,
    help_text,
    overrides,
    presets,
    serialization,
    settings,
)
from jaxrl.config.distributed import Distributed
from jaxrl.config.metadata import setting
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line, signals

if TYPE_CHECKING:
    from jaxrl.training.summary import Result

_HELP = {"-h", "--help", "--help-all"}


@dataclass(frozen=True)
class TrainArgs:
    """Train an agent."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    num_seeds: int = setting(
        1,
        "Number of seeds trained in one program, starting at --seed; each has its own folder.",
    )
    vary: tuple[str, ...] = setting(
        (),
        "Train every combination of these values, as ppo.learning-rate=1e-4,3e-4 "
        "ppo.gamma=0.97,0.99, each with all seeds, in the same program.",
    )
    dry_run: bool = setting(
        False,
        "Print what differs from the preset, array sizes, a memory estimate and a forecast of time "
        "and disk, then stop; with --verbose, every setting too.",
    )
    resume: Path | None = setting(
        None,
        "Continue the run in this folder, or from RUN/checkpoints/STEP in a new one; auto: resume "
        "the run in --run-dir if there is one, else start it. Beside a folder "
        "only --epochs, --total-steps and --reset-steps may be given (and what names your own "
        "code, and for a new run --seed and --run-dir).",
    )
    reset_steps: bool = setting(
        False,
        "With --resume: start a new run from that run's full state, with steps counted from 0.",
    )
    quiet: bool = setting(False, "Print warnings and the results only.")
    verbose: bool = setting(
        False,
        "Print every metric of each cycle, and the loss of each iteration of a learnt reward.",
    )


@dataclass(frozen=True)
class ResumeArgs:
    """Continue a run exactly where its last checkpoint left it."""

    resume: Path
    """Run folder, or RUN/checkpoints/STEP to continue from there in a new folder."""
    epochs: int | None = None
    """Train up to this many epochs in all."""
    total_steps: int | None = None
    """Train up to this many environment steps in all."""
    reset_steps: bool = False
    """Start a new run from this one's full state: steps and schedules start from 0."""
    seed: int | None = None
    """Seed of that new run; this one's + 1 when not given."""
    run_dir: Path | None = None
    """Folder of that new run, or of one that continues from a chosen checkpoint."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""
    randomize: Annotated[str | None, tyro.conf.arg(name="task.randomize")] = None
    """Needed only if the run has it: the module:function that may be imported."""
    algo: str | None = None
    """Needed only for your own algorithm: the module:make that may be imported."""
    module: Annotated[str | None, tyro.conf.arg(name="network.module")] = None
    """Needed only for networks of your own: the module:build that may be imported."""
    extra_loss: Annotated[str | None, tyro.conf.arg(name="ppo.extra-loss")] = None
    """Needed only for a loss of your own: the module:function that may be imported."""
    sink: Annotated[str | None, tyro.conf.arg(name="log.sink")] = None
    """Needed only for a logger of your own: the module:make that may be imported."""
    quiet: bool = False
    """Print warnings and the results only."""
    verbose: bool = False
    """Print every metric of each cycle, and the loss of each iteration of a learnt reward."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        status = exit_status(lambda: _run(words))
    except Exception:
        _leave(1, traceback.format_exc())
        raise
    _leave(status)
    return status


def _leave(status: int, text: str = "") -> None:
    """After a failure, end this process at once if others wait for it."""
    if "jax" in sys.modules and status:
        from jaxrl.utils import processes

        processes.leave(status, text)


def _run(arguments: list[str]) -> int:
    processes, arguments = distributed.parse(arguments)
    without = _without_auto(arguments)
    auto = without != arguments
    if auto and _HELP.isdisjoint(arguments):
        return _start(_parse(without), processes, resume_if_present=True)
    if not auto and any(a == "--resume" or a.startswith("--resume=") for a in arguments):
        _check_resume(arguments)
        return _resume(command_line.parse(ResumeArgs, arguments, "train"), processes)
    if not _HELP.isdisjoint(arguments):
        print(_help([a for a in without if a not in _HELP], "--help-all" in arguments))
        return 0
    return _start(_parse(arguments), processes)


def _without_auto(arguments: list[str]) -> list[str]:
    """Return the arguments without `--resume auto`."""
    rest = [word for word in arguments if word != "--resume=auto"]
    pairs = [*pairwise(rest)]
    place = pairs.index(("--resume", "auto")) if ("--resume", "auto") in pairs else None
    return rest if place is None else rest[:place] + rest[place + 2 :]


def _help(arguments: list[str], everything: bool) -> str:
    """Return the help for what the other arguments select."""
    config = _parse(arguments).config
    program, listing = command_line.prog("train"), command_line.prog("presets")
    return f"""\
usage: {program} [PRESET] [--FLAG VALUE ...]
       {program} --resume RUN [--epochs N]

Train an agent. Presets are listed by {listing}; this help shows '{config.preset}',
its values in brackets; --help-all shows every setting. A switch is turned off by --no-NAME or
--SECTION.no-NAME.

{help_text.text(config, TrainArgs, everything=everything)}

{distributed.HELP}"""


def _check_resume(arguments: list[str]) -> None:
    """Refuse settings that a resumed run cannot change, and say what can be done instead."""
    sections = {"randomize": "task.", "module": "network.", "extra_loss": "ppo.", "sink": "log."}
    allowed = [
        f"--{sections.get(each.name, '')}{each.name.replace('_', '-')}"
        for each in fields(ResumeArgs)
    ]
    for word in arguments:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in (
            *allowed,
            "--no-reset-steps",
            "--no-quiet",
            "--no-verbose",
            "--help",
        ):
            raise UserError(
                f"{flag}: a resumed run keeps its settings. Beside --resume only "
                f"{', '.join(allowed[1:])} may be given. A new run can begin with what this one "
                "has learnt, and with other settings, by --init-from RUN."
            )


def preset_name(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the name of the preset and the other arguments; `--env X` alone means preset X."""
    name, rest = _preset_typed(arguments)
    return presets.of_algorithm(name, _value(rest, "--algo")), rest


def _preset_typed(arguments: list[str]) -> tuple[str, list[str]]:
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    for before, word in pairwise(arguments):
        if word in presets.PRESETS and not before.startswith("-"):
            raise UserError(f"The preset comes first: {command_line.prog('train')} {word} ...")
    env = _value(arguments, "--env")
    if env is not None:
        return (env if env in presets.PRESETS else "custom"), arguments
    return "quickstart", arguments


def _parse(arguments: list[str]) -> TrainArgs:
    name, arguments = preset_name(_merge_values("--vary", arguments))
    default = TrainArgs(presets.get(name))
    _check_flags(arguments, default.config)
    reserved = [word for each in settings.SETTINGS.values() for word in each.reserved]
    args = command_line.parse(TrainArgs, arguments, "train", default, unlisted=reserved)
    if presets.is_custom(name) and not _given(arguments, "--cycles", "--iterations"):
        args = replace(args, config=overrides.with_ten_epochs(args.config))
    overrides.refuse_unused(args.config, default.config)
    varied = [overrides.axis_path(text) for text in args.vary]
    for note in overrides.unused_notes(args.config, default.config, varied):
        print(f"note: {note}", file=sys.stderr)
    return args


def _given(arguments: list[str], *flags: str) -> bool:
    return any(argument.partition("=")[0] in flags for argument in arguments)


def _check_flags(arguments: list[str], preset: TrainConfig) -> None:
    """Refuse flags that do not exist; which ones to suggest depends on --algo."""
    own = [f"--{each.name.replace('_', '-')}" for each in fields(TrainArgs)]
    chosen = _value(arguments, "--algo") or preset.algo
    overrides.refuse_unknown(arguments, replace(preset, algo=chosen), own)


def _value(arguments: list[str], flag: str) -> str | None:
    """Return what follows a flag, or None if it is not given."""
    words = [part for argument in arguments for part in argument.split("=", 1)]
    return words[words.index(flag) + 1] if flag in words[:-1] else None


def _merge_values(flag: str, arguments: list[str]) -> list[str]:
    """Return the arguments with all values of a repeated flag together, at the end.

    Of a flag that is given twice the parser takes the last, and half of a grid would be missing.
    """
    values, others, inside = [], [], False
    for word in arguments:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            inside = name == flag
            values += [value] if inside and value else []
            others += [] if inside else [word]
        else:
            (values if inside else others).append(word)
    return [*others, flag, *values] if values else arguments


def _start(
    args: TrainArgs, processes: Distributed | None = None, resume_if_present: bool = False
) -> int:
    if resume_if_present and args.config.run_dir is None:
        raise UserError("--resume auto needs --run-dir: the folder that the run has, or will have.")
    if args.reset_steps:
        raise UserError("--reset-steps belongs to --resume RUN; a new run counts from 0 anyway.")
    members = overrides.members(args.config, args.num_seeds, args.vary)
    overrides.check(members)
    # Until the loop listens: a KeyboardInterrupt in one of JAX's own callbacks would be lost.
    with signals.listening(at_once="starting"):
        # JAX is imported only now: help and errors about settings never wait for it.
        _speed_up_start(processes)
        result = _train(args, members, resume_if_present)
    return 0 if result is None else _conclude(result, args.config)


def _train(args: TrainArgs, members: list[TrainConfig], resume_if_present: bool) -> "Result | None":
    """Train, or only print what would be trained."""
    from jaxrl import programs
    from jaxrl.programs import memory_estimate
    from jaxrl.training import fit, forecast, population

    if resume_if_present and not args.dry_run:
        result = fit.resume_if_present(members, _verbosity(args))
        if result is not None:
            return result
    several = len(members) > 1
    built = population.build(members) if several else programs.build(members[0])
    if args.dry_run:
        print(_differences(members[0]))
        print(memory_estimate.report(built))
        print(forecast.report(built))
        print(serialization.to_json(members[0]) if args.verbose else _ALL_SETTINGS)
        return None
    _print_clip_hints(args.config)
    return fit.fit_program(built, verbose=_verbosity(args))


_ALL_SETTINGS = "\n--dry-run --verbose prints every setting."


def _differences(config: TrainConfig) -> str:
    """Return the settings that differ from the preset, with the preset's values."""
    preset = presets.get(config.preset)
    changes = [
        f"  {settings.flag(path)} {help_text.typed(settings.get(config, path))}   "
        f"(preset: {help_text.typed(settings.get(preset, path)) or 'none'})"
        for path in overrides.differences(config, preset)
    ]
    return "\n".join([f"preset {config.preset}" + (", with" if changes else ""), *changes, ""])


def _verbosity(args: TrainArgs | ResumeArgs) -> int:
    """Return 0, 1 or 2, as `jaxrl.fit` takes it."""
    if args.quiet and args.verbose:
        raise UserError("--quiet and --verbose: give one of them.")
    return 0 if args.quiet else 2 if args.verbose else 1


def _print_clip_hints(config: TrainConfig) -> None:
    """Print where motion clips are available, and that several can be planned first."""
    clips = config.motion.clips
    if config.env in env_names.MOTION and not clips:
        print(
            f"{env_names.NO_CLIP}{env_names.CLIP_SOURCES}Name one, or a folder, by --motion.clips."
        )
    if config.env == "imitation" and clips:
        from jaxrl.motion import formats

        if len(formats.files(clips)) > 1 and not formats.any_planned(clips):
            print(env_names.PLANNING_HINT.format(clips=clips))


def _speed_up_start(processes: Distributed | None = None) -> None:
    """Shorten the time until a program is traced, and join other processes."""
    # Tracing makes many objects and hardly any cycles: looking for these as often as Python does
    # is an eighth of that time.
    gc.set_threshold(50_000)
    if processes is not None:
        _join(processes)
    _start_devices()


def _join(chosen: Distributed) -> None:
    """Join the other processes, before JAX is used."""
    from jaxrl.utils import processes

    options = {name: value for name, value in asdict(chosen).items() if name != "found_by"}
    processes.start(**options)
    if processes.is_main():
        found = f"{chosen.found_by}: " if chosen.found_by else ""
        off = "; --distributed off trains in each one alone" if chosen.found_by else ""
        print(f"{found}training together on {processes.count()} processes{off}", flush=True)


def _start_devices() -> None:
    """Start accelerators while Python goes on importing: both take seconds."""
    import threading

    import jax

    def start() -> None:
        with contextlib.suppress(Exception):  # shown where the devices are needed
            jax.local_devices()

    threading.Thread(target=start, daemon=True).start()


def _resume(args: ResumeArgs, processes: Distributed | None = None) -> int:
    with signals.listening(at_once="starting"):
        _speed_up_start(processes)
        from jaxrl.loggers import run_dir as folder
        from jaxrl.training import fit

        result = fit.resume(
            args.resume,
            epochs=args.epochs,
            total_steps=args.total_steps,
            env=args.env,
            randomize=args.randomize,
            algorithm=args.algo,
            network=args.module,
            extra_loss=args.extra_loss,
            sink=args.sink,
            reset_steps=args.reset_steps,
            seed=args.seed,
            run_dir=args.run_dir,
            verbose=_verbosity(args),
        )
    names = args.env, args.randomize, args.module
    return _conclude(result, folder.read_config(result.folder, *names))


def _conclude(result: "Result", config: TrainConfig) -> int:
    from jaxrl.training import summary
    from jaxrl.utils import processes

    if processes.is_main():
        print(summary.text(result, config), flush=True)
    status = 128 + result.stopped_by if result.stopped_by else 0
    processes.finish(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
