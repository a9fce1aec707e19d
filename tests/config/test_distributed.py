"""Flags and variables that name the processes of a run."""

import pytest

from jaxrl.config import distributed
from jaxrl.config.distributed import Distributed, parse
from jaxrl.errors import UserError

SLURM = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}


def test_one_process_is_the_default():
    assert parse(["ant", "--seed", "3"], {}) == (None, ["ant", "--seed", "3"])
    assert parse(["ant"], {"SLURM_STEP_NUM_TASKS": "1"})[0] is None
    assert parse(["ant"], {"SLURM_NTASKS": "4"})[0] is None  # a batch script, not one of its tasks


def test_processes_named_by_flags():
    flags = "ant --distributed.coordinator node0:8476 --distributed.processes=4 --seed 3"
    found, rest = parse([*flags.split(), "--distributed.process", "2"], {})
    assert found == Distributed("node0:8476", 4, 2)
    assert rest == ["ant", "--seed", "3"]


def test_flags_come_before_a_launcher_and_a_launcher_before_a_scheduler():
    launcher = {
        distributed.COORDINATOR: "127.0.0.1:9",
        distributed.PROCESSES: "2",
        distributed.PROCESS: "1",
    }
    assert parse(["ant"], SLURM | launcher)[0] == Distributed("127.0.0.1:9", 2, 1)
    flags = "--distributed.coordinator a:1 --distributed.processes 3 --distributed.process 0"
    assert parse(flags.split(), SLURM | launcher)[0] == Distributed("a:1", 3, 0)


def test_scheduler_with_several_tasks_is_used_unless_switched_off():
    found, _ = parse(["ant", "--distributed.heartbeat", "30"], SLURM)
    assert found == Distributed(heartbeat=30, found_by="Slurm started 4 tasks")
    open_mpi_4 = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:9"}
    assert parse(["ant"], open_mpi_4)[0] == Distributed(found_by="MPI started 2 tasks")
    assert parse(["ant", "--distributed", "off"], SLURM) == (None, ["ant"])
    assert parse(["--distributed", "auto"], {}) == (Distributed(), [])


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD", "PMI"])
def test_mpi_that_names_no_host_needs_the_coordinator_alone(name):
    """Open MPI 5, MPICH and Intel MPI."""
    environ = {f"{name}_SIZE": "4", f"{name}_RANK": "3"}
    for flags in ([], ["--distributed", "auto"]):
        with pytest.raises(UserError, match="MPI started 4 tasks.* give --distributed.coordinator"):
            parse(["ant", *flags], environ)
    found, _ = parse(["ant", "--distributed.coordinator", "node0:8476"], environ)
    assert found == Distributed("node0:8476", 4, 3)
    assert parse(["ant", "--distributed", "off"], environ) == (None, ["ant"])


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--distributed on", "use auto or off"),
        ("--distributed", "--distributed needs a value"),
        ("--distributed.process --seed 3", "--distributed.process needs a value"),
        ("--distributed.processes 4", "coordinator is missing"),
        ("--distributed.coordinater a:1", "Did you mean '--distributed.coordinator'"),
        ("--distributed off --distributed.process 1", "leave --distributed.process out"),
        ("--distributed.heartbeat 30", "need several processes"),
        ("--distributed.heartbeat 0 --distributed auto", "a number of at least 1, not 0"),
        (
            "--distributed.coordinator a --distributed.processes 2 --distributed.process 1",
            "write HOST:PORT",
        ),
        (
            "--distributed.coordinator a:1 --distributed.processes 2 --distributed.process 2",
            "of 2 processes the last is 1",
        ),
    ],
)
def test_unusable_flags_are_refused(flags, text):
    with pytest.raises(UserError) as raised:
        parse(flags.split(), {})
    assert text in str(raised.value)
