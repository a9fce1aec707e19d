"""Evaluate: `python -m jaxrl.evaluate RUN --episodes 100` prints metrics and writes JSON.

If the environment reports success, it also analyses what failed episodes have in common.
A run that follows motion clips plays each of them once and writes a table of them too.
"""

import contextlib
import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from jaxrl.config import TrainConfig, clip_split, env_names, zoo
from jaxrl.errors import UserError, check_episodes, check_range, exit_status, nearest
from jaxrl.loggers import run_dir
from jaxrl.utils import atomic_io, command_line, progress, signals
from jaxrl.utils.formatting import short

if TYPE_CHECKING:
    from jaxrl.envs.gymnasium.env import GymnasiumEnv
    from jaxrl.envs.hooks import TrialReport
    from jaxrl.envs.vector_env import VectorEnv
    from jaxrl.evaluation.episodes import Episodes
    from jaxrl.policies.load import LoadedPolicy


@dataclass(frozen=True)
class EvaluateArgs:
    """Evaluate the policy of a run over complete episodes."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or zoo:NAME."""
    episodes: int | None = None
    """Number of episodes, 100 by default; motion clips are played once each."""
    policy: str = "best"
    """Which policy of the run: best, final, or the step of a checkpoint."""
    stochastic: bool | None = None
    """Sample actions, or take the most likely ones; by default as in the run's evaluation."""
    seed: int = 0
    """Seed of the start states."""
    only: tuple[int, ...] = ()
    """Numbers of single episodes, from 0, to play again as they were with the same seed."""
    out: Path | None = None
    """JSON file; RUN/evaluation-<policy>.json by default. A table of clips is written beside it."""
    clips: Path | None = None
    """Motion clips (a file or folder) to follow instead of the training clips."""
    push: float | None = None
    """Play motion clips under pushes, too: they change the root's velocity by this, in metres per
    second, at random times; by default as in the training."""
    push_every: float | None = None
    """Seconds between pushes on average; by default as in the training."""
    split: clip_split.Split | None = None
    """Which clips to follow, by experiments/imitation/split.json: train, test or all. By default
    those of the training, or all of --clips."""
    render: Path | None = None
    """Also write a video of one clip beside its reference (.gif, or .png for one image)."""
    render_clip: str | None = None
    """Name of that clip; the one with the largest error by default."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""
    randomize: Annotated[str | None, tyro.conf.arg(name="task.randomize")] = None
    """Needed only if the run has it: the module:function that may be imported."""
    network: Annotated[str | None, tyro.conf.arg(name="network.module")] = None
    """Needed only for networks of your own: the module:build that may be imported."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _evaluate(command_line.parse(EvaluateArgs, arguments, "evaluate")))


def _evaluate(args: EvaluateArgs) -> None:
    check_episodes(100 if args.episodes is None else args.episodes, args.seed)
    for number in args.only:
        check_range("--only", number, 0, 2**31 - 2)
    if args.push is not None and not 0 <= args.push < math.inf:
        raise UserError(f"--push must be at least 0, not {args.push}.")
    if args.push_every is not None and not args.push_every > 0:
        raise UserError(f"--push-every must be above 0, not {args.push_every}.")
    if args.only and args.episodes is not None:
        raise UserError("Give --episodes or --only, not both.")
    config = run_dir.read_config(zoo.resolve(args.run), args.env, args.randomize, args.network)
    # JAX is imported only now: help and errors about arguments never wait for it.
    with signals.listening(at_once="starting"):
        from jaxrl.envs import factory as environments
        from jaxrl.envs.vector_env import VectorEnv
        from jaxrl.evaluation import analysis
        from jaxrl.policies import load
        from jaxrl.programs import memory_estimate
        from jaxrl.utils import compilation_cache

    config = _with_clips(config, args)
    compilation_cache.enable()
    file = load.find(args.run, args.policy)
    with progress.stage(f"loading the {file.stem} policy and {config.env}"):
        env = environments.build(config)
        policy = load.load_policy(file, network=config.network.module)
    _check_clips(args, env)
    stochastic = config.eval.sample_actions(args.stochastic)
    episodes = max(args.only) + 1 if args.only else args.episodes or 100
    memory_estimate.refuse_episodes(env, episodes, "--only" if args.only else "--episodes")
    report: dict[str, Any] = {"policy": file.name, "env": config.env}
    report |= {"seed": args.seed, "deterministic": not stochastic}
    if isinstance(env, VectorEnv) and env.hooks.trial_report:
        _evaluate_trials(args, config, env, policy, report)
        return

    def play(randomize: bool) -> "Episodes":
        return load.run_episodes(
            policy,
            config,
            episodes=episodes,
            seed=args.seed,
            deterministic=not stochastic,
            env=env,
            record=None if randomize else analysis.recorder(env),
            randomize=randomize,
            stage=progress.stage,
        )

    result = play(randomize=False)
    if config.task.randomize:
        other = play(randomize=True)
        other = analysis.select(other, args.only) if args.only else other
        report["randomized"] = _metrics(other, env)
    _report_episodes(args, env, result, report)


