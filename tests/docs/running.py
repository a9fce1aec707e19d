"""Rules for testing each command of the documents."""

import argparse
import importlib
import re
import shlex
import shutil
import sys
import tomllib
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro

from jaxrl import launch, programs, record, train
from jaxrl.config import LogConfig, TrainConfig, distributed, env_names, overrides, presets, zoo
from jaxrl.programs import DeviceProgram, device, memory_estimate
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.studies import search, study
from jaxrl.training import fit, population
from tests.docs.reading import ROOT
from tests.docs.shrinking import STAND_INS, shrunk, with_stand_in
from tests.helpers import sharing
from tests.helpers.stepping import trace_iteration

# Placeholders of a trained run (`RUN`, or a folder with a time stamp or dots), or a folder of runs.
RUN = re.compile(r"\bRUN\b|\bFOLDER\b|runs/[a-z0-9_-]+-s\d+-[\w.-]+")
_NUMBER = re.compile(r"(?<=[=(\s])-?\d[\d.e-]*")
_MOTION = re.compile(r"runs/(imitate|amp)")


class Parsed(Exception):
    """The arguments of a command were parsed without error."""


class Commands:
    """Test commands in a working directory; `trained` is a run for those that need one."""

    known: dict[str, Path] = {}  # folders of programs that ran already, over all documents

    def __init__(self, trained: Path, monkeypatch: Any):
        self.trained, self.patch, self.number = trained, monkeypatch, 0
        self.later = ""  # what the document says after the command
        self.build, self.parse, cells = programs.build, train._parse, study.Study.cells
        monkeypatch.setattr(device, "compile_programs", compile_once)
        small = types.SimpleNamespace(build=lambda config: self.build(shrunk(config)))
        monkeypatch.setattr(fit, "programs", small)
        monkeypatch.setattr(train, "_parse", lambda words: _small(self.parse(words)))
        monkeypatch.setattr(
            study.Study, "cells", lambda *a, **k: {c: shrunk(x) for c, x in cells(*a, **k).items()}
        )

    def substitute_runs(self, text: str) -> str:
        """Replace every placeholder of a run with the path of a fresh copy."""

        def copy(found: re.Match) -> str:
            self.number += 1
            folder = Path(f"copies/{self.number}")
            shutil.copytree(self.trained, folder / "run")
            return str(folder if found.group() == "FOLDER" else folder / "run")

        return RUN.sub(copy, text)

    def run(self, command: str, later: str = "") -> None:
        """Test a command by its rule; `later` are the commands after it."""
        rule, self.later = rule_for(command), later
        assert rule, f"no rule for: {command}"
        rule(self, command)

    def trains(self, command: str) -> None:
        """Validate the settings of all members, build the run at its full size and trace it.

        Physics is replaced by a cheap stand-in. Only commands that begin with another run, or name
        a folder that a later one uses, are trained, and only in a small version: tests of other
        folders train all kinds. Programs that an earlier command used are skipped.
        """
        _, words = distributed.parse(shlex.split(self.substitute_runs(command))[3:], {})
        words = train._without_auto(words)
        if "--help" in words:
            return _succeeds(train, words)
        if "--resume" in words:
            assert tyro.cli(train.ResumeArgs, args=words)
            flags = [word for word in words if word.startswith("--")]
            return self._once(str(flags), lambda folder: _succeeds(train, words))
        command_args = self.parse(words)
        config, members = command_args.config, _members(command_args)
        is_used = config.run_dir and str(config.run_dir) in self.later
        if not (config.init_from or is_used):
            # Sizes do not change how a program is traced; all of them have been validated.
            program = _NUMBER.sub("N", _program(with_stand_in(config), len(members) > 1))
            return self._once(program, lambda folder: _traces(self.build, members))
        program = _program(shrunk(config), len(members), command_args.vary, bool(config.init_from))
        self._once(program, lambda folder: _succeeds(train, [*words, "--run-dir", str(folder)]))
        if is_used:
            shutil.copytree(self.known[program], config.run_dir)

    def _once(self, program: str, action: Callable[[Path], Any]) -> None:
        """Call `action` with a new folder, once per program."""
        if program not in self.known:
            folder = self.trained.parent / f"run-{len(self.known)}"
            action(folder)
            self.known[program] = folder

    def plays(self, command: str) -> None:
        """Run the command on a run, once for commands that differ in numbers only.

        Commands that need motion clips are only parsed.
        """
        module, *words = shlex.split(command)[2:]
        if words and "--help" not in words:
            self.parses(command)
        if _MOTION.search(command):
            return
        program = re.sub(r"(?<= )\d+(?= |$)", "N", RUN.sub("RUN", command))
        words = shlex.split(self.substitute_runs(shlex.join(words))) or ["--help"]
        self._once(program, lambda _: _succeeds(_module(module), words))

    def plays_zoo(self, command: str) -> None:
        """Play a cheap policy in place of the one named, which must exist; open no browser."""
        for name in re.findall(r"zoo:([\w-]+)|zoo watch ([\w-]+)", command):
            assert "".join(name) in zoo.names(), command
        command = re.sub(r"(zoo:|zoo watch )[\w-]+", r"\1pendulum", command)
        self.plays(f"{command} --no-open" if " watch " in command else command)

    def launches(self, command: str) -> None:
        """Check the command that each process would run."""
        _, words = launch._parsed(shlex.split(command)[3:])
        self.trains(shlex.join(["python", "-m", "jaxrl.train", *words]))

    def records(self, command: str) -> None:
        """Record a few episodes of a run, once, and copy the file for later commands."""
        words = shlex.split(command)[3:]
        parsed = tyro.cli(record.RecordArgs, args=words)
        run = self.substitute_runs(str(parsed.run))
        flags = ["--episodes", "8", "--noise", *map(str, parsed.noise[:2])]
        key = f"record {parsed.run if run == str(parsed.run) else 'RUN'}"
        self._once(key, lambda file: _succeeds(record, [run, *flags, "--out", str(file)]))
        shutil.copy(self.known[key], parsed.out)

    def studies(self, command: str) -> None:
        """Parse the arguments, and trace the programs of a study that the document defines.

        tests/studies runs a study.
        """
        self.parses(command)
        name = shlex.split(command)[3]
        if not Path(name).exists():
            assert study.find(_file_of(name)), name
            return
        cells = list(study.load(name).cells().values())
        overrides.check(cells)
        for group in population.groups(cells):
            _traces(self.build, [cells[number] for number in group])

    def searches(self, command: str) -> None:
        """Parse the arguments and check the ranges; tests/studies/test_search.py searches."""
        self.parses(command)
        chosen = study.load(_file_of(shlex.split(command)[3]))
        assert chosen.search
        search.check_ranges(chosen)

    def parses(self, command: str) -> None:
        """Only parse the arguments.

        Benchmarks need no more: tests/benchmarks/test_benchmarks.py runs each with --quick.
        """
        module, *words = shlex.split(command)[2:]
        nested: list[bool] = []
        with self.patch.context() as patch:
            for owner, name in _PARSERS:
                patch.setattr(owner, name, _raising_parsed(getattr(owner, name), nested))
            patch.setattr(sys, "argv", [module, *words])
            try:
                _module(module).main()
                raise AssertionError(f"{module} refuses {words}")
            except Parsed as parsed:
                found, rest = parsed.args
        for name in getattr(found, "presets", None) or []:
            assert presets.get(name)
        rest = [word for word in rest if word != "--"]
        assert not rest or train._parse(rest)

    def prints(self, command: str) -> None:
        """Run a module that only prints."""
        importlib.import_module(f"{shlex.split(command)[2]}.__main__")

    def evaluates(self, command: str) -> None:
        """Run the code."""
        exec(shlex.split(command)[2], {})

    def makes(self, command: str) -> None:
        """Check that the Makefile has the target."""
        target = command.split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target

    def installs(self, command: str) -> None:
        """Check that pyproject.toml has the extras."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"(?:jaxrl|\.)\[([\w,]+)\]", command):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), extras

    def skips(self, command: str) -> None:
        """Do not run third-party programs; check that our files in their arguments exist."""
        for file in re.findall(r"\b(?:tools|experiments)/[\w/.]+\.\w+", command):
            assert (ROOT / file).exists(), file


_PARSERS = (
    (argparse.ArgumentParser, "parse_args"),
    (argparse.ArgumentParser, "parse_known_args"),
    (tyro, "cli"),
)
# The first matching rule applies; a command without a rule fails the test.
RULES = (
    (r"make ", Commands.makes),
    (r"(uv )?pip install ", Commands.installs),
    (r"docker (build|run) ", Commands.skips),  # tests/test_docker.py reads them
    (r"python -c ", Commands.evaluates),
    (r"python -m jaxrl\.config(\.presets)?$", Commands.prints),
    (r"python -m jaxrl\.train\b", Commands.trains),
    (r"python -m jaxrl\.clips\.\w+ ", Commands.parses),
    (r"python -m jaxrl\.record ", Commands.records),
    (r"python -m jaxrl\.launch ", Commands.launches),
    (r"python -m jaxrl\.(zoo\b|\w+ zoo:)", Commands.plays_zoo),
    (r"python -m jaxrl\.render .* --follow\b", Commands.parses),  # serves until Ctrl-C
    # Needs a robot, which tests/rendering/test_steering.py has.
    (r"python -m jaxrl\.render .* --steer\b", Commands.parses),
    (r"python -m jaxrl\.studies\.\w+$", Commands.plays),
    (r"python -m jaxrl\.studies\.run ", Commands.studies),
    (r"python -m jaxrl\.studies\.search ", Commands.searches),
    (r"python -m jaxrl\.studies\.", Commands.parses),
    (r"python -m jaxrl\.", Commands.plays),
    (r"python -m (benchmarks|experiments)\.", Commands.parses),
    (r"git |cd |tensorboard |jupyter |python3 -m venv |onnx/bin/|python tools/", Commands.skips),
)


def rule_for(command: str) -> Callable[[Commands, str], None] | None:
    """Return the first matching rule."""
    return next((rule for pattern, rule in RULES if re.match(pattern, command)), None)


def _small(command: train.TrainArgs) -> train.TrainArgs:
    """Shrink what a command trains; the documents evaluate by a command of its own."""
    if command.dry_run:
        return command
    config = shrunk(command.config)
    return replace(command, config=replace(config, eval=replace(config.eval, num_envs=0)))


def _members(command: train.TrainArgs) -> list[TrainConfig]:
    """Return the validated configurations of a command's members."""
    members = overrides.members(command.config, command.num_seeds, command.vary)
    overrides.check(members)
    return members


