"""Layer 1: device files, permissions, the driver, npu-smi."""

from __future__ import annotations

import os

import pytest
from recorded import RECORDINGS

from msllm.doctor.devices import look_at_devices, span
from msllm.doctor.npu_smi import parse
from msllm.doctor.visit import Visit

HEALTHY = "healthy_910b3"
BUSES = ("c1", "c2", "81", "82", "01", "02", "41", "42")
CONTAINER = "$ touch /.dockerenv"


@pytest.fixture
def look(server):
    """Codes and texts of the layer's findings."""

    def run(*transcripts: str, **host: object) -> list[tuple[str, str, str]]:
        visit = Visit(server(*transcripts).host(**host))
        assert look_at_devices(visit)
        return [(finding.severity, finding.code, finding.seen) for finding in visit.findings]

    return run


def with_row(old: str, new: str) -> str:
    """The healthy table with a text replaced."""
    text = (RECORDINGS / f"{HEALTHY}.txt").read_text().split("$ npu-smi info\n")[1].split("\n$ ")[0]
    assert old in text and parse(text.replace(old, new)).rows
    return f"$ npu-smi info\n{text.replace(old, new)}"


def test_a_machine_without_any_sign_of_an_npu(server):
    visit = Visit(server("$ touch /dev/null").host())
    assert not look_at_devices(visit)
    assert visit.findings == []


def test_a_server_whose_driver_is_not_loaded(look):
    found = look(HEALTHY, "$ rm " + " ".join(f"/dev/davinci{n}" for n in range(8)), "$ rm /dev/davinci_manager")
    assert [code for _, code, _ in found] == ["devices.driver"]
    assert "8 Ascend devices are on the PCI bus" in found[0][2]
    assert "not loaded" in found[0][2]


def test_a_server_that_sees_none_of_its_cards(look):
    gone = "$ rm " + " ".join(f"/dev/davinci{n} /sys/bus/pci/devices/0000:{bus}:00.0" for n, bus in enumerate(BUSES))
    found = look(HEALTHY, gone, "$ cat /sys/bus/pci/devices/0000:00:01.0/vendor\n0x8086")
    assert [code for _, code, _ in found] == ["devices.none"]


@pytest.mark.parametrize("inside", [True, False])
def test_device_files_that_a_container_was_not_given(server, inside):
    visit = Visit(server(HEALTHY, "$ rm /dev/davinci_manager /dev/hisi_hdc", *[CONTAINER] * inside).host())
    look_at_devices(visit)
    (finding,) = visit.findings
    assert finding.seen == "there is no /dev/davinci_manager and no /dev/hisi_hdc, though there is /dev/davinci0-7"
    assert ("--device=/dev/davinci_manager --device=/dev/hisi_hdc" in finding.mend) == inside


def test_who_is_not_in_the_group_of_the_devices_is_told_how_to_join(server):
    made = server(HEALTHY)
    for number in range(8):
        made.file(f"/dev/davinci{number}").chmod(0o660)
    visit = Visit(made.host(uid=54321, groups=frozenset({54321})))
    look_at_devices(visit)
    (finding,) = visit.findings
    assert finding.code == "devices.permission"
    assert finding.seen.startswith("user liwei (uid 54321) may not read and write /dev/davinci0, /dev/davinci1")
    assert "usermod -aG HwHiAiUser liwei" in finding.mend


def test_who_is_in_the_group_may_use_the_devices(server):
    made = server(HEALTHY)
    group = made.file("/dev/davinci0").stat().st_gid
    for path in made.root.glob("dev/*"):
        path.chmod(0o660)
    visit = Visit(made.host(uid=54321, groups=frozenset({group})))
    look_at_devices(visit)
    assert visit.findings == []


def test_a_container_without_the_driver_s_library(look):
    found = look(HEALTHY, CONTAINER, "$ rm /usr/local/Ascend/driver/lib64")
    assert [code for _, code, _ in found] == ["devices.driver_library"]


def test_a_version_file_that_docker_made_a_folder(server):
    made = server(HEALTHY, CONTAINER, "$ rm /usr/local/Ascend/driver/version.info")
    made.file("/usr/local/Ascend/driver/version.info").mkdir()
    visit = Visit(made.host())
    look_at_devices(visit)
    (finding,) = visit.findings
    assert (finding.severity, finding.code) == ("warning", "devices.driver_version")
    assert "Is a directory" in finding.seen
    assert visit.facts.driver == "26.0.rc1", "npu-smi tells it too"


