"""What several processes check before they train together, with other processes made up."""

import json
from types import SimpleNamespace

import jax
import pytest

from jaxrl import train
from jaxrl.errors import UserError
from jaxrl.training import startup
from jaxrl.utils import processes
from tests.helpers import tiny


@pytest.fixture
def others(monkeypatch):
    """A function that says what processes 1, 2 and 3 have other than process 0."""

    def say(*changes):
        def gather(text):
            if not text.startswith("{"):
                return [text] * 4
            return [json.dumps(json.loads(text) | change) for change in ({}, *changes)]

        monkeypatch.setattr(processes, "count", lambda: 4)
        monkeypatch.setattr(processes, "gather", gather)
        config = train._parse(tiny.FLAGS).config
        mesh = SimpleNamespace(size=len(jax.devices()))
        program = SimpleNamespace(config=config, members=(), mesh=mesh, supports_processes=True)
        startup.check_alike(program)

    return say


def test_all_processes_that_differ_are_named(others):
    others({}, {}, {})
    with pytest.raises(UserError) as raised:
        others({"--ppo.lam": 0.5}, {}, {"--ppo.lam": 0.5})
    text = "Processes differ in --ppo.lam: processes 0, 2 have 0.95; processes 1, 3 have 0.5. "
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize("what", ["the version of jax", "the version of Python"])
def test_other_versions_are_refused(others, what):
    with pytest.raises(UserError, match=f'differ in {what}: .*; process 3 has "0.1"'):
        others({}, {}, {what: "0.1"})


def test_other_commits_are_refused_where_git_answers_everywhere(others, monkeypatch):
    commit = startup._COMMIT
    made = startup._identity
    monkeypatch.setattr(startup, "_identity", lambda program: made(program) | {commit: "a1"})
    with pytest.raises(UserError, match=f'differ in {commit}: .*; process 2 has "b2"'):
        others({}, {commit: "b2"}, {})
    others({commit: ""}, {commit: "b2"}, {})
