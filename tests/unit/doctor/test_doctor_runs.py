"""Layers 4 and 5: MindSpore for real, once each; and what is said when it fails."""

from __future__ import annotations

import sys

import pytest

from msllm.doctor.host import Host
from msllm.doctor.runs import look_at_graph, look_at_msrun
from msllm.doctor.visit import Facts, Visit

HEALTHY = "healthy_910b3"


def test_mindspore_runs_a_graph_here():
    visit = Visit(Host())
    assert look_at_graph(visit)
    assert visit.findings == []
    assert visit.seen == ["MindSpore 2.9.0 compiles and runs a graph on CPU"]


@pytest.mark.distributed
def test_two_workers_of_msrun_add_up_here(monkeypatch):
    """Even in a shell that holds a launcher's variables."""
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")
    monkeypatch.setenv("RANK_ID", "7")
    visit = Visit(Host())
    assert look_at_msrun(visit)
    assert visit.findings == []
    assert visit.seen == ["msrun starts 2 workers on CPU, and their AllReduce is right"]


@pytest.fixture
def fails(server):
    """The finding where a stand-in for Python or msrun says something else."""

    def run(look, said: str, devices: int = 8) -> str:
        visit = Visit(server(HEALTHY, said).host(), facts=Facts(devices=list(range(devices))))
        assert look(visit)
        (finding,) = visit.findings
        return f"{finding.code}: {finding.seen} / {finding.why} / {finding.mend}"

    return run


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("ImportError: /opt/libgomp.so.1: cannot allocate memory in static TLS block\n[exit code 1]",
         ("graph.failed", "exit code 1: ImportError", "thread-local memory", "LD_PRELOAD")),
        ("ImportError: libascendcl.so: cannot open shared object file: No such file or directory\n[exit code 1]",
         ("graph.failed", "a library is not found", "set_env.sh")),
        ("ImportError: /lib64/libc.so.6: version `GLIBC_2.34' not found\n[exit code 1]",
         ("graph.failed", "older than the wheel")),
        ("AttributeError: _ARRAY_API not found\n[exit code 1]", ("graph.failed", 'pip install "numpy>=1.26,<2"')),
        ("RuntimeError: Malloc device memory failed\nand more\n[exit code 1]",
         ("graph.failed", "exit code 1: RuntimeError: Malloc device memory failed", "npu-smi info")),
        ("something of its own\n[exit code 9]",
         ("graph.failed", "exit code 9: something of its own", "nothing that trains", "probes.py graph Ascend")),
        ('{"mindspore": "2.9.0", "right": false}', ("graph.wrong", "came out wrong")),
        ("no document", ("graph.wrong", "was not printed")),
        ("{broken", ("graph.wrong",)),
    ],
)  # fmt: skip
def test_a_graph_that_does_not_run(fails, said, parts):
    text = fails(look_at_graph, f"$ python graph Ascend\n{said}")
    assert [part for part in parts if part not in text] == []


def test_a_crash_of_mindspore_is_a_finding(server):
    made = server(HEALTHY)
    (made.commands / "python").write_text("#!/bin/sh\nkill -ILL $$\n")
    visit = Visit(made.host())
    assert look_at_graph(visit)
    assert visit.findings[0].seen == "MindSpore does not run a graph on CPU: ended by SIGILL"
    assert "instructions" in visit.findings[0].why


def test_a_graph_that_never_ends(server):
    visit = Visit(server(HEALTHY, "$ hang python graph CPU").host(patience=0.003))
    assert look_at_graph(visit)
    assert visit.findings[0].seen == "MindSpore does not run a graph on CPU: no answer in 0.54 s"


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("RuntimeError: EI0006 socket timeout, no connect\n[exit code 1]", ("rank 0 of 2 on Ascend", "TLS switch")),
        ("[ERROR] EI0008: CANN versions differ", ("CANN differs between the ranks",)),
        ("bind address failed: Address already in use\n[exit code 1]", ("the port is taken", "ss -ltnp")),
        ("\n[exit code 1]", ("did not finish an AllReduce: exit code 1", "worker_*.log")),
    ],
)
def test_an_allreduce_that_does_not_end_well(fails, said, parts):
    text = fails(look_at_msrun, f"$ msrun allreduce Ascend\n{said}")
    assert [part for part in ("msrun.failed", *parts) if part not in text] == []


def test_one_device_is_too_few_for_two_workers_and_cpu_is_taken(server):
    visit = Visit(server(HEALTHY, '$ msrun allreduce CPU\n{"right": true}').host(), facts=Facts(devices=[0]))
    assert look_at_msrun(visit)
    assert visit.findings == []


def test_a_faulty_mask_is_named_rather_than_the_graph_that_it_breaks(server):
    visit = Visit(server(HEALTHY, "$ export ASCEND_RT_VISIBLE_DEVICES=0,9").host(), facts=Facts(devices=list(range(8))))
    assert look_at_graph(visit)
    assert [finding.code for finding in visit.findings] == ["masks.absent"]
    assert visit.host.ran == []


def test_a_mask_of_one_device_is_too_narrow_for_two_workers(server):
    one = "$ export ASCEND_RT_VISIBLE_DEVICES=3"
    visit = Visit(
        server(HEALTHY, one, '$ msrun allreduce CPU\n{"right": true}').host(), facts=Facts(devices=list(range(8)))
    )
    assert look_at_msrun(visit)
    assert visit.findings == []


def test_an_environment_without_msrun(server):
    visit = Visit(server(HEALTHY, "$ rm msrun").host())
    assert look_at_msrun(visit)
    assert visit.findings[0].code == "msrun.missing"


def test_the_probe_runs_with_this_interpreter():
    assert Host().python == sys.executable
