"""Locks of run folders, with flock and with a heartbeat file."""

import errno
import json
import os
import socket
import time

import pytest

from jaxrl.errors import UserError
from jaxrl.loggers import lock_file
from jaxrl.loggers import run_dir as folders


@pytest.fixture
def without_flock(monkeypatch):
    monkeypatch.setattr(lock_file, "_SETTLE", 0.0)
    refuse_flock(monkeypatch, errno.ENOTSUP)


def refuse_flock(monkeypatch, number):
    def flock(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folders.fcntl, "flock", flock)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.ENOSYS])
def test_lock_file_is_used_without_flock(tmp_path, monkeypatch, capsys, number):
    refuse_flock(monkeypatch, number)
    with folders.locked(tmp_path) as lock:
        assert "has no flock: a lock file with a heartbeat" in capsys.readouterr().out
        owner = json.loads((tmp_path / lock_file.NAME).read_text())
        assert (owner["host"], owner["pid"]) == (socket.gethostname(), os.getpid())
        lock.check()
        message = f"process {os.getpid()} on {socket.gethostname()}, heartbeat 0 s ago"
        with pytest.raises(UserError, match=message), folders.locked(tmp_path):
            pass
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EWOULDBLOCK, "Another process is training"),
        (errno.EIO, "cannot be locked: Input/output error"),
    ],
)
def test_only_ewouldblock_means_another_process(tmp_path, monkeypatch, number, message):
    refuse_flock(monkeypatch, number)
    with pytest.raises(UserError, match=message), folders.locked(tmp_path):
        pass


def test_flock_needs_no_heartbeat_file(tmp_path):
    with folders.locked(tmp_path) as lock:
        assert lock is None and not (tmp_path / lock_file.NAME).exists()
        with pytest.raises(UserError, match="Another process"), folders.locked(tmp_path):
            pass


@pytest.mark.parametrize("text", ['{"host": "gone", "pid": 1, "token": "x"}', "", "[1]"])
def test_stale_lock_is_taken_over(tmp_path, without_flock, text):
    file = tmp_path / lock_file.NAME
    file.write_text(text)
    with pytest.raises(UserError, match="Another process"), folders.locked(tmp_path):
        pass
    long_ago = time.time() - lock_file.STALE - 1
    os.utime(file, (long_ago, long_ago))
    with folders.locked(tmp_path):
        assert json.loads(file.read_text())["pid"] == os.getpid()
    assert not file.exists()


def test_heartbeat_runs_until_another_process_takes_over(tmp_path, without_flock, monkeypatch):
    monkeypatch.setattr(lock_file, "BEAT", 0.01)
    file = tmp_path / lock_file.NAME
    with folders.locked(tmp_path) as lock:
        os.utime(file, (1.0, 1.0))
        until = time.monotonic() + 10
        while file.stat().st_mtime < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert file.stat().st_mtime > 2
        file.write_text(json.dumps({"host": "other", "pid": 7, "token": "x"}))
        with pytest.raises(lock_file.LockLost, match="process 7 on other"):
            lock.check()
    assert json.loads(file.read_text())["pid"] == 7  # the other process's lock is kept


@pytest.mark.parametrize("name", [".lock", lock_file.NAME])
def test_symbolic_links_are_not_followed(tmp_path, without_flock, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(victim)
    with pytest.raises(UserError), folders.locked(run):
        pass
    assert victim.read_text() == "precious"
