"""Layer 7: what of the host training needs."""

from __future__ import annotations

import pytest

from msllm.doctor.machine import judge_skew, look_at_machine
from msllm.doctor.visit import Facts, Request, Visit

HEALTHY = "healthy_910b3"


@pytest.fixture
def look(server):
    """The layer's visit, with 8 devices unless said otherwise."""

    def run(*transcripts: str, devices: int = 8, nodes: tuple[str, ...] = (), **host: object) -> Visit:
        made = server(HEALTHY, *transcripts).host(**host)
        visit = Visit(made, Request(nodes=nodes), Facts(devices=list(range(devices))))
        assert look_at_machine(visit)
        return visit

    return run


def codes(visit: Visit) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in visit.findings]


def refuse(*_: object) -> float:
    raise OSError(30, "Read-only file system")


@pytest.mark.parametrize(
    ("size", "devices", "found"), [(0.0625, 8, "error"), (4, 8, "warning"), (0.0625, 0, "warning"), (64, 8, None)]
)
def test_p24_a_small_shm(look, size, devices, found):
    """P24: GetNext timeout, where Docker gives 64 MB."""
    visit = look(room_gb=lambda path: (size, 100.0), devices=devices)
    assert codes(visit) == ([(found, "machine.shm")] if found else [])
    if found:
        assert "--shm-size=64g" in visit.findings[0].mend


@pytest.mark.parametrize(
    ("limit", "devices", "found"),
    [(256, 0, "error"), (1024, 0, None), (1024, 8, "warning"), (65536, 8, None), (-1, 8, None)],
)
def test_p24_few_open_files(look, limit, devices, found):
    """P24: many open files."""
    visit = look(open_files=limit, devices=devices)
    assert codes(visit) == ([(found, "machine.open_files")] if found else [])


def test_cores_of_a_container_s_quota(look):
    visit = look("$ cat /sys/fs/cgroup/cpu.max\n1600000 100000")
    assert visit.facts.cores == 16
    assert codes(visit) == [("warning", "machine.cores")]
    assert visit.findings[0].seen == "16 cores for 8 devices"


def test_memory_of_a_container_s_limit(look):
    visit = look(f"$ cat /sys/fs/cgroup/memory.max\n{100 << 30}")
    assert visit.facts.memory_gb == 100
    assert codes(visit) == [("warning", "machine.memory")]


@pytest.mark.parametrize("text", ["max 100000", "garbage", ""])
def test_no_quota(look, text):
    assert look(f"$ cat /sys/fs/cgroup/cpu.max\n{text}").facts.cores == 192


def test_a_folder_that_cannot_be_written(look):
    visit = look(write_speed=refuse)
    assert codes(visit) == [("error", "machine.disk")]
    assert "Read-only file system" in visit.findings[0].seen


def test_a_slow_and_full_disk_in_minutes_of_a_checkpoint(look):
    visit = look(write_speed=lambda folder: 14.0, room_gb=lambda path: (100.0, 3.0))
    assert codes(visit) == [("warning", "machine.disk_speed"), ("warning", "machine.disk_space")]
    assert "100 minutes" in visit.findings[0].why


def test_the_disk_is_tried_for_real_and_nothing_is_left(look, tmp_path):
    from msllm.doctor.host import Host

    folder = tmp_path / "runs"
    folder.mkdir()
    assert Host().write_speed(folder) > 0
    assert list(folder.iterdir()) == []


def test_clocks(look):
    off = "$ chronyc -n tracking\nSystem time     : 3.500000000 seconds slow of NTP time\nLeap status     : Normal"
    visit = look(off)
    assert visit.facts.clock_offset_seconds == -3.5
    assert codes(visit) == [("warning", "machine.clock")]
    none = "$ rm chronyc\n$ timedatectl show -p NTPSynchronized --value\nno"
    assert codes(look(none)) == [("warning", "machine.clock")]
    assert codes(look(none, devices=0)) == []
    assert look("$ rm chronyc").facts.clock_synchronized is None


def test_the_clock_of_a_node_that_is_far_off_and_of_one_that_cannot_be_asked(look):
    ask = "$ ssh -o BatchMode=yes -o ConnectTimeout=10 {} date +%s.%N"
    visit = look(f"{ask.format('node2')}\n1600000000.123456789\n"
                 f"{ask.format('node3')}\nPermission denied (publickey).\n[exit code 255]", nodes=("node2", "node3"))  # fmt: skip
    assert codes(visit) == [("error", "machine.skew"), ("error", "machine.node")]
    assert "behind this one" in visit.findings[0].seen
    assert "exit code 255: Permission denied" in visit.findings[1].seen


@pytest.mark.parametrize(
    ("theirs", "took", "wrong"), [(100.2, 0.2, False), (101.5, 0.2, True), (98.0, 0.2, True), (102.0, 10.0, False)]
)
def test_a_skew_counts_beyond_the_time_that_the_answer_took(server, theirs, took, wrong):
    visit = Visit(server("$ touch /x").host())
    judge_skew(visit, "node2", theirs, 100.0 - took / 2, 100.0 + took / 2)
    assert bool(visit.findings) == wrong
    assert visit.facts.clock_offsets_of_nodes == {"node2": pytest.approx(theirs - 100.0)}