def _metrics(result: "Episodes", env: "VectorEnv | GymnasiumEnv") -> dict[str, Any]:
    """Return the metrics of all episodes, and the values of each."""
    from jaxrl.evaluation import episodes as evaluation

    summary = evaluation.summarize(result, env)
    if number := int(summary.get("eval/diverged", 0)):
        print(f"warning: {number} of {len(result.returns)} episodes ended in non-finite values")
    return {
        "episodes": len(result.returns),
        **{name.removeprefix("eval/"): value for name, value in summary.items()},
        "returns": [float(x) for x in result.returns],
        "lengths": [int(x) for x in result.lengths],
        "truncated": [bool(x) for x in result.truncated],
    }


def _report_episodes(
    args: EvaluateArgs,
    env: "VectorEnv | GymnasiumEnv",
    result: "Episodes",
    report: dict[str, Any],
) -> None:
    """Print and write the metrics of episodes, and what failed ones have in common."""
    from jaxrl.envs import factory as environments
    from jaxrl.envs.vector_env import VectorEnv
    from jaxrl.evaluation import analysis
    from jaxrl.reports import plots

    number = len(result.returns)
    if isinstance(env, VectorEnv):
        env = environments.for_evaluation(env, number)
    rows = analysis.table(result, env, analysis.start_positions(env, args.seed))
    result = result._replace(trace=())
    if args.only:
        rows = analysis.select(rows, args.only)
        result = analysis.select(result, args.only)
        report["only"] = list(args.only)
    report |= _metrics(result, env)
    report |= analysis.details(rows, args.seed)
    print(analysis.format_intervals(report))  # the mean return is the first
    for name, value in report.items():
        if isinstance(value, float) and name not in report["confidence"]:
            print(f"{name:<16} {short(value):>12}")
    if "randomized" in report:
        print("with the randomised physics of training:")
        for name, value in report["randomized"].items():
            if isinstance(value, float):
                print(f"  {name:<14} {short(value):>12}")
    if text := analysis.format_failures(report):
        print(text)
    out = _prepare_out(args)
    if rows.start is not None and rows.success is not None:
        plots.outcomes(out.with_suffix(".png"), rows.start, rows.success)
        print(f"start positions by outcome in {out.with_suffix('.png')}")
    _write(out, report)


def _prepare_out(args: EvaluateArgs) -> Path:
    """Return the JSON file to write, in a folder that exists."""
    other = f"-{args.clips.resolve().stem}" if args.clips else ""
    other += f"-{args.split}" if args.split else ""
    name = f"evaluation-{args.policy}{other}.json"
    out = args.out or zoo.output_folder(args.run) / name
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _write(out: Path, report: dict[str, Any]) -> None:
    atomic_io.write_text(out, json.dumps(_nan_to_null(report), indent=2))
    print(f"written to {out}")


def _evaluate_trials(
    args: EvaluateArgs,
    config: TrainConfig,
    env: "VectorEnv",
    policy: "LoadedPolicy",
    report: dict[str, Any],
) -> None:
    """Play all trials under all conditions; print and write the results, with a table of all."""
    from jaxrl.envs import factory as environments
    from jaxrl.evaluation import conditions
    from jaxrl.evaluation import episodes as evaluation
    from jaxrl.reports import clips as clip_report

    every, results, criteria = [], [], env.hooks.trial_criteria
    for condition in env.hooks.trial_conditions(_with_pushes(config, args)):
        other = cast("VectorEnv", environments.build(condition.config)) if every else env
        played, zero = _play_trials(args, condition.config, other, policy, poses=not results)
        found = cast("TrialReport", evaluation.trial_report(played, other))
        of_zero = None if zero is None else evaluation.trial_report(zero, other)
        every.append(conditions.Played(condition.label, condition.title, found, of_zero))
        results.append(played)
    trials = every[0].policy
    report |= _metrics(results[0], env) | conditions.metrics(every, criteria) | trials.details
    out = _prepare_out(args)
    print(trials.text)
    if criteria:
        print(conditions.text(every, criteria))
    table = conditions.add_columns(every, criteria)
    clip_report.write_table(out.with_suffix(".tsv"), table)
    print(f"every clip in {out.with_suffix('.tsv')}")
    if args.split:
        report["split"] = args.split
    if args.clips:
        report["clips_from"] = str(args.clips)
    _write(out, report)
    if args.render:
        name = args.render_clip or trials.worst
        clip_report.write_video(results[0], env, name, args.render)
        print(f"video of {name} in {args.render}")


