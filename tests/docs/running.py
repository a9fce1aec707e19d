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

from experiments import run as studies
from experiments.study import Study
from jaxrl import config_checks, presets, train
from jaxrl.config import TrainConfig
from jaxrl.runtime import fitting, population, sizes
from tests.docs.reading import ROOT
from tests.docs.shrinking import has_physics, shrunk, with_stand_in

# A run that somebody has trained: `RUN`, or a folder with a stamp or dots in place of it.
RUN = re.compile(r"\bRUN\b|runs/[a-z0-9_-]+-s\d+-[\w.-]+")
_MOTION = re.compile(r"runs/(imitate|amp)")


class Parsed(Exception):
    """The arguments of a command were understood."""


class Commands:
    """Tries commands in a working directory; `trained` is a run to work on."""

    known: set[str] = set()  # programs that were trained by an earlier command, of any document

    def __init__(self, trained: Path, monkeypatch: Any):
        self.trained, self.patch, self.number = trained, monkeypatch, 0
        self.build, self.parse, cells = fitting.build, train._parse, Study.cells
        monkeypatch.setattr(fitting, "build", lambda config: self.build(shrunk(config)))
        monkeypatch.setattr(train, "_parse", lambda words: _small(self.parse(words)))
        monkeypatch.setattr(
            Study, "cells", lambda *a, **k: {c: shrunk(x) for c, x in cells(*a, **k).items()}
        )

    def placed(self, text: str) -> str:
        """Put a fresh copy of the run in the place of every run that somebody is to have."""

        def copy(_: re.Match) -> str:
            self.number += 1
            return str(shutil.copytree(self.trained, f"copies/{self.number}"))

        return RUN.sub(copy, text)

    def attempt(self, command: str) -> None:
        """Try a command by its rule."""
        rule = rule_for(command)
        assert rule, f"no rule for: {command}"
        rule(self, command)

    def trains(self, command: str) -> None:
        """Check the settings as they are; then train, small. With physics: build, full size.

        What would compile a program that an earlier command has run is not run again, unless
        another command goes on from there.
        """
        words = shlex.split(self.placed(command))[3:]
        if "--help" in words:
            return _succeeds(train, words)
        if "--resume" in words:
            assert tyro.cli(train.ResumeCommand, args=words)
            return self._once(str([w for w in words if w.startswith("--")]), words)
        config = self.parse(words).config
        config_checks.check(config)
        physics, goes_on = has_physics(config), config.init_from or config.run_dir
        same = replace(config if physics else shrunk(config), init_from=None)
        program = repr((population._shape(same), bool(config.init_from), config.run_dir))
        if physics and not goes_on:
            return self._once(program, words, lambda: _described(self.build, config))
        return self._once(program, words)

    def _once(self, program: str, words: list[str], do: Callable[[], None] | None = None) -> None:
        """Do something for a program, or train it, unless that was done before."""
        if program not in self.known:
            self.known.add(program)
            do() if do else _succeeds(train, words)

    def plays(self, command: str) -> None:
        """Run it on a run; what needs motion clips is parsed only, and tested elsewhere."""
        if _MOTION.search(command):
            return self.parses(command)
        module, *words = shlex.split(self.placed(command))[2:]
        _succeeds(importlib.import_module(module), words or ["--help"])

    def studies(self, command: str) -> None:
        """Run a study of the document's own; others are tested with the studies."""
        words = shlex.split(command)[3:]
        own = Path("experiments/studies") / f"{words[0]}.py"
        if not own.exists():
            assert studies.load(words[0]).cells(tiny=True)
            return self.parses(command)
        self.patch.setattr(studies, "HERE", Path("experiments").absolute())
        assert studies.main(words) == 0

    def parses(self, command: str) -> None:
        """Let the module read its arguments, and no more."""
        module, *words = shlex.split(command)[2:]
        with self.patch.context() as patch:
            for owner, name in _PARSERS:
                patch.setattr(owner, name, _stopping(getattr(owner, name)))
            patch.setattr(sys, "argv", [module, *words])
            try:
                importlib.import_module(module).main()
            except Parsed as parsed:
                found, rest = parsed.args
        for name in getattr(found, "presets", None) or []:
            assert presets.get(name)
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
    (r"python -m jaxrl\.presets$", Commands.prints),
    (r"python -m jaxrl\.train\b", Commands.trains),
    (r"python -m jaxrl\.motion\.\w+ ", Commands.parses),
    (r"python -m jaxrl\.", Commands.plays),
    (r"python -m experiments\.run ", Commands.studies),
    (r"python -m (benchmarks|experiments)\.", Commands.parses),
    (r"git |cd |tensorboard |jupyter |python3 -m venv |onnx/bin/", Commands.stays),
)


def rule_for(command: str) -> Callable[[Commands, str], None] | None:
    """Return the first rule that fits."""
    return next((rule for pattern, rule in RULES if re.match(pattern, command)), None)


def _small(command: train.Command) -> train.Command:
    """Leave out evaluations that nobody is going to ask for."""
    config = shrunk(command.config)
    if config.run_dir is None:
        config = replace(config, epochs=1, eval=replace(config.eval, num_envs=0))
    return replace(command, config=config)


def _described(build: Callable, config: TrainConfig) -> None:
    assert sizes.report(build(with_stand_in(config)))


def _succeeds(module: Any, words: list[str]) -> None:
    try:
        status = module.main(words)
    except SystemExit as asked:  # --help
        status = asked.code
    assert not status, f"{module.__name__} {shlex.join(words)}: exit status {status}"


def _stopping(parse: Any) -> Any:
    def stop(*arguments: Any, **named: Any):
        found = parse(*arguments, **named)
        raise Parsed(*(found if isinstance(found, tuple) else (found, [])))

    return stop
