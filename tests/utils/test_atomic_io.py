"""Atomic file writes that never follow symbolic links."""

import os
import time

import pytest

from jaxrl.errors import UserError
from jaxrl.utils import atomic_io


@pytest.fixture
def victim(tmp_path):
    """A file outside the run folder, which must not change."""
    file = tmp_path / "victim"
    file.write_text("precious")
    (tmp_path / "run").mkdir()
    yield file
    assert file.read_text() == "precious"


@pytest.fixture
def run(victim):
    return victim.parent / "run"


@pytest.mark.parametrize("link_name", ["x.json", "x.json.tmp"])
def test_write_does_not_follow_links(run, victim, link_name):
    (run / link_name).symlink_to(victim)
    atomic_io.write_text(run / "x.json", "new")
    assert (run / "x.json").read_text() == "new" and not (run / "x.json").is_symlink()


def test_append_refuses_links(run, victim):
    (run / "metrics.jsonl").symlink_to(victim)
    with pytest.raises(UserError, match="metrics.jsonl' is a symbolic link: remove it"):
        atomic_io.appending(run / "metrics.jsonl")


def test_a_pipe_is_refused_and_does_not_block(run):
    os.mkfifo(run / "pipe")
    for use in (atomic_io.appending, atomic_io.read_text):
        with pytest.raises(UserError, match="pipe' is not a regular file"):
            use(run / "pipe")


def test_failed_write_keeps_the_old_file(run):
    atomic_io.write_text(run / "x", "old")
    with pytest.raises(ZeroDivisionError), atomic_io.replacing(run / "x") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [entry.name for entry in run.iterdir()] == ["x"]
    assert (run / "x").read_text() == "old"


def test_written_files_have_the_usual_permissions(run):
    atomic_io.write_text(run / "a", "")
    (run / "b").touch()
    assert (run / "a").stat().st_mode == (run / "b").stat().st_mode


def test_stale_temporary_files_are_removed(run):
    (run / "policies").mkdir()
    names = [".jaxrl-0.tmp", "policies/.jaxrl-1.tmp", ".jaxrl-young.tmp", "x.tmp", ".lock"]
    for name in names:
        (run / name).touch()
        if "young" not in name:
            os.utime(run / name, (time.time() - 1000,) * 2)
    atomic_io.remove_drafts(run)
    left = {str(path.relative_to(run)) for path in run.rglob("*")}
    assert left == {"policies", ".jaxrl-young.tmp", "x.tmp", ".lock"}


def test_read_text_checks_size_and_encoding(run):
    (run / "x").write_bytes(b"12345")
    assert atomic_io.read_text(run / "x", 5) == "12345"
    with pytest.raises(UserError, match="x' is larger than 4 bytes"):
        atomic_io.read_text(run / "x", 4)
    (run / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="x' is not a text file"):
        atomic_io.read_text(run / "x")
    with pytest.raises(FileNotFoundError):
        atomic_io.read_text(run / "missing")


PARTS = [".lock", "metrics.jsonl", "policies", "policies/best.npz", "checkpoints/8/arrays/0"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("target", ["victim", "nowhere", "/dev/null", "../run/../victim"])
def test_links_out_of_the_folder_are_refused(run, part, target):
    (run / part).parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(run.parent / target, (run / part).parent)
    (run / part).symlink_to(target)
    with pytest.raises(UserError, match=f"{part}' is a symbolic link that leads out"):
        atomic_io.check_folder(run)


def test_links_within_the_folder_and_to_the_folder_are_allowed(run):
    (run / "checkpoints" / "8").mkdir(parents=True)
    (run / "latest").symlink_to("checkpoints/8")
    (run / "loop").symlink_to("loop")
    (run.parent / "link").symlink_to(run)
    atomic_io.check_folder(run)
    atomic_io.check_folder(run.parent / "link")


def test_pipes_in_the_folder_are_refused(run):
    (run / "policies").mkdir()
    os.mkfifo(run / "policies" / "best.npz")
    with pytest.raises(UserError, match=r"policies/best.npz' is neither a file nor a folder"):
        atomic_io.check_folder(run)
