"""Train: `python -m jaxrl.train [PRESET] [--any.flag VALUE]`, or `--resume RUN`."""

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl import config_checks, config_json, presets
from jaxrl.config import TrainConfig
from jaxrl.envs import names
from jaxrl.errors import UserError

_PROGRAM = "python -m jaxrl.train"


@dataclass(frozen=True)
class Command:
    """Train an agent."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    dry_run: bool = False
    """Print the settings, array sizes and a memory estimate, then stop."""
    resume: Path | None = None
    """Continue the run in this folder; only --epochs or --total-steps may be given beside it."""


@dataclass(frozen=True)
class ResumeCommand:
    """Continue a run exactly where its last checkpoint left it."""

    resume: Path
    """Run folder."""
    epochs: int | None = None
    """Train up to this many epochs in all."""
    total_steps: int | None = None
    """Train up to this many environment steps in all."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if any(a == "--resume" or a.startswith("--resume=") for a in arguments):
            return _resume(tyro.cli(ResumeCommand, args=arguments, prog=_PROGRAM))
        return _start(_parse(arguments))
    except UserError as error:
        return _complain(str(error), error)
    except BrokenPipeError:
        return 1  # whoever read our output is gone
    except OSError as error:
        return _complain(f"{error.strerror or error}: {error.filename or 'writing'}", error)
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        text = "The device ran out of memory: lower --num-envs or --ppo.rollout-length."
        return _complain(f"{text} (--dry-run shows the sizes.)", error)


def _complain(text: str, error: BaseException) -> int:
    """Print one readable message, with what else is known, and return the exit status."""
    notes = getattr(error, "__notes__", [])
    print("\n".join([f"error: {text}", *notes]), file=sys.stderr)
    return 2


def _preset_name(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the preset meant, and the other arguments: `--env X` alone means the preset X."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    for flag, value in zip(arguments, arguments[1:], strict=False):
        if flag == "--env":
            return (value if value in presets.PRESETS else "custom"), arguments
    return "quickstart", arguments


def _parse(arguments: list[str]) -> Command:
    name, arguments = _preset_name(arguments)
    default = Command(presets.get(name))
    listing = ", ".join(sorted(presets.PRESETS))
    return tyro.cli(
        Command,
        default=default,
        args=arguments,
        prog=f"{_PROGRAM} [PRESET]",
        description=f"Train an agent. Presets: {listing}. This help shows '{name}'.",
    )


def _start(command: Command) -> int:
    config_checks.check(command.config)
    # JAX is imported only now: help and errors about settings never wait for it.
    from jaxrl.runtime import folder, loop, program, sizes

    program.use_compilation_cache()
    built = program.build(command.config)
    if command.dry_run:
        print(config_json.to_json(command.config))
        print(sizes.report(built))
        return 0
    path = folder.create(command.config)
    folder.describe(path, command.config)
    print(f"run folder: {path}", flush=True)
    return _report(loop.train(built, path), command.config)


def _resume(command: ResumeCommand) -> int:
    from jaxrl.runtime import folder, loop, program

    config = folder.read_config(command.resume)
    if names.is_custom(config.env) and command.env != config.env:
        raise UserError(
            f"This run trains your own environment; say that its code may be imported: "
            f"--resume {command.resume} --env {config.env}"
        )
    longer = {
        name: value
        for name in ("epochs", "total_steps")
        if (value := getattr(command, name)) is not None
    }
    if len(longer) == 2:
        raise UserError("Give --epochs or --total-steps, not both.")
    if longer:
        config = dataclasses.replace(config, **({"total_steps": None} | longer))
    config_checks.check(config)
    program.use_compilation_cache()
    result = loop.train(program.build(config), command.resume, resume=True)
    if longer:
        folder.write_text(command.resume / "config.json", config_json.to_json(config))
    return _report(result, config)


def _report(result, config: TrainConfig) -> int:
    """Say what was reached and what can be done next."""
    print(f"\n{result.env_steps:,} environment steps")
    if result.last_evaluation:
        last = result.last_evaluation
        print(
            f"last evaluation  {last['eval/mean_reward']:.1f} ± {last['eval/std_reward']:.1f}"
            f"   best {result.best_reward:.1f}"
        )
    path = shlex.quote(str(result.folder))
    own = f" --env {config.env}" if names.is_custom(config.env) else ""
    more = config.epochs * 2 if config.total_steps is None else None
    longer = f"--epochs {more}" if more else f"--total-steps {config.total_steps * 2}"  # type: ignore[operator]
    print(f"run folder       {result.folder}")
    print(f"learning curve   {result.folder / 'plots' / 'learning_curve.png'}")
    print(f"evaluate         python -m jaxrl.evaluate {path} --episodes 100{own}")
    print(f"resume           {_PROGRAM} --resume {path} {'' if result.stopped_by else longer}{own}")
    print(f"watch            tensorboard --logdir {path}")
    return 128 + result.stopped_by if result.stopped_by else 0


if __name__ == "__main__":
    sys.exit(main())
