"""The course of a job, event by event, with a clock that stands still."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from msllm.launch.agreement import Hello
from msllm.launch.conductor import SETTLE_SECONDS, Conductor, Limits

SAME = {"mindspore": "2.9.0"}


@dataclass
class Course:
    """A conductor of nodes with one rank each, what it has sent, what it has said."""

    nodes: int = 2
    limits: Limits = Limits()
    newest: str | None = None
    now: float = 0.0
    sent: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conductor = Conductor(
            self.nodes,
            self.nodes,
            self.limits,
            lambda node, message: self.sent.append((node, message)),
            self.said.append,
            lambda: self.now,
            lambda: self.newest,
        )

    def join_all(self) -> Course:
        for node in range(self.nodes):
            self.conductor.joined(Hello(node, f"host{node}", f"10.0.0.{node + 1}", SAME))
        return self

    def wait(self, seconds: float, alive: tuple[int, ...] = (0, 1, 2)) -> None:
        for node in alive:
            if node < self.nodes and node in self.conductor._members:
                self.conductor.heard(node, {"type": "status", "ranks": {}})
        self.now += seconds
        self.conductor.tick()

    def fails(self, rank: int, error: str | None = None, code: int = 1) -> None:
        message = {"type": "failed", "rank": rank, "code": code, "how": f"ended with exit code {code}", "error": error}
        self.conductor.heard(rank, {**message, "log": f"worker_{rank}.log"})

    def all_stop(self) -> None:
        """What nodes do when they are told to stop, and the next look at the clock."""
        self.wait(SETTLE_SECONDS + 0.1)
        for node in range(self.nodes):
            self.conductor.heard(node, {"type": "stopped"})
        self.conductor.tick()

    def kinds(self, node: int) -> list[str]:
        return [message["type"] for to, message in self.sent if to == node]

    @property
    def end(self) -> dict[str, Any]:
        assert self.conductor.ended is not None
        return self.conductor.ended


def test_a_job_starts_when_all_have_come_and_ends_when_all_are_done():
    course = Course()
    course.conductor.joined(Hello(0, "host0", versions=SAME))
    assert course.sent == []
    course.conductor.joined(Hello(1, "host1", versions=SAME))
    assert course.kinds(0) == course.kinds(1) == ["start"]
    course.conductor.heard(0, {"type": "done"})
    assert course.conductor.ended is None
    course.conductor.heard(1, {"type": "done"})
    assert course.end["code"] == 0 and course.end["failure"] is None
    assert course.kinds(1) == ["start", "end"]


def test_p17_the_first_failing_rank_is_named_and_all_nodes_are_stopped():
    course = Course().join_all()
    course.fails(1, "RuntimeError: no memory")
    course.all_stop()
    assert course.kinds(0) == ["start", "stop", "end"]
    assert course.end["code"] == 1
    expected = "rank 1 on node 1 (host1, 10.0.0.2) ended with exit code 1: RuntimeError: no memory (log: worker_1.log)"
    assert course.end["failure"]["message"] == expected


def test_p17_a_rank_that_only_lost_another_one_is_not_the_one_to_name():
    course = Course().join_all()
    course.fails(0, "RuntimeError: AllReduce failed: connection reset by peer")
    course.fails(1, "ValueError: bad record")
    course.all_stop()
    assert course.end["failure"]["rank"] == 1


def test_where_every_rank_has_lost_another_one_the_first_is_named():
    course = Course().join_all()
    course.fails(1, "heartbeat timed out")
    course.fails(0, "heartbeat timed out")
    course.all_stop()
    assert course.end["failure"]["rank"] == 1


def test_wrong_input_is_exit_code_2_and_is_not_tried_again():
    course = Course(limits=Limits(restarts=5)).join_all()
    course.fails(0, "no such folder", code=2)
    course.all_stop()
    assert course.end["code"] == 2
    assert course.end["attempts"] == 1


def test_a_failed_job_starts_again_as_often_as_allowed():
    course = Course(limits=Limits(restarts=2), newest="run/checkpoints/step_00000007").join_all()
    for _ in range(3):
        course.fails(1)
        course.all_stop()
    starts = [message["attempt"] for to, message in course.sent if to == 0 and message["type"] == "start"]
    assert starts == [0, 1, 2]
    assert course.end["code"] == 1 and course.end["attempts"] == 3
    assert "restart 2 of 2: going on from run/checkpoints/step_00000007" in course.said


def test_a_restart_that_ends_well_is_a_job_that_ended_well():
    course = Course(limits=Limits(restarts=1)).join_all()
    course.fails(1)
    course.all_stop()
    assert "restart 1 of 1: from the beginning, as there is no complete checkpoint yet" in course.said
    for node in (0, 1):
        course.conductor.heard(node, {"type": "done"})
    assert course.end["code"] == 0 and course.end["failure"] is None


def test_a_node_without_a_sign_is_lost_and_the_job_is_not_started_again():
    course = Course(limits=Limits(node=30.0, restarts=3)).join_all()
    course.conductor.heard(1, {"type": "status", "ranks": {"1": {"phase": "in the step", "step": 12, "idle": 0.0}}})
    course.wait(20.0, alive=(0,))
    course.wait(20.0, alive=(0,))
    course.wait(2.0, alive=(0,))
    course.conductor.heard(0, {"type": "stopped"})
    course.conductor.tick()
    assert course.end["code"] == 1
    message = course.end["failure"]["message"]
    assert message.startswith("node 1 (host1, 10.0.0.2) is lost: no sign of it for 30 s; the host is down")
    assert message.endswith("its last step was 12")
    assert "not started again: a node is gone, and a job needs all of its nodes" in course.said


def test_a_node_that_never_comes_is_named_with_what_to_do():
    course = Course(nodes=3, limits=Limits(join=300.0, node=1e9))
    course.conductor.joined(Hello(0, "host0"))
    course.wait(299.0)
    assert course.conductor.ended is None
    course.wait(2.0)
    assert course.end["code"] == 1
    assert "node 1, 2 did not come within 300 s; start msllm launch there" in course.end["failure"]["message"]


def test_a_doubled_node_rank_refuses_everyone():
    course = Course(nodes=3)
    course.conductor.joined(Hello(1, "a", "10.0.0.1"))
    course.conductor.joined(Hello(1, "b", "10.0.0.2"))
    assert course.end["code"] == 2
    assert course.end["problems"] == [
        "--node-rank 1 was given to two nodes: node 1 (a, 10.0.0.1) and node 1 (b, 10.0.0.2); give each its own, from 0 to 2"
    ]


def test_ctrl_c_ends_the_ranks_and_then_the_job():
    course = Course().join_all()
    course.conductor.heard(1, {"type": "interrupt", "by": "Ctrl-C", "now": False, "save": True})
    assert course.sent[-1] == (1, {"type": "interrupt", "save": True})
    assert "Ctrl-C on node 1 (host1): ending all ranks after their step, with a checkpoint" in course.said
    for node in (0, 1):
        course.conductor.heard(node, {"type": "done"})
    assert course.end["code"] == 130 and course.end["stopped_by"] == "Ctrl-C"


def test_a_signal_that_a_scheduler_sends_to_all_nodes_is_one_wish():
    course = Course().join_all()
    for node in (0, 1):
        course.conductor.heard(node, {"type": "interrupt", "by": "SIGTERM", "now": False, "save": True})
    assert course.kinds(0) == course.kinds(1) == ["start", "interrupt"]


def test_a_second_ctrl_c_waits_for_nothing():
    course = Course().join_all()
    for now in (False, True):
        course.conductor.heard(0, {"type": "interrupt", "by": "Ctrl-C", "now": now, "save": True})
    assert course.kinds(1) == ["start", "interrupt", "stop"]
    course.all_stop()
    assert course.end["code"] == 130


def test_a_checkpoint_that_could_not_be_saved_on_ctrl_c_is_a_failure():
    course = Course().join_all()
    course.conductor.heard(0, {"type": "interrupt", "by": "Ctrl-C", "now": False, "save": True})
    course.fails(0, "disk full")
    course.all_stop()
    assert course.end["code"] == 1
    assert "disk full" in course.end["failure"]["message"]


@pytest.mark.parametrize("hang", [None, 60.0])
def test_p18_a_job_that_hangs_is_told_by_rank_and_phase_and_ended_where_the_user_wants_it(hang: float | None):
    course = Course(limits=Limits(node=1e9, hang=hang)).join_all()
    saving = {"phase": "saving a checkpoint", "step": 100, "step_seconds": 1.0, "idle": 61.0}
    waiting = {"phase": "in the step", "step": 101, "step_seconds": 1.0, "idle": 61.0}
    course.conductor.heard(0, {"type": "status", "ranks": {"0": saving}})
    course.conductor.heard(1, {"type": "status", "ranks": {"1": waiting}})
    course.conductor.tick()
    silence = "silent for 61 s: rank 0, saving a checkpoint of step 100 while rank 1 waits"
    assert any(line.startswith("warning: ") and line.endswith(silence) for line in course.said)
    if hang is None:
        assert course.conductor.state == "running"
        return
    course.now += SETTLE_SECONDS + 0.1
    course.conductor.tick()
    assert course.kinds(0) == ["start", "stop"]
    assert "no rank has moved for 60 s (--hang-timeout)" in course.conductor.cause().message


def test_a_long_compilation_is_no_hang():
    course = Course(limits=Limits(node=1e9, hang=60.0)).join_all()
    for node in (0, 1):
        compiling = {"phase": "compiling the step graph", "step": 1, "idle": 400.0}
        course.conductor.heard(node, {"type": "status", "ranks": {str(node): compiling}})
    course.conductor.tick()
    assert course.conductor.state == "running"
