"""Starting several processes on one machine; what they train is tested in tests/training."""

import sys

import pytest

from jaxrl import launch


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that replaces jaxrl.train by a few lines of Python."""
    popen = launch.subprocess.Popen

    def use(code):
        (tmp_path / "program.py").write_text(code)

        def start(command, **options):
            return popen([sys.executable, str(tmp_path / "program.py"), *command[3:]], **options)

        monkeypatch.setattr(launch.subprocess, "Popen", start)

    return use


def test_processes_know_their_numbers_and_arguments(script, tmp_path):
    script(
        "import os, sys, pathlib\n"
        "rank = os.environ['JAXRL_PROCESS']\n"
        "text = ' '.join([os.environ['JAXRL_PROCESSES'], os.environ['JAX_NUM_CPU_DEVICES'],"
        " os.environ['JAXRL_COORDINATOR'].split(':')[0], *sys.argv[1:]])\n"
        f"pathlib.Path({str(tmp_path)!r}, rank).write_text(text)\n"
    )
    assert launch.main(["--processes", "3", "--cpu-devices", "2", "--", "ant", "--seed", "4"]) == 0
    texts = {(tmp_path / str(rank)).read_text() for rank in range(3)}
    assert texts == {"3 2 127.0.0.1 ant --seed 4"}


def test_first_failure_ends_all_and_others_are_prefixed(script, monkeypatch, capfd):
    monkeypatch.setattr(launch, "_GRACE", 0.5)
    script(
        "import os, sys, time\n"
        "if os.environ['JAXRL_PROCESS'] == '1':\n"
        "    print('no room')\n"
        "    sys.exit(3)\n"
        "time.sleep(60)\n"
    )
    assert launch.main(["--processes", "2", "--", "ant"]) == 3
    shown = capfd.readouterr().err
    assert "[1] no room" in shown and "process 1 of 2 ended with status 3" in shown


@pytest.mark.parametrize(
    "words, text",
    [
        (["--processes", "2"], "Give what to train after --"),
        (["--processes", "0", "--", "ant"], "--processes must be at least 1, not 0"),
        (["--cpu-devices", "0", "--", "ant"], "--cpu-devices must be at least 1, not 0"),
    ],
)
def test_unusable_arguments_are_refused(words, text, capsys):
    assert launch.main(words) == 2
    assert text in capsys.readouterr().err
