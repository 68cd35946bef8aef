"""Layer 8: masks, and what a shell has kept of a launch."""

from __future__ import annotations

import pytest

from msllm.doctor.visible import look_at_masks
from msllm.doctor.visit import Facts, Visit


def look(server, mask: str | None, table: tuple[int, ...] = (), devices: int = 8, **more: str) -> Visit | None:
    environment = {**more, **({} if mask is None else {"ASCEND_RT_VISIBLE_DEVICES": mask})}
    host = server("$ touch /x").host(environment=environment)
    visit = Visit(host, facts=Facts(devices=list(range(devices)), rank_table_devices=list(table)))
    return visit if look_at_masks(visit) else None


def codes(visit: Visit) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in visit.findings]


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (None, []),
        ("0,1,2,3", []),
        (" 4, 5 ", []),
        ("", [("error", "masks.syntax")]),
        ("0-3", [("error", "masks.syntax")]),
        ("0,1,", [("error", "masks.syntax")]),
        ("0;1", [("error", "masks.syntax")]),
        ("-1", [("error", "masks.syntax")]),
        ("٣", [("error", "masks.syntax")]),
        ("0,8", [("error", "masks.absent")]),
        ("0,0", [("error", "masks.twice")]),
        ("9,9", [("error", "masks.absent"), ("error", "masks.twice")]),
    ],
)
def test_masks(server, mask, found):
    assert codes(look(server, mask)) == found


@pytest.mark.parametrize(
    ("mask", "table", "found"),
    [
        (None, (0, 1, 2, 3, 4, 5, 6, 7), []),
        ("4,5", (4, 5), []),
        ("5,4", (4, 5), [("error", "masks.rank_table")]),
        ("0,1", (4, 5), [("error", "masks.rank_table")]),
        ("0,1,2", (0, 1), [("error", "masks.rank_table")]),
        (None, (0, 1), [("warning", "masks.rank_table")]),
        (None, (8, 9), [("error", "masks.rank_table")]),
    ],
)
def test_masks_against_the_rank_table(server, mask, table, found):
    assert codes(look(server, mask, table)) == found


def test_an_order_that_differs_is_mended_by_the_table_s(server):
    visit = look(server, "5,4", (4, 5))
    assert visit.findings[0].mend == "export ASCEND_RT_VISIBLE_DEVICES=4,5"


def test_without_npu_a_mask_means_nothing(server):
    assert look(server, None, devices=0) is None
    assert codes(look(server, "0,1", devices=0)) == []


def test_variables_of_an_earlier_launch(server):
    visit = look(server, None, devices=0, MS_WORKER_NUM="8", RANK_ID="3", MS_ROLE="")
    assert codes(visit) == [("warning", "masks.left_over")]
    assert visit.findings[0].mend == "unset MS_WORKER_NUM RANK_ID"