def _with_pushes(config: TrainConfig, args: EvaluateArgs) -> TrainConfig:
    """Return the settings of a run with the pushes of --push and --push-every."""
    given = {"push": args.push, "push_every": args.push_every}
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(config, motion=replace(config.motion, **chosen))


def _play_trials(
    args: EvaluateArgs,
    config: TrainConfig,
    env: "VectorEnv",
    policy: "LoadedPolicy",
    *,
    poses: bool,
) -> tuple["Episodes", "Episodes | None"]:
    """Play all trials with the policy and, by the same program, with actions of zero."""
    from jaxrl.algorithms.policy import zero_policy
    from jaxrl.envs import factory as environments
    from jaxrl.evaluation import episodes as evaluation
    from jaxrl.policies import load

    copies = environments.for_evaluation(env, env.template.trials)
    deterministic = not config.eval.sample_actions(args.stochastic)
    play = load.player(
        policy,
        config,
        copies,
        seed=args.seed,
        deterministic=deterministic,
        record=evaluation.with_qpos(copies) if poses and args.render else None,
        stage=progress.stage,
    )
    # Sampled actions are not zero, nor need those of a user's own networks be.
    continuous = not policy.spec.action.discrete
    suited = deterministic and continuous and config.network.module is None
    has_zero = suited and bool(env.hooks.trial_criteria)
    return play(policy.params), play(zero_policy(policy.params)) if has_zero else None


def _nan_to_null(value: Any) -> Any:
    """Return a report with null for every non-finite number: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _nan_to_null(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_nan_to_null(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_clips(config: TrainConfig, args: EvaluateArgs) -> TrainConfig:
    """Return the settings of a run with the clips of --clips and --split."""
    for flag, given in (("--clips", args.clips), ("--split", args.split), ("--push", args.push)):
        if given is not None and config.env not in env_names.MOTION:
            raise UserError(f"{flag}: the environment '{config.env}' follows no motion clips.")
    if config.motion.push_trials:  # pushes are a condition of their own
        config = replace(config, motion=replace(config.motion, push_trials=False))
    if args.clips is not None:
        if config.env == "imitation":
            _warn_of_plans(config.motion.clips, args.clips)
        config = replace(config, motion=replace(config.motion, clips=args.clips, split="all"))
    if args.split is not None:
        config = replace(config, motion=replace(config.motion, split=args.split))
    return config


def _warn_of_plans(trained: Path | None, chosen: Path) -> None:
    """Warn if a policy trained on planned clips evaluates clips without plans."""
    from jaxrl.motion import formats

    # Errors of the chosen clips are raised when they are read; the others may be gone.
    with contextlib.suppress(UserError):
        if trained and formats.any_planned(trained) and not formats.any_planned(chosen):
            print(
                "This policy was trained on planned clips and will hardly follow others as they "
                f"are. Plan them first: {command_line.prog('clips.plan')} {chosen} PLANNED"
            )


def _check_clips(args: EvaluateArgs, env: "VectorEnv | GymnasiumEnv") -> None:
    """Raise a UserError for flags that do not suit the environment, before anything is played."""
    template = getattr(env, "template", None)  # Gymnasium environments have none
    if template is not None and template.trials:
        if args.only:
            raise UserError("--only: motion clips are played once each; see the table of clips.")
        if args.episodes is not None:
            print(f"--episodes is ignored: each clip is played once, {template.trials} in all")
    elif args.render or args.render_clip:
        render = command_line.prog("render")
        raise UserError(f"--render draws motion clips: for this run use {render}.")
    if args.render_clip and not args.render:
        raise UserError("--render-clip needs --render: the file to write.")
    if args.render and args.render.suffix not in (".gif", ".png"):
        raise UserError(f"--render '{args.render}': the file must end in .gif or .png.")
    if args.render_clip:
        names = cast("VectorEnv", env).hooks.trial_names
        if args.render_clip not in names:
            hint = nearest(args.render_clip, names)
            raise UserError(f"--render-clip: there is no clip '{args.render_clip}'.{hint}")


if __name__ == "__main__":
    sys.exit(main())
