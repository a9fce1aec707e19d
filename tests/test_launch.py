"""Starting several processes on one machine; what they train is tested in tests/training."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jaxrl import launch

# JAX warns of forks wherever it is imported; the launcher itself does not import it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


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


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


STOPS = """\
import os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
def stop(number, frame):
    (here / f"stopped-{os.environ['JAXRL_PROCESS']}").write_text(str(number))
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
(here / f"ready-{os.environ['JAXRL_PROCESS']}").write_text(str(os.getpid()))
time.sleep(60)
"""


def test_sigterm_is_passed_on(script, tmp_path):
    script(STOPS)

    def terminate():
        wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=terminate)
    sender.start()
    assert launch.main(["--processes", "2", "--", "ant"]) == 128 + signal.SIGTERM
    sender.join()
    assert [path.read_text() for path in tmp_path.glob("stopped-*")] == ["15", "15"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_processes_are_asked_to_stop_when_the_launcher_is_killed(tmp_path):
    python = tmp_path / "python"  # in place of that of jaxrl.train
    (tmp_path / "program.py").write_text(STOPS)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/program.py\n")
    python.chmod(0o755)
    code = f"import sys; from jaxrl import launch; sys.executable = '{python}'; launch.main()"
    with subprocess.Popen([sys.executable, "-c", code, "--processes", "2", "--", "ant"]) as process:
        wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
        process.kill()
    wait_for(lambda: len(list(tmp_path.glob("stopped-*"))) == 2)


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
