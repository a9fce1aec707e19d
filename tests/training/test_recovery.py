"""A run folder deleted during the run: the state is saved in a new folder."""

import errno
import shutil

import numpy as np
import pytest

import jaxrl
from jaxrl import train
from jaxrl.loggers import lock_file
from jaxrl.loggers import run_dir as folders
from jaxrl.training import recovery
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


class DeletePath:
    """Callback that deletes a path at one event of one cycle."""

    def __init__(self, path, event, cycle):
        def delete(context):
            if context.cycle == cycle:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

        setattr(self, f"on_{event}", delete)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("whole") / "run")


def fit_with_deletion(folder, *where, deleted=""):
    # No save may be in progress: it would find a half-deleted folder.
    config = train._parse(tiny.flags(folder, "--checkpoint.save-freq", "9")).config
    with pytest.raises((recovery.RunFolderLost, OSError)) as caught:
        jaxrl.fit(config, [DeletePath(folder / deleted, *where)])
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def assert_resumes_exactly(folder, finished):
    assert train.main(["--resume", str(folder)]) == 0
    assert tiny.rows(folder) == tiny.rows(finished)
    tiny.assert_same_policy(folder, finished)
    with np.load(folder / "evaluations.npz") as data:
        assert data["timesteps"].tolist() == [256, 512]


@pytest.mark.parametrize(
    ("event", "cycle", "deleted"),
    [("log", 3, ""), ("cycle", 3, "metrics.jsonl"), ("training_end", 4, "")],
)
def test_deleted_folder_is_detected_at_the_next_write(finished, tmp_path, event, cycle, deleted):
    message = fit_with_deletion(tmp_path / "run", event, cycle, deleted=deleted)
    new = tmp_path / "run-recovered"
    assert "was deleted during the run" in message
    assert f"saved in {new} at step {128 * cycle}" in message
    assert f"--resume {new}" in message
    assert_resumes_exactly(new, finished)


def test_folder_deleted_before_an_evaluation_is_recovered(finished, tmp_path):
    message = fit_with_deletion(tmp_path / "run", "cycle", 4)
    assert "evaluations.npz" in message and "saved in" in message
    new = tmp_path / "run-recovered"
    assert [row["step"] for row in tiny.rows(new)] == [128, 256, 384]
    assert (new / "checkpoints" / "512").is_dir()
    tiny.assert_same_policy(new, finished)


def test_run_stops_writing_when_its_lock_is_taken_over(tmp_path, monkeypatch):
    """On a file system without flock, after a long suspension."""

    def without_flock(*arguments):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    def take_over(context):
        (folder / lock_file.NAME).write_text('{"host": "other", "pid": 7, "token": "x"}')

    folder = tmp_path / "run"
    monkeypatch.setattr(folders.fcntl, "flock", without_flock)
    config = train._parse(tiny.flags(folder)).config
    with pytest.raises(lock_file.LockLost, match="process 7 on other"):
        jaxrl.fit(config, [take_over])
    assert [row["step"] for row in tiny.rows(folder)] == [128]
    assert not (folder / "checkpoints").exists() and (folder / lock_file.NAME).exists()


def test_recovery_falls_back_to_a_temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(recovery.tempfile, "tempdir", str(tmp_path))
    found = recovery._new_folder(tmp_path / "file" / "run")
    assert found.is_dir() and found.name.startswith("run-recovered-")
