"""Nodes of a job among each other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import played

from msllm.doctor.bundle import make_bundle
from msllm.doctor.compare import compare
from msllm.doctor.examine import examine
from msllm.doctor.visit import Request


def bundle_of(folder, *transcripts: str, key: str | None = "word", **host: object) -> dict[str, Any]:
    made = played(folder / "server", *transcripts).host(**host)
    request = Request(everything=True, quick=True)
    return make_bundle(made, request, examine(made, request), key)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("a"), "healthy_910b3")


@pytest.fixture(scope="module")
def tls_on(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("b"), "tls_on_910b3", name="ascend-node-12")


def changed(bundle: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A node like another one, but for some facts."""
    other = copy.deepcopy(bundle)
    other["facts"] |= {"device_ips": {}, **facts}
    return other


def codes(found) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in found]


def test_equal_nodes(healthy):
    assert compare({"a": healthy, "b": changed(healthy), "c": changed(healthy)}) == []


def test_p7_the_tls_switch_differs_between_two_healthy_servers(healthy, tls_on):
    """P7: HCCL fails after 120 s with no connect."""
    assert healthy["healthy"] and tls_on["healthy"]
    found = compare({"node1": healthy, "node2": tls_on})
    assert codes(found) == [("error", "compare.tls")]
    assert found[0].seen == "TLS switch is 0 on node1, 1 on node2"
    assert "hccn_tool -i $i -tls -s enable 0" in found[0].mend


def test_ei0008_cann_differs_between_nodes(healthy):
    """EI0008, P26: CANN versions differ between nodes."""
    nodes = {f"node{i}": changed(healthy) for i in range(1, 8)} | {"node8": changed(healthy, cann="8.5.0")}
    found = compare(nodes)
    assert codes(found) == [("error", "compare.cann")]
    assert found[0].seen == "CANN is 9.0.0 on 7 nodes (node1, node2, node3, node4, node5, ...), 8.5.0 on node8"
    assert "EI0008" in found[0].why


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"driver": "25.5.0"}, ("warning", "compare.driver")),
        ({"firmware": "7.5.0.3.220"}, ("warning", "compare.firmware")),
        ({"chip": "910C"}, ("error", "compare.chip")),
        ({"devices": [0, 1]}, ("error", "compare.devices")),
        ({"python": "3.10.1"}, ("warning", "compare.python")),
        ({"architecture": "x86_64"}, ("warning", "compare.architecture")),
        ({"clock_synchronized": False}, ("warning", "compare.clock")),
        ({"clock_offset_seconds": 4.0}, ("error", "compare.clock")),
    ],
)
def test_p26_facts_that_differ(healthy, facts, found):
    assert codes(compare({"a": healthy, "b": changed(healthy, **facts)})) == [found]


@pytest.mark.parametrize(
    ("package", "severity"),
    [("mindspore", "error"), ("msllm", "error"), ("mindformers", "warning"), ("numpy", "warning")],
)
def test_p26_packages_that_differ(healthy, package, severity):
    one = changed(healthy, packages={**healthy["facts"]["packages"], package: "1"})
    two = changed(healthy, packages={**healthy["facts"]["packages"], package: "2"})
    assert codes(compare({"a": one, "b": two})) == [(severity, f"compare.{package}")]


def test_a_clock_ahead_is_named_with_its_seconds(healthy):
    found = compare({"a": changed(healthy, clock_offset_seconds=-2.5), "b": changed(healthy, clock_offset_seconds=1.0)})
    assert found[0].seen == "the clock of b is 3.5 s ahead of that of a"


def test_tables_that_differ_where_the_masks_have_one_key(healthy):
    one, two = (changed(healthy, rank_table_sha256=f"table-000000000{i}") for i in (1, 2))
    assert codes(compare({"a": one, "b": two})) == [("error", "compare.rank_table")]
    two["masks"] = "another key"
    assert compare({"a": one, "b": two}) == [], "the same table may have two masks"


def test_variables_that_differ_but_for_a_node_s_own(healthy):
    two = changed(healthy)
    two["environment"] = {
        **two["environment"],
        "HCCL_BUFFSIZE": "100",
        "RANK_ID": "8",
        "ASCEND_HOME_PATH": "/elsewhere",
    }
    found = compare({"a": healthy, "b": two})
    assert [finding.seen for finding in found] == ["HCCL_BUFFSIZE is (unset) on a, 100 on b"]


def test_two_nodes_with_one_address(healthy):
    two = changed(healthy, device_ips={"5": healthy["facts"]["device_ips"][3]})
    found = compare({"a": healthy, "b": two})
    assert codes(found) == [("error", "compare.addresses")]
    assert found[0].seen.startswith("device 3 of a and device 5 of b have one address (ip-")


def test_a_node_that_is_ill_by_itself(healthy):
    two = changed(healthy)
    two |= {"healthy": False, "findings": [{"seen": "a card is missing", "why": "w", "mend": "m"}]}
    found = compare({"a": healthy, "b": two})
    assert [(finding.seen, finding.mend) for finding in found] == [
        ("b is not healthy by itself: a card is missing", "m")
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FACTS = st.dictionaries(
    st.sampled_from(["cann", "tls", "devices", "packages", "device_ips", "clock_offset_seconds", "clock_synchronized"]),
    JSON,
)


@given(FACTS, FACTS, st.dictionaries(st.just("HCCL_X"), JSON), JSON)
def test_bundles_that_were_edited_by_hand_are_compared_without_an_error(one, two, environment, findings):
    bundles = {
        "a": {"facts": one, "environment": environment, "healthy": False, "findings": findings},
        "b": {"facts": two, "environment": {}, "masks": "x"},
    }
    compare(bundles)