def test_an_installed_driver_that_is_not_the_one_that_runs(look):
    found = look(HEALTHY, "$ cat /usr/local/Ascend/driver/version.info\nVersion=25.5.0")
    assert found == [
        ("error", "devices.driver",
         "the driver that runs is 26.0.rc1, the one in /usr/local/Ascend/driver/version.info is 25.5.0")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("says", "seen", "why"),
    [
        ("$ npu-smi info\nDrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\n"
         "dcmi module initialize failed. ret is -8005\n[exit code 255]",
         "npu-smi info: exit code 255: dcmi module initialize failed. ret is -8005", "another container has the device"),
        ("$ npu-smi info\nnpu-smi: error while loading shared libraries: libc_sec.so:"
         " cannot open shared object file\n[exit code 127]",
         "npu-smi info: exit code 127: npu-smi: error while loading", "libraries of the driver"),
        ("$ npu-smi info\n\x00\x01 what is this\n", "npu-smi info lists no chip; it says: \\x00\\x01 what is this", "no device"),
        ("$ npu-smi info\n", "npu-smi info lists no chip; it says: nothing", "no device"),
    ],
)  # fmt: skip
def test_what_npu_smi_says_instead_of_a_table(server, says, seen, why):
    visit = Visit(server(HEALTHY, says).host())
    look_at_devices(visit)
    (finding,) = visit.findings
    assert finding.code == "devices.npu_smi"
    assert finding.seen.startswith(seen)
    assert why in finding.why


def test_an_npu_smi_that_hangs_is_a_finding(server):
    visit = Visit(server(HEALTHY, "$ hang npu-smi info").host(patience=0.02))
    look_at_devices(visit)
    (finding,) = visit.findings
    assert finding.seen == "npu-smi info: no answer in 0.6 s"
    assert "the driver hangs" in finding.why


@pytest.mark.parametrize(
    ("health", "severity"), [("Alarm   ", "error"), ("Warning ", "warning"), ("UNKNOWN ", "error")]
)
def test_a_device_that_is_not_well(look, health, severity):
    found = look(HEALTHY, with_row("| 2     910B3               | OK      ", f"| 2     910B3               | {health}"))
    assert found == [(severity, "devices.health", f"npu-smi says {health.strip()} of device 2 (910B3, 0000:81:00.0)")]


OTHER = "| No running processes found in NPU 4"
PROCESS = "| 4       0                 | 19341         | python                   | 51200                                     |\n"


def test_p25_a_device_whose_memory_another_process_has(look):
    """P25: Malloc device memory failed, EI0011."""
    row = with_row("3403 / 65536", "54603/ 65536")
    found = look(HEALTHY, row.replace(OTHER, PROCESS + OTHER))
    assert found == [
        ("error", "devices.busy",
         "of 65536 MB of device 4, 54603 MB are taken: process 19341 python has 51200 MB")
    ]  # fmt: skip
    (finding,) = look(HEALTHY, row)
    assert finding[2].endswith("no process is shown, so it is one of another container")


def test_p25_a_device_that_the_mask_leaves_out_may_be_busy(look):
    row = with_row("3403 / 65536", "54603/ 65536")
    assert look(HEALTHY, row, "$ export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3") == []


def test_a_small_process_is_a_warning(look):
    found = look(
        HEALTHY, with_row("3403 / 65536", "3903 / 65536").replace(OTHER, PROCESS.replace("51200", "512  ") + OTHER)
    )
    assert found == [("warning", "devices.busy", "device 4 is in use: process 19341 python has 512 MB")]


def test_cards_that_only_one_of_bus_driver_and_npu_smi_knows(look):
    gone = look(HEALTHY, "$ rm /dev/davinci7")
    assert gone == [
        ("error", "devices.missing", "a card is missing: npu-smi lists device 7, but there is no such /dev/davinciN")
    ]
    (finding,) = look("card_missing_910b3", "$ touch /dev/davinci5")
    assert finding[2] == "a card is missing: npu-smi does not list /dev/davinci5"
    (finding,) = look(HEALTHY, "$ rm npu-smi /dev/davinci7")[1:]
    assert "8 devices are on the PCI bus, but there are only /dev/davinci0-6" in finding[2]


def test_a_container_may_number_its_cards_anew(look):
    """npu-smi says 0 and 1 of /dev/davinci4 and 5; it must list as many as there are."""
    gone = "$ rm " + " ".join(f"/dev/davinci{n}" for n in (0, 1, 2, 3, 6, 7))
    text = (RECORDINGS / f"{HEALTHY}.txt").read_text().split("$ npu-smi info\n")[1].split("\n$ ")[0]
    two, one = ("\n".join(text.splitlines()[: 7 + 3 * count]) for count in (2, 1))
    assert look(HEALTHY, CONTAINER, gone, f"$ npu-smi info\n{two}") == []
    assert look(HEALTHY, CONTAINER, gone, f"$ npu-smi info\n{one}") == [
        ("error", "devices.missing", "a card is missing: npu-smi lists 1 of /dev/davinci4,5")
    ]


def test_a_container_may_have_some_of_the_cards(look):
    assert look(HEALTHY, CONTAINER, "$ rm /dev/davinci0 /dev/davinci1 /dev/davinci2 /dev/davinci5") == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(server):
    made = server(HEALTHY)
    made.file("/usr/local/Ascend/driver/version.info").parent.chmod(0)
    visit = Visit(made.host())
    look_at_devices(visit)
    assert visit.findings


def test_a_card_for_inference(look):
    text = with_row("910B3     ", "310P3     ")
    assert look(HEALTHY, text) == [("warning", "devices.chip", "8 x 310P3 is no chip that msllm knows")]


def test_ranges_of_numbers():
    assert span([0, 1, 2, 3]) == "0-3"
    assert span([0, 1, 3, 5, 6, 7]) == "0,1,3,5-7"
    assert span([]) == ""
