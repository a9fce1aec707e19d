"""How each command of the documents is tried: the rules, and what they do."""

import argparse
import importlib
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro

from experiments import run, search, study
from jaxrl import train
from jaxrl.config import LogConfig, TrainConfig, env_names, overrides, presets
from jaxrl.programs import DeviceProgram, device, memory_estimate
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.training import fit, population
from tests.docs.reading import ROOT
from tests.docs.shrinking import STAND_INS, has_physics, shrunk, with_stand_in
from tests.helpers import sharing

# A run that somebody has trained: `RUN`, or a folder with a stamp or dots in place of it; or a
# folder of runs.
RUN = re.compile(r"\bRUN\b|\bFOLDER\b|runs/[a-z0-9_-]+-s\d+-[\w.-]+")
_MOTION = re.compile(r"runs/(imitate|amp)")


class Parsed(Exception):
    """The arguments of a command were understood."""


class Commands:
    """Tries commands in a working directory; `trained` is a run to work on."""

    known: dict[str, Path] = {}  # programs that an earlier command has run, of any document

    def __init__(self, trained: Path, monkeypatch: Any):
        self.trained, self.patch, self.number = trained, monkeypatch, 0
        self.build, self.parse, cells = fit.build, train._parse, study.Study.cells
        monkeypatch.setattr(device, "compile_programs", compile_once)
        monkeypatch.setattr(fit, "build", lambda config: self.build(shrunk(config)))
        monkeypatch.setattr(train, "_parse", lambda words: _small(self.parse(words)))
        monkeypatch.setattr(
            study.Study, "cells", lambda *a, **k: {c: shrunk(x) for c, x in cells(*a, **k).items()}
        )

    def placed(self, text: str) -> str:
        """Put a fresh copy of the run in the place of every run that somebody is to have."""

        def copy(found: re.Match) -> str:
            self.number += 1
            folder = Path(f"copies/{self.number}")
            shutil.copytree(self.trained, folder / "run")
            return str(folder if found.group() == "FOLDER" else folder / "run")

        return RUN.sub(copy, text)

    def attempt(self, command: str) -> None:
        """Try a command by its rule."""
        rule = rule_for(command)
        assert rule, f"no rule for: {command}"
        rule(self, command)

    def trains(self, command: str) -> None:
        """Check the settings of all members; then train, small.

        What has physics is built, full size, and trained with another environment in its place,
        unless that takes long to compile. What an earlier command has run is not run again.
        """
        words = shlex.split(self.placed(command))[3:]
        if "--help" in words:
            return _succeeds(train, words)
        if "--resume" in words:
            assert tyro.cli(train.ResumeArgs, args=words)
            flags = [word for word in words if word.startswith("--")]
            return self._once(str(flags), lambda folder: _succeeds(train, words))
        asked = self.parse(words)
        config, members = asked.config, _members(asked)
        if has_physics(config) and not (config.init_from or config.run_dir):
            full = _program(config, len(members))
            self._once(full, lambda folder: _described(self.build, members))
            if config.algo != "ppo" or config.amp.weight or len(members) > 1:
                return  # tests/runtime trains such
        program = _program(shrunk(config), len(members), asked.vary, bool(config.init_from))
        self._once(program, lambda folder: _succeeds(train, [*words, "--run-dir", str(folder)]))
        if config.run_dir:  # another command goes on from there
            shutil.copytree(self.known[program], config.run_dir)

    def _once(self, program: str, do: Callable[[Path], Any]) -> None:
        """Do something for a program, in a folder of its own, unless that was done before."""
        if program not in self.known:
            folder = self.trained.parent / f"run-{len(self.known)}"
            do(folder)
            self.known[program] = folder

    def plays(self, command: str) -> None:
        """Run it on a run; what needs motion clips is parsed only, and tested elsewhere."""
        if _MOTION.search(command):
            return self.parses(command)
        module, *words = shlex.split(self.placed(command))[2:]
        _succeeds(_module(module), words or ["--help"])

    def studies(self, command: str) -> None:
        """Run a study of the document's own; others are tested with the studies."""
        words = shlex.split(command)[3:]
        file = Path("experiments/studies") / f"{words[0]}.py"
        if not file.exists():
            assert (ROOT / file).exists(), file
            return self.parses(command)
        for module in (run, study):  # wherever studies are looked for
            self.patch.setattr(module, "HERE", Path("experiments").absolute(), raising=False)
        assert run.main([*words, "--smoke"]) == 0

    def searches(self, command: str) -> None:
        """Search, with one trial of next to nothing."""
        words = [*shlex.split(command)[3:], "--smoke", "--trials", "1"]
        _succeeds(search, [*words, "--out", "searched"])

    def parses(self, command: str) -> None:
        """Let the module read its arguments, and no more.

        Benchmarks need no more: tests/benchmarks/test_benchmarks.py runs each in its quick form.
        """
        module, *words = shlex.split(command)[2:]
        inside: list[bool] = []
        with self.patch.context() as patch:
            for owner, name in _PARSERS:
                patch.setattr(owner, name, _stopping(getattr(owner, name), inside))
            patch.setattr(sys, "argv", [module, *words])
            try:
                _module(module).main()
            except Parsed as parsed:
                found, rest = parsed.args
        for name in getattr(found, "presets", None) or []:
            assert presets.get(name)
        rest = [word for word in rest if word != "--"]
        assert not rest or train._parse(rest)

    def prints(self, command: str) -> None:
        """Run what only prints."""
        importlib.import_module(f"{shlex.split(command)[2]}.__main__")

    def makes(self, command: str) -> None:
        """See that the target exists."""
        target = command.split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target

    def installs(self, command: str) -> None:
        """See that the extras exist."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extra in re.findall(r"jaxrl\[(\w+)\]", command):
            assert extra in project["optional-dependencies"], extra

    def stays(self, command: str) -> None:
        """Leave other people's programs alone, but see that our own files are there."""
        for file in re.findall(r"\b(?:tools|experiments)/[\w/.]+\.\w+", command):
            assert (ROOT / file).exists(), file


