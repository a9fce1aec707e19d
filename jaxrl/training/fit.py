"""Training from Python: what `python -m jaxrl.train` does, as functions.

`jaxrl.train` is the module that people run, and a package cannot have a function of the same name
beside it. So the function is `jaxrl.fit`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl import programs
from jaxrl.algorithms.ppo.batch import ExtraLoss
from jaxrl.config import TrainConfig, overrides, presets, settings, variants
from jaxrl.errors import UserError, nearest, out_of_memory
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers.console import NORMAL
from jaxrl.loggers.sinks import Sink
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.policies.load import split_checkpoint
from jaxrl.programs import DeviceProgram, Executor, Program, memory_estimate
from jaxrl.training import fork, loop, population, startup, warm_start
from jaxrl.training import resume as run_resume
from jaxrl.training.callback_runner import Callback, CallbackRunner
from jaxrl.training.run import Exchange
from jaxrl.training.summary import Result
from jaxrl.types import Algorithm
from jaxrl.utils import processes, sharding, user_code


def fit(
    config: str | TrainConfig | Sequence[TrainConfig] = "custom",
    callbacks: Sequence[Callback] = (),
    *,
    env: Any = None,
    env_args: Mapping[str, Any] | None = None,
    algorithm: str | Callable[..., Algorithm] | None = None,
    network: str | Callable[..., ActorCritic] | None = None,
    extra_loss: str | ExtraLoss | None = None,
    sinks: Sequence[Sink] = (),
    verbose: int = NORMAL,
    **changes: Any,
) -> Result:
    """Train in a new run folder.

        jaxrl.fit("cartpole", num_envs=64, **{"ppo.lam": 0.9})
        jaxrl.fit(env=MyTask, env_args={"wind": 0.3}, total_steps=1_000_000)

    Args:
      config: the name of a preset, or settings as `presets.get("ant")` returns them. Of several,
        which differ in seeds and traced settings, all are trained by one program.
      callbacks: called after cycles, evaluations and epochs; see `jaxrl.callbacks`.
      env: your own environment: its class, a function that makes it, an instance, or its name,
        module:Class. Other programs make it again from its class or function. They cannot call a
        lambda or partial, which `resume` needs again, and they make an instance without arguments.
      env_args: arguments of that class or function.
      algorithm: your own, as a function (config, env, networks, num_shards) -> Algorithm or its
        name, module:make; takes the place of `config.algo`.
      network: your own, as a function (spec, network config) -> ActorCritic or its name,
        module:build; takes the place of `config.network.module`.
      extra_loss: your own, added to PPO's, as a function (networks, params, batch, actor's output,
        value) -> scalar or its name; takes the place of `config.ppo.extra_loss`.
      sinks: functions of (environment steps, row of the log as a dict), called for every row.
      verbose: 0 prints warnings only, 1 a line or table for each cycle, 2 all metrics.
      changes: settings that differ from `config`, by name or dotted path.

    Raises:
      UserError: the settings cannot be run, or a callback failed (CallbackError).
    """
    runner = CallbackRunner(callbacks)  # what cannot be called is refused before anything is built
    _check_output(sinks, verbose)
    for name in changes.keys() - set(TrainConfig.__dataclass_fields__):
        if hint := nearest(name, _ARGUMENTS, cutoff=0.8):
            raise UserError(f"fit takes no '{name}'.{hint}")
    own = _own_code(env, env_args, algorithm, network, extra_loss)
    if isinstance(config, str):
        named = presets.get(config, **own, **changes)
        if presets.is_custom(config) and changes.keys().isdisjoint({"cycles", "iterations"}):
            named = overrides.with_ten_epochs(named)
        program = programs.build(named)
    elif isinstance(config, TrainConfig):
        program = programs.build(overrides.changed(config, own | changes))
    elif _are_settings(config):
        program = population.build([overrides.changed(c, own | changes) for c in config])
    else:
        raise UserError(
            "config: give the name of a preset, settings as presets.get returns them, or a list of "
            f"such settings, not {config!r}. An environment of your own is given as env=..."
        )
    if user_code.is_unnamed(program.config.env) and verbose and processes.is_main():
        print("note: to continue this run, give `env` again: jaxrl.resume(run, env=...)")
    return fit_program(program, runner, sinks=sinks, verbose=verbose)


def _are_settings(configs: Any) -> bool:
    return isinstance(configs, Sequence) and all(isinstance(c, TrainConfig) for c in configs)


def _own_code(
    env: Any,
    env_args: Mapping[str, Any] | None,
    algorithm: str | Callable[..., Algorithm] | None,
    network: str | Callable[..., ActorCritic] | None,
    extra_loss: str | ExtraLoss | None,
) -> dict[str, Any]:
    """Return the settings that name code of the user's own."""
    settings: dict[str, Any] = {}
    if env is not None:
        settings["env"] = user_code.env_name("env", env)
    if env_args is not None:
        if not isinstance(env_args, Mapping):
            raise UserError(
                f"env_args: give a dict, as env_args={{'wind': 0.3}}, not {env_args!r}."
            )
        settings["env_args"] = tuple(f"{name}={value!r}" for name, value in env_args.items())
    functions = {
        "algo": _named("algorithm", algorithm),
        "network.module": _named("network", network),
        "ppo.extra_loss": _named("extra_loss", extra_loss),
    }
    return settings | {path: name for path, name in functions.items() if name is not None}


