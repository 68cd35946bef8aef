"""Whole servers: the healthy ones have nothing wrong, and each wrong state is found and named first."""

from __future__ import annotations

import pytest

from msllm.doctor.examine import FAILED, LAYERS, NOT_LOOKED_AT, PASSED
from msllm.hardware.chips import CHIPS


@pytest.mark.parametrize(("recording", "devices", "chip"), [("healthy_910b3", 8, "910B"), ("healthy_a3", 16, "910C")])
def test_on_a_healthy_server_every_layer_passes(diagnose, recording, devices, chip):
    report = diagnose(recording)
    assert report.findings == []
    assert report.healthy
    assert [layer.status for layer in report.layers] == [PASSED] * len(LAYERS)
    assert len(report.facts.devices) == len(report.facts.device_ips) == len(report.facts.tls) == devices
    assert report.facts.chip == chip in CHIPS


WRONG = {
    "card_missing_910b3": (
        "devices", "devices.missing", "a card is missing: there is no /dev/davinci5, though there is /dev/davinci7"
    ),
    "old_driver_910b3": (
        "cann", "cann.driver", "driver 24.1.0 is older than 26.0.RC1, which CANN 9.0.0 was released with"
    ),
    "container_without_mounts": (
        "devices",
        "devices.container",
        "8 Ascend devices are on the PCI bus, but there is no /dev/davinciN in this container",
    ),
    "stale_table_910b3": (
        "network",
        "network.stale",
        "the rank table is stale: server 10.21.4.11: device 3 (rank 3) has device_ip 29.1.112.77 in the table, but hccn_tool "
        "says 29.1.112.11",
    ),
}  # fmt: skip


@pytest.mark.parametrize("recording", WRONG)
def test_a_wrong_state_is_named_first_and_nothing_above_it_is_looked_at(diagnose, recording):
    layer, code, seen = WRONG[recording]
    report = diagnose(recording)
    assert not report.healthy
    assert (report.findings[0].code, report.findings[0].seen) == (code, seen)
    assert len(report.findings) == 1
    assert report.findings[0].why and report.findings[0].mend
    names = [one.name for one in LAYERS]
    below = names.index(layer)
    assert [one.status for one in report.layers] == [
        *[PASSED] * below, FAILED, *[NOT_LOOKED_AT] * (len(LAYERS) - below - 1)
    ]  # fmt: skip
    assert all(layer_title(layer) in one.why_not for one in report.layers[below + 1 :])


def layer_title(name: str) -> str:
    return next(layer.title for layer in LAYERS if layer.name == name)


def test_with_everything_the_layers_above_are_looked_at_and_the_lowest_fault_is_still_first(diagnose):
    report = diagnose("card_missing_910b3", "$ export ASCEND_RT_VISIBLE_DEVICES=0,5", everything=True, quick=True)
    assert [finding.code for finding in report.findings] == ["devices.missing", "masks.absent"]
    assert {layer.name for layer in report.layers if layer.status == NOT_LOOKED_AT} == {"graph", "msrun"}


def test_a_server_with_its_tls_switch_on_is_healthy_by_itself(diagnose):
    """P7: only the comparison with the others shows it."""
    report = diagnose("tls_on_910b3", quick=True)
    assert report.healthy
    assert set(report.facts.tls.values()) == {1}


def test_a_warning_stops_nothing(diagnose):
    report = diagnose("healthy_910b3", "$ rm npu-smi", quick=True)
    assert [(finding.severity, finding.code) for finding in report.findings] == [("warning", "devices.npu_smi")]
    assert report.healthy
    assert report.layers[-1].status == PASSED