_PARSERS = (
    (argparse.ArgumentParser, "parse_args"),
    (argparse.ArgumentParser, "parse_known_args"),
    (tyro, "cli"),
)
# The first that fits decides. A command that fits none fails the test.
RULES = (
    (r"make ", Commands.makes),
    (r"pip install ", Commands.installs),
    (r"python -m jaxrl\.config(\.presets)?$", Commands.prints),
    (r"python -m jaxrl\.train\b", Commands.trains),
    (r"python -m jaxrl\.clips\.\w+ ", Commands.parses),
    (r"python -m jaxrl\.", Commands.plays),
    (r"python -m experiments\.run ", Commands.studies),
    (r"python -m experiments\.search ", Commands.searches),
    (r"python -m (benchmarks|experiments)\.", Commands.parses),
    (r"git |cd |tensorboard |jupyter |python3 -m venv |onnx/bin/", Commands.stays),
)


def rule_for(command: str) -> Callable[[Commands, str], None] | None:
    """Return the first rule that fits."""
    return next((rule for pattern, rule in RULES if re.match(pattern, command)), None)


def _small(command: train.TrainArgs) -> train.TrainArgs:
    return command if command.dry_run else replace(command, config=shrunk(command.config))


def _members(command: train.TrainArgs) -> list[TrainConfig]:
    """Return what a command trains, checked as the command does it."""
    members = overrides.members(command.config, command.num_seeds, command.vary)
    overrides.check(members)
    return members


def _program(config: TrainConfig, *more: object) -> str:
    """Return what must be equal for two commands to run the same program."""
    config = replace(config, epochs=1, init_from=None, profile=False, log=LogConfig())
    return repr((population._shape(config), more))


def compile_once(program: DeviceProgram) -> DeviceExecutor:
    """Give a run the programs of an earlier one that differs in traced numbers at most.

    What it learns is not looked at. Worlds of the documents may differ and have the same name.
    """
    env = program.config.env
    if env_names.is_custom(env) and env not in STAND_INS.values():
        return compile_programs(program)
    return sharing.compile_once(program, _program(program.config, len(program.members)))


def _described(build: Callable, members: list[TrainConfig]) -> None:
    small = [with_stand_in(member) for member in members]
    assert memory_estimate.report(
        fit.build_population(small) if len(small) > 1 else build(small[0])
    )


def _succeeds(module: Any, words: list[str]) -> None:
    try:
        status = module.main(words)
    except SystemExit as asked:  # --help
        status = asked.code
    assert not status, f"{module.__name__} {shlex.join(words)}: exit status {status}"


def _stopping(parse: Callable, inside: list[bool]) -> Callable:
    """Return a parser that stops when it is done; one that another parser calls does not."""

    def stop(*arguments: Any, **named: Any) -> Any:
        if inside:
            return parse(*arguments, **named)
        inside.append(True)
        try:
            found = parse(*arguments, **named)
        finally:
            inside.clear()
        raise Parsed(*(found if isinstance(found, tuple) else (found, [])))

    return stop


def _module(name: str) -> Any:
    """Return what `python -m` runs."""
    found = importlib.import_module(name)
    return importlib.import_module(f"{name}.__main__") if hasattr(found, "__path__") else found