def _named(argument: str, function: str | Callable[..., Any] | None) -> str | None:
    return None if function is None else user_code.function_name(argument, function)


# Of `fit`, beside settings.
_ARGUMENTS = ("callbacks", "env_args", "algorithm", "network", "extra_loss", "sinks", "verbose")


def _check_output(sinks: Sequence[Sink], verbose: int) -> None:
    """Refuse what would fail in the first cycle, before anything is compiled."""
    if not isinstance(sinks, Sequence) or not all(map(callable, sinks)):
        raise UserError(f"sinks: give a list of functions of (steps, row), not {sinks!r}.")
    if verbose not in (0, 1, 2):
        raise UserError(f"verbose must be 0, 1 or 2, not {verbose!r}.")


def fit_program(
    program: Program,
    runner: CallbackRunner | None = None,
    continues: Path | None = None,
    sinks: Sequence[Sink] = (),
    step: int | None = None,
    verbose: int = NORMAL,
) -> Result:
    """Train a program in a new run folder, from the full state of the run `continues` if given.

    `step` is that of its checkpoint; the newest one if None.
    """
    # What cannot be run or taken over is refused before there is a folder.
    startup.check_alike(program)
    memory_estimate.refuse_too_large(program)
    start = (
        warm_start.from_full_state(program, continues, step)
        if continues
        else warm_start.load(program)
    )
    path = startup.create_folder(program)
    if verbose and processes.is_main():
        print(f"run folder: {path}", flush=True)
    for remark in (
        sharding.unused_gpu(),
        *(_remarks(program) if isinstance(program, DeviceProgram) else ()),
    ):
        if remark and processes.is_main():
            print(remark, flush=True)
    with _explained(program):
        return loop.train(
            program, path, callbacks=runner, start=start, own_sinks=sinks, verbose=verbose
        )


def fit_or_resume(
    program: Program,
    folder: Path,
    callbacks: Sequence[Callback] = (),
    *,
    executor: Executor | None = None,
    exchange: Exchange | None = None,
) -> Result:
    """Train in `folder`, or continue there if it holds an interrupted run of this program.

    Args:
      program: what to train.
      folder: the run folder.
      callbacks: as for `fit`.
      executor: `program.start()`, where compiling has begun before.
      exchange: between members, after evaluations; see `loop.train`.
    """
    runner = CallbackRunner(callbacks)
    memory_estimate.refuse_too_large(program)
    startup.check_alike(program)
    resuming = startup.holds_a_run(folder)
    startup.by_main(lambda: folder.mkdir(parents=True, exist_ok=True) or folder)
    startup.check_shared(folder)
    with _explained(program):
        return loop.train(
            program,
            folder,
            resuming=resuming,
            callbacks=runner,
            executor=executor,
            exchange=exchange,
        )


def _remarks(program: DeviceProgram) -> list[str]:
    """Return what a user should know of a population before it starts."""
    if not program.members:
        return []
    remarks, used, present = [], program.mesh.size, len(jax.devices())
    if program.config.devices is None and used < present:
        number = variants.number(program.members)
        remarks.append(f"{number} use {used} of {present} devices, which divide them evenly")
    if warning := memory_estimate.too_many(program):
        remarks.append(f"warning: {warning}")
    return remarks


@contextlib.contextmanager
def _explained(program: Program) -> Iterator[None]:
    """Let an error of too little memory say what was large, and what makes it smaller."""
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        explained = UserError(memory_estimate.too_large(program))
        for note in getattr(error, "__notes__", []):
            explained.add_note(note)
        raise explained from error


