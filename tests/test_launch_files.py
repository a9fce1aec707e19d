"""Files for schedulers: what they set is what the code reads."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from jaxrl import train
from jaxrl.__main__ import COMMANDS
from jaxrl.config import distributed

FOLDER = Path(__file__).parents[1] / "launch"
SCRIPTS = ["slurm.sbatch", "slurm_array.sbatch"]


def flags_of(words):
    """Return the arguments of jaxrl.train in a command, with variables replaced by numbers."""
    rest = words[words.index("jaxrl.train") + 1 :]
    return ["ant" if word == "$@" else re.sub(r"\$[({]?\w+[)}]?", "1", word) for word in rest]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_valid_and_restart(name):
    subprocess.run(["bash", "-n", str(FOLDER / name)], check=True)
    text = (FOLDER / name).read_text()
    options = re.findall(r"^#SBATCH (--[\w-]+)", text, re.M)
    assert {"--requeue", "--time"} <= set(options)
    assert {"--gpus-per-task", "--gpus-per-node"} & set(options)
    first = next(i for i, line in enumerate(text.splitlines()) if line.startswith("set -"))
    last = max(i for i, line in enumerate(text.splitlines()) if line.startswith("#SBATCH"))
    assert last < first  # Slurm ignores options after the first command


def test_slurm_finds_processes_by_the_variables_of_srun():
    text = (FOLDER / "slurm.sbatch").read_text()
    command = next(line for line in text.replace("\\\n", " ").splitlines() if "exec srun" in line)
    words = flags_of(shlex.split(command))
    found, rest = distributed.parse(words, {"SLURM_STEP_NUM_TASKS": "16"})
    assert found is not None and found.coordinator is None
    assert rest != train._without_auto(rest) and train._parse(train._without_auto(rest))
    assert "SLURM_STEP_NUM_TASKS" in text and distributed.detected({"SLURM_STEP_NUM_TASKS": "16"})


def test_job_array_uses_commands_and_flags_that_exist(capsys):
    text = (FOLDER / "slurm_array.sbatch").read_text()
    used = re.findall(r"python -m jaxrl (\w+) .*?(--\w+) ", text)
    assert [command for command, _ in used] == ["study", "search"]
    for command, flag in used:
        with pytest.raises(SystemExit):
            __import__(COMMANDS[command][0], fromlist=["main"]).main(["--help"])
        assert flag in capsys.readouterr().out


def test_jobset_starts_as_many_processes_as_pods():
    (document,) = yaml.safe_load_all((FOLDER / "jobset.yaml").read_text())
    assert document["apiVersion"] == "jobset.x-k8s.io/v1alpha2" and document["kind"] == "JobSet"
    (job,) = document["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    found, rest = distributed.parse(flags_of(container["command"]), {})
    assert found is not None and found.processes == spec["completions"]
    host, port = (found.coordinator or "").split(":")
    # The name that JobSet gives the first pod of the first job.
    name = document["metadata"]["name"]
    assert host == f"{name}-{job['name']}-0-0.{name}"
    assert document["spec"]["network"]["enableDNSHostnames"]
    assert int(port) == container["ports"][0]["containerPort"]
    config = train._parse(train._without_auto(rest)).config
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert any(str(config.run_dir).startswith(mount) for mount in mounts)


def test_skypilot_starts_one_process_per_node():
    document = yaml.safe_load((FOLDER / "skypilot.yaml").read_text())
    assert document["num_nodes"] > 1
    run = document["run"].replace("\\\n", " ")
    assert set(re.findall(r"SKYPILOT_\w+", run)) == {
        "SKYPILOT_NODE_IPS",
        "SKYPILOT_NUM_NODES",
        "SKYPILOT_NODE_RANK",
    }
    line = next(line for line in run.splitlines() if "jaxrl.train" in line)
    words = [word.replace("$SKYPILOT_NUM_NODES", "2") for word in shlex.split(line)]
    found, rest = distributed.parse(flags_of([w.replace("$first", "host") for w in words]), {})
    assert found == distributed.Distributed("host:8476", 2, 1)
    config = train._parse(train._without_auto(rest)).config
    assert any(str(config.run_dir).startswith(mount) for mount in document["volumes"])