def _program(config: TrainConfig, *more: object) -> str:
    """Return a key that is equal for commands that run the same program."""
    config = replace(config, epochs=1, init_from=None, run_dir=None, profile=False)
    config = replace(config, log=LogConfig(), data=replace(config.data, path=None))
    return repr((population._shape(config), more))


def compile_once(program: DeviceProgram) -> DeviceExecutor:
    """Reuse the programs of an earlier run that differs only in traced settings.

    Training results are not checked. Custom environments of the documents are compiled every time:
    different ones may have the same name.
    """
    env = program.config.env
    if env_names.is_custom(env) and env not in STAND_INS.values():
        return compile_programs(program)
    data = program.config.data
    return sharing.compile_once(program, _program(program.config, len(program.members), data))


def _traces(build: Callable, members: list[TrainConfig]) -> None:
    """Build a run at its full size, estimate its memory, and trace an iteration."""
    small = [with_stand_in(member) for member in members]
    program = population.build(small) if len(small) > 1 else build(small[0])
    assert memory_estimate.report(program)
    trace_iteration(program)


def _file_of(study: str) -> str:
    """Return the file of a study: the document's own, or one of experiments/studies."""
    return study if Path(study).exists() else str(ROOT / "experiments/studies" / f"{study}.py")


def _succeeds(module: Any, words: list[str]) -> None:
    try:
        status = module.main(words)
    except SystemExit as exited:  # --help
        status = exited.code
    assert not status, f"{module.__name__} {shlex.join(words)}: exit status {status}"


def _raising_parsed(parse: Callable, nested: list[bool]) -> Callable:
    """Wrap a parser to raise Parsed when done, except where another parser calls it."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if nested:
            return parse(*arguments, **named)
        nested.append(True)
        try:
            found = parse(*arguments, **named)
        finally:
            nested.clear()
        raise Parsed(*(found if isinstance(found, tuple) else (found, [])))

    return wrapped


def _module(name: str) -> Any:
    """Return the module that `python -m` runs."""
    found = importlib.import_module(name)
    return importlib.import_module(f"{name}.__main__") if hasattr(found, "__path__") else found