def resume(
    run: str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    epochs: int | None = None,
    total_steps: int | None = None,
    env: Any = None,
    randomize: str | None = None,
    algorithm: str | Callable[..., Algorithm] | None = None,
    network: str | Callable[..., ActorCritic] | None = None,
    extra_loss: str | ExtraLoss | None = None,
    sink: str | None = None,
    reset_steps: bool = False,
    seed: int | None = None,
    run_dir: Path | None = None,
    sinks: Sequence[Sink] = (),
    verbose: int = NORMAL,
) -> Result:
    """Continue a run exactly where its last checkpoint left it.

    With `reset_steps` the continuation is a run of its own, in a new folder: it starts from the
    full state of the other, which stays as it is, and counts from 0. Its length is then its own,
    schedules begin again, and its seed is another, so that no start state comes up twice.

    Args:
      run: its folder, or RUN/checkpoints/STEP to continue from there in a new folder.
      callbacks: as for `fit`; those of the earlier part are not remembered.
      epochs: train up to N epochs in all.
      total_steps: or up to N environment steps in all.
      env: an environment of your own, as for `fit`; named by module:Class, it may be imported.
      randomize: the module:function of --task.randomize, likewise.
      algorithm, network, extra_loss: those of your own, as for `fit`.
      sink: the module:make of --log.sink, if the run has it.
      reset_steps: count from 0, in a new run.
      seed: of the new run; the old one + 1 when not given.
      run_dir: folder of the new run.
      sinks: as for `fit`; those of the earlier part are not remembered.
      verbose: as for `fit`.
    """
    if not isinstance(run, str | Path):
        raise UserError(f"resume: give a run folder, not {run!r}.")
    _check_output(sinks, verbose)
    (folder, step), runner = split_checkpoint(Path(run)), CallbackRunner(callbacks)
    if step is None and not reset_steps:
        startup.check_shared(folder)
    config, *members = (
        lengthened(c, epochs, total_steps)
        for c in _settings_of(
            folder,
            env=None if env is None else user_code.env_name("env", env),
            randomize=randomize,
            network=_named("network", network),
            training={
                "--algo": _named("algorithm", algorithm),
                "--ppo.extra-loss": _named("extra_loss", extra_loss),
                "--log.sink": sink,
            },
        )
    )
    if not reset_steps:
        if seed is not None or (run_dir is not None and step is None):
            raise UserError("--seed and --run-dir belong to a new run: add --reset-steps.")
        if step is not None:
            source, chosen = folder, dataclasses.replace(config, run_dir=None)
            folder = startup.by_main(lambda: fork.fork(source, step, run_dir, chosen))
            startup.check_shared(folder)
            if processes.is_main():
                print(f"run folder: {folder}", flush=True)
        program = population.build(members) if members else programs.build(config)
        return _continue(folder, program, runner, sinks=sinks, verbose=verbose)
    _refuse_several(folder, members)
    seed = config.seed + 1 if seed is None else seed
    config = dataclasses.replace(config, seed=seed, run_dir=run_dir, init_from=None)
    return fit_program(
        programs.build(config), runner, continues=folder, sinks=sinks, step=step, verbose=verbose
    )


def resume_if_present(members: Sequence[TrainConfig], verbose: int = NORMAL) -> Result | None:
    """Continue the run in the folder of these settings; return None if it holds none.

    Settings may differ in the length of the run, and in what may change on a resume.
    """
    config = members[0]
    folder = Path(config.run_dir or "")
    if not startup.holds_a_run(folder):
        return None
    startup.check_shared(folder)
    named = settings.imported_code(config)
    stored, *several = _settings_of(
        folder,
        env=named.get("--env"),
        randomize=named.get("--task.randomize"),
        network=named.get("--network.module"),
        training={flag: named.get(flag) for flag in settings.TRAINING_CODE},
    )
    before = several or [stored]
    if len(before) != len(members):
        raise UserError(
            f"--resume auto: the run in '{folder}' has {len(before)} members, and this command "
            f"{len(members)}. Give another --run-dir."
        )
    for new, old in zip(members, before, strict=True):
        if changes := run_resume.changed_settings(new, settings.fixed_on_resume(old)):
            raise UserError(
                f"--resume auto: the run in '{folder}' has other settings: {changes}. Give another "
                "--run-dir, or the settings that it has."
            )
    program = population.build(members) if several else programs.build(config)
    return _continue(folder, program, verbose=verbose)


def _continue(
    folder: Path,
    program: Program,
    runner: CallbackRunner | None = None,
    *,
    sinks: Sequence[Sink] = (),
    verbose: int,
) -> Result:
    """Continue a run from its newest checkpoint."""
    startup.check_alike(program)
    memory_estimate.refuse_too_large(program)
    with _explained(program):
        return loop.train(
            program, folder, resuming=True, callbacks=runner, own_sinks=sinks, verbose=verbose
        )


def _refuse_several(run: Path, members: list[TrainConfig]) -> None:
    if members:
        raise UserError(
            f"--reset-steps: '{run}' has several members. A new run can start from the policy of "
            f"one: --init-from {folders.of_members(run, members)[0]}."
        )


def _settings_of(run: Path, **allowed: Any) -> list[TrainConfig]:
    """Return the settings of a run, and then those of its members if it has several."""
    config = folders.read_config(run, **allowed)
    if whole := folders.population_of(run):
        raise UserError(f"'{run}' is a member of '{whole}', which goes on as a whole: resume that.")
    return [config, *folders.read_members(run, **allowed)]


def lengthened(config: TrainConfig, epochs: int | None, total_steps: int | None) -> TrainConfig:
    """Return the settings with another end, if one is given."""
    if epochs is not None and total_steps is not None:
        raise UserError("Give --epochs or --total-steps, not both.")
    if epochs is not None:
        return dataclasses.replace(config, epochs=epochs, total_steps=None)
    if total_steps is not None:
        return dataclasses.replace(config, total_steps=total_steps)
    return config
