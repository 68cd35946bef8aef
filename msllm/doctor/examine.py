"""The layers in their order, each looked at where the one below it passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from msllm.doctor.cann import look_at_cann
from msllm.doctor.devices import look_at_devices
from msllm.doctor.host import Host
from msllm.doctor.machine import look_at_machine
from msllm.doctor.network import look_at_network
from msllm.doctor.packages import look_at_packages
from msllm.doctor.runs import look_at_graph, look_at_msrun
from msllm.doctor.visible import look_at_masks
from msllm.doctor.visit import ERROR, Facts, Finding, Request, Visit

PASSED, FAILED, NOT_HERE, NOT_LOOKED_AT = "passed", "failed", "not here", "not looked at"


@dataclass(frozen=True)
class Layer:
    """One layer. `look` writes what it finds into the visit; False: this machine has nothing of the kind."""

    name: str
    title: str
    look: Callable[[Visit], bool]
    starts_mindspore: bool = False


LAYERS = (
    Layer("devices", "devices and driver", look_at_devices),
    Layer("cann", "firmware and CANN", look_at_cann),
    Layer("packages", "Python packages", look_at_packages),
    Layer("graph", "MindSpore runs a graph", look_at_graph, starts_mindspore=True),
    Layer("msrun", "two workers of msrun", look_at_msrun, starts_mindspore=True),
    Layer("network", "HCCL and rank table", look_at_network),
    Layer("machine", "this machine", look_at_machine),
    Layer("masks", "visible devices", look_at_masks),
)


@dataclass(frozen=True)
class LayerReport:
    """What became of a layer."""

    name: str
    title: str
    status: str
    seen: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Errors first."""
    why_not: str = ""
    """Why it was not looked at."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "seen": list(self.seen), "findings": [asdict(finding) for finding in self.findings]}


@dataclass
class Report:
    """A whole examination."""

    layers: list[LayerReport] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)

    @property
    def findings(self) -> list[Finding]:
        """All of them, in the order in which they are to be mended: by layer, errors before warnings."""
        found = [finding for layer in self.layers for finding in layer.findings]
        return sorted(found, key=lambda finding: finding.severity != ERROR)

    @property
    def healthy(self) -> bool:
        """Whether there is no error; there may be warnings, and layers that were left out."""
        return all(finding.severity != ERROR for finding in self.findings)

    @property
    def has_npu(self) -> bool:
        """Whether there is any sign of an NPU."""
        return any(layer.name == "devices" and layer.status != NOT_HERE for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "healthy": self.healthy,
            "npu": self.has_npu,
            "findings": [asdict(finding) for finding in self.findings],
            "layers": [layer.to_dict() for layer in self.layers],
            "facts": self.facts.to_dict(),
        }


def examine(host: Host, request: Request, told: Callable[[Layer], None] = lambda layer: None) -> Report:
    """Look at a host.

    Args:
        host: the machine.
        request: what is asked for.
        told: called before each layer that is looked at, for who waits.
    """
    visit = Visit(host, request)
    visit.facts.architecture = host.machine
    report = Report(facts=visit.facts)
    failed: str | None = None
    for layer in LAYERS:
        why_not = ""
        if failed and not request.everything:
            why_not = f"{failed} has to be mended first"
        elif layer.starts_mindspore and request.quick:
            why_not = "--quick starts no MindSpore"
        if why_not:
            report.layers.append(LayerReport(layer.name, layer.title, NOT_LOOKED_AT, why_not=why_not))
            continue
        told(layer)
        visit.seen, visit.findings = [], []
        here = layer.look(visit)
        findings = tuple(sorted(visit.findings, key=lambda finding: finding.severity != ERROR))
        wrong = any(finding.severity == ERROR for finding in findings)
        status = FAILED if wrong else PASSED if here else NOT_HERE
        report.layers.append(LayerReport(layer.name, layer.title, status, tuple(visit.seen), findings))
        if wrong and failed is None:
            failed = f"layer {len(report.layers)} ({layer.title})"
    return report
