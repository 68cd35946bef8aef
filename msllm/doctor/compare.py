"""What differs between the nodes of a job, by the bundles that were made on them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msllm.doctor.anonymous import MASK
from msllm.doctor.machine import SKEW_SECONDS
from msllm.doctor.visit import ERROR, WARNING, Finding

Bundles = Mapping[str, Mapping[str, Any]]
"""Node, by the name of its file -> its bundle."""
OWN_VARIABLES = ("RANK_ID", "MS_NODE_ID", "DEVICE_ID", "HCCL_IF_IP", "MS_HCCL_CM_INIT")
"""What a launcher gives each process, or a node's own address."""
COMPARED_VARIABLES = ("HCCL_", "MS_", "GLOG_", "ASCEND_", "MINDSPORE_", "RANK_", "NPU_")
NODES_SHOWN = 6


@dataclass(frozen=True)
class Compared:
    """A value that nodes should have in common."""

    label: str
    value: Callable[[Mapping[str, Any]], Any]
    """From the facts; None where the node does not tell."""
    severity: str
    code: str
    why: str
    mend: str


def _package(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda facts: (facts.get("packages") or {}).get(name) if isinstance(facts.get("packages"), dict) else None


def _fact(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda facts: facts.get(name)


def _tls(facts: Mapping[str, Any]) -> Any:
    """The switch, where it is the same on all devices of the node; else that of each."""
    switches = facts.get("tls")
    if not isinstance(switches, dict) or not switches:
        return None
    values = list(switches.values())
    return values[0] if all(value == values[0] for value in values) else switches


COMPARED = (
    Compared("CANN", _fact("cann"), ERROR, "compare.cann",
             "HCCL refuses nodes of different CANN: EI0008, after all ranks have started", "install one CANN on all nodes"),
    Compared("TLS switch", _tls, ERROR, "compare.tls",
             "devices with and without TLS do not connect: HCCL ends after 120 s with EI0006 and `no connect`",
             "on the nodes that differ: for i in $(seq 0 7); do hccn_tool -i $i -tls -s enable 0; done   (16 devices: seq 0 15)"),
    Compared("rank table", _fact("rank_table_sha256"), ERROR, "compare.rank_table",
             "ranks look for each other at different addresses, and wait until the time-out",
             "copy one file to all nodes; msllm ranktable diff A B says what differs"),
    Compared("chip", _fact("chip"), ERROR, "compare.chip", "one graph is compiled for one kind of chip",
             "start separate jobs for each kind"),
    Compared("number of devices", lambda facts: len(facts["devices"]) if isinstance(facts.get("devices"), list) else None,
             ERROR, "compare.devices", "msrun and rank tables expect the same number on each server",
             "msllm doctor on the node with fewer, or ASCEND_RT_VISIBLE_DEVICES on all"),
    Compared("mindspore", _package("mindspore"), ERROR, "compare.mindspore",
             "ranks compile different graphs, or do not understand each other's messages", "install one version on all nodes"),
    Compared("mindformers", _package("mindformers"), WARNING, "compare.mindformers", "code of different versions runs",
             "install one version on all nodes"),
    Compared("msllm", _package("msllm"), ERROR, "compare.msllm", "ranks train different programs",
             "git log -1 on each node; install one version"),
    Compared("numpy", _package("numpy"), WARNING, "compare.numpy", "data may be drawn or rounded differently",
             "install one version on all nodes"),
    Compared("Python", _fact("python"), WARNING, "compare.python", "packages of different versions run",
             "use one environment on all nodes"),
    Compared("architecture", _fact("architecture"), WARNING, "compare.architecture",
             "processors of two kinds round differently, and need different wheels", "start separate jobs for each kind"),
    Compared("driver", _fact("driver"), WARNING, "compare.driver", "HCCL was tested between equal drivers",
             "install the newest of them on all nodes, and reboot"),
    Compared("firmware", _fact("firmware"), WARNING, "compare.firmware", "it belongs to the driver",
             "install the newest of them on all nodes, and reboot"),
)  # fmt: skip


def compare(bundles: Bundles) -> list[Finding]:
    """What differs, errors first: values, variables, clocks, addresses that two nodes have, and nodes that are ill."""
    found = []
    for item in COMPARED:
        values = {node: item.value(bundle["facts"]) for node, bundle in bundles.items()}
        if seen := _difference(item.label, _comparable(values, bundles)):
            found.append(Finding(item.severity, item.code, seen, item.why, item.mend))
    found += [*_variables(bundles), *_clocks(bundles), *_same_addresses(bundles), *_ill(bundles)]
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def _comparable(values: Mapping[str, Any], bundles: Bundles) -> dict[str, Any]:
    """Without the nodes that do not tell; without masks, where they were made with different keys."""
    known = {node: value for node, value in values.items() if value is not None}
    if len({bundles[node].get("masks") for node in known}) > 1:
        known = {node: value for node, value in known.items() if not MASK.search(json.dumps(value))}
    return known


def _difference(label: str, values: Mapping[str, Any]) -> str | None:
    """`CANN is 9.0.0 on 7 nodes (a, b, ...), 8.5.0 on h`; None where all agree."""
    groups: dict[str, list[str]] = {}
    for node, value in values.items():
        groups.setdefault(value if isinstance(value, str) else json.dumps(value, sort_keys=True), []).append(node)
    if len(groups) < 2:
        return None
    by_size = sorted(groups.items(), key=lambda group: -len(group[1]))
    return f"{label} is " + ", ".join(f"{value} on {_nodes(nodes)}" for value, nodes in by_size)


def _nodes(nodes: list[str]) -> str:
    if len(nodes) <= NODES_SHOWN:
        return " and ".join([", ".join(nodes[:-1]), nodes[-1]]) if len(nodes) > 1 else nodes[0]
    return f"{len(nodes)} nodes ({', '.join(nodes[: NODES_SHOWN - 1])}, ...)"


def _variables(bundles: Bundles) -> list[Finding]:
    names = {name for bundle in bundles.values() for name in bundle["environment"]}
    found = []
    for name in sorted(names):
        if not name.startswith(COMPARED_VARIABLES) or name in OWN_VARIABLES or _is_path(name):
            continue
        values = {node: bundle["environment"].get(name, "(unset)") for node, bundle in bundles.items()}
        if seen := _difference(name, _comparable(values, bundles)):
            why = "ranks that are set up differently wait for each other, log differently or fail in turn"
            found.append(Finding(WARNING, "compare.environment", seen, why, f"export {name}=... the same on all nodes"))
    return found


def _is_path(name: str) -> bool:
    return re.search(r"(_PATH|_HOME|_DIR|_FILE)\Z", name) is not None


def _clocks(bundles: Bundles) -> list[Finding]:
    """By each node's distance from its time server; bundles are not made at one moment."""
    found = []
    offsets = {node: bundle["facts"].get("clock_offset_seconds") for node, bundle in bundles.items()}
    known = {node: float(value) for node, value in offsets.items() if isinstance(value, (int, float))}
    why = "logs of several nodes cannot be put in order, and a file of another node looks newer than it is"
    if known:
        slow, fast = min(known, key=lambda node: known[node]), max(known, key=lambda node: known[node])
        if known[fast] - known[slow] > SKEW_SECONDS:
            seen = f"the clock of {fast} is {known[fast] - known[slow]:.1f} s ahead of that of {slow}"
            found.append(Finding(ERROR, "compare.clock", seen, why, "sudo chronyc makestep, on both"))
    free = [node for node, bundle in bundles.items() if bundle["facts"].get("clock_synchronized") is False]
    if free:
        seen = f"the clock of {_nodes(free)} follows no time server"
        found.append(Finding(WARNING, "compare.clock", seen, why, "sudo timedatectl set-ntp true"))
    return found


def _same_addresses(bundles: Bundles) -> list[Finding]:
    """An address that devices of two nodes have; to be seen where the nodes were masked with one key."""
    owners: dict[tuple[Any, str], list[str]] = {}
    for node, bundle in bundles.items():
        addresses = bundle["facts"].get("device_ips")
        for device, address in addresses.items() if isinstance(addresses, dict) else ():
            owners.setdefault((bundle.get("masks"), str(address)), []).append(f"device {device} of {node}")
    return [
        Finding(
            ERROR,
            "compare.addresses",
            f"{_nodes(places)} have one address ({address})",
            "they answer for each other: links fail at random",
            "hccn_tool -i N -ip -s address A netmask M, on one of them",
        )
        for (_, address), places in owners.items()
        if len(places) > 1
    ]


def _ill(bundles: Bundles) -> list[Finding]:
    found = []
    for node, bundle in bundles.items():
        if bundle.get("healthy") is not False:
            continue
        findings = bundle.get("findings")
        first = findings[0] if isinstance(findings, list) and findings and isinstance(findings[0], dict) else {}
        seen = f"{node} is not healthy by itself: {first.get('seen', 'see its bundle')}"
        found.append(Finding(ERROR, "compare.node", seen, str(first.get("why", "")), str(first.get("mend", ""))))
    return found
