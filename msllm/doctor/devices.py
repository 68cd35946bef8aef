"""Layer 1: the devices, their driver, what of them a container was given, and who may use them."""

from __future__ import annotations

from collections import Counter

from msllm.doctor.host import Ran
from msllm.doctor.npu_smi import chip_of, parse
from msllm.doctor.visit import Visit
from msllm.hardware.chips import CHIPS

NODES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
"""Device files that every process on an NPU opens besides its davinciN."""
DRIVER = "/usr/local/Ascend/driver"
DRIVER_VERSION = f"{DRIVER}/version.info"
DRIVER_LIBRARIES = (f"{DRIVER}/lib64/driver/libascend_hal.so", f"{DRIVER}/lib64/libascend_hal.so")
"""The library through which every process reaches the driver: where releases have put it."""
HUAWEI, ACCELERATOR = "0x19e5", "0x1200"
"""PCI vendor, and the class `processing accelerator`."""
FULL_SERVERS = (1, 2, 4, 8, 16)
"""Numbers of devices that servers are sold with."""
BUSY_SHARE = 0.2
"""Part of a device's memory that an idle one does not reach: the driver's own is about 5%."""

DOCKER = (
    "docker run --device=/dev/davinci0 ... --device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc "
    "-v /usr/local/dcmi:/usr/local/dcmi -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi "
    "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro -v /etc/hccn.conf:/etc/hccn.conf:ro "
    "-v /etc/ascend_install.info:/etc/ascend_install.info:ro --shm-size=64g IMAGE"
)
"""What a container is started with (docs of the Ascend images); one --device for each card."""


def look_at_devices(visit: Visit) -> bool:
    """Devices on the bus, their files, the driver and what npu-smi says. False where there is no sign of an NPU."""
    host, facts = visit.host, visit.facts
    facts.container = in_container(visit)
    facts.accelerators = _accelerators(visit)
    facts.devices = sorted(int(name[7:]) for name in host.names("/dev", "davinci[0-9]*") if name[7:].isdigit())
    manager = host.exists(NODES[0])
    if not (facts.devices or manager or facts.accelerators or host.exists(DRIVER) or host.which("npu-smi")):
        return False
    if facts.container:
        visit.say("this is a container")
    if not facts.devices:
        _no_devices(visit)
        return True
    visit.say(f"/dev/davinci{span(facts.devices)}")
    _nodes(visit)
    _permissions(visit)
    _driver_library(visit)
    _driver_version(visit)
    if not any(finding.code == "devices.node" for finding in visit.findings):
        _npu_smi(visit)
    _missing(visit)
    return True


def in_container(visit: Visit) -> bool:
    """By the marks that Docker, Podman and Kubernetes leave."""
    host = visit.host
    if host.exists("/.dockerenv") or host.exists("/run/.containerenv") or "KUBERNETES_SERVICE_HOST" in host.environment:
        return True
    groups = host.read("/proc/1/cgroup") or ""
    return any(mark in groups for mark in ("docker", "kubepods", "containerd", "lxc"))


def _accelerators(visit: Visit) -> int:
    """A container sees the bus of its host although it sees no device file."""
    found = 0
    for name in visit.host.names("/sys/bus/pci/devices", "*"):
        folder = f"/sys/bus/pci/devices/{name}"
        if (visit.host.read(f"{folder}/vendor") or "").strip() != HUAWEI:
            visit.host.texts.pop(f"{folder}/vendor")  # hundreds of others would fill a bundle
        else:
            found += (visit.host.read(f"{folder}/class") or "").strip().startswith(ACCELERATOR)
    return found


def _no_devices(visit: Visit) -> None:
    facts = visit.facts
    on_bus = f"{facts.accelerators} Ascend devices are on the PCI bus, but " if facts.accelerators else ""
    if facts.container:
        visit.error(
            "devices.container",
            f"{on_bus}there is no /dev/davinciN in this container",
            "a container sees only the devices that it was started with",
            DOCKER,
        )
        return
    if not facts.accelerators and visit.host.names("/sys/bus/pci/devices", "*"):
        visit.error(
            "devices.none",
            "the driver's files are here, but no Ascend device is on the PCI bus and there is no /dev/davinciN",
            "the server does not see its cards: power, seating, BIOS; or a virtual machine was not given them",
            "lspci | grep -i accelerators; dmesg | grep -i pcie | tail; where there never was a card, uninstall the driver",
        )
        return
    loaded = "drv_davinci" in (visit.host.read("/proc/modules") or "")
    visit.error(
        "devices.driver",
        f"{on_bus}there is no /dev/davinciN, and the kernel module drv_davinci_intf is {'' if loaded else 'not '}loaded",
        "without the driver no process reaches an NPU; it has to be built again after a kernel update",
        "dmesg | grep -i davinci | tail; then install driver and firmware again: "
        "bash Ascend-hdk-<chip>-npu-driver_<version>_linux-<arch>.run --full, and reboot",
    )


def _nodes(visit: Visit) -> None:
    missing = [name for name in NODES if not visit.host.exists(name)]
    if not missing:
        return
    visit.error(
        "devices.node",
        f"there is no {' and no '.join(missing)}, though there is /dev/davinci{span(visit.facts.devices)}",
        "every process on an NPU opens them: aclInit ends with an error of the driver, and npu-smi with -8005",
        f"start the container with {' '.join(f'--device={name}' for name in missing)}"
        if visit.facts.container
        else "dmesg | grep -i davinci | tail; sudo reboot where the driver was installed without one",
    )


def _permissions(visit: Visit) -> None:
    host = visit.host
    files = [*(f"/dev/davinci{n}" for n in visit.facts.devices), *(name for name in NODES if host.exists(name))]
    closed = [name for name in files if not host.may_use(name)]
    if closed:
        shown = ", ".join(closed[:4]) + (f" and {len(closed) - 4} more" if len(closed) > 4 else "")
        visit.error(
            "devices.permission",
            f"user {host.user} (uid {host.uid}) may not read and write {shown}",
            "devices belong to root and the group HwHiAiUser; others see no device, or get an error of the driver",
            f"sudo usermod -aG HwHiAiUser {host.user} and log in again; in a container: docker run --group-add "
            "$(stat -c %g /dev/davinci0)",
        )


def _driver_library(visit: Visit) -> None:
    if any(visit.host.exists(name) for name in DRIVER_LIBRARIES):
        return
    visit.error(
        "devices.driver_library",
        f"there is no {DRIVER_LIBRARIES[0]}",
        "CANN reaches the devices through it: libascend_hal.so: cannot open shared object file",
        f"docker run -v {DRIVER}:{DRIVER}:ro ..."
        if visit.facts.container
        else f"install the driver again; ls {DRIVER}/lib64",
    )


def _driver_version(visit: Visit) -> None:
    text = visit.host.read(DRIVER_VERSION)
    facts = visit.facts
    if text is not None:
        facts.driver = version_in(text)
    if facts.driver:
        visit.say(f"driver {facts.driver}")
        return
    reason = visit.host.why_unreadable(DRIVER_VERSION) if text is None else "it holds no line Version=..."
    mount = "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro"
    visit.warning(
        "devices.driver_version",
        f"{DRIVER_VERSION} tells no version: {reason}",
        "MindSpore loads the driver's libraries from there; Docker makes an empty folder of a file that is not on the host",
        f"docker run {mount} ..."
        if visit.facts.container
        else f"ls -l {DRIVER}; install the driver again where it is empty",
    )


def version_in(text: str) -> str | None:
    """Value of the line Version= of a version file, in the spellings that releases have had."""
    for key in ("version", "package_version"):
        for line in text.splitlines():
            name, mark, value = line.partition("=")
            if mark and name.strip().lower() == key and value.strip():
                return value.strip().strip("[]")
    return None


def _npu_smi(visit: Visit) -> None:
    facts = visit.facts
    done = visit.host.run(["npu-smi", "info"], timeout=30)
    if not done.ok:
        _npu_smi_failed(visit, done)
        return
    table = parse(done.out)
    facts.rows, facts.processes, facts.npu_smi = table.rows, table.processes, table.tool
    facts.chip = chip_of(table.rows)
    if not table.rows:
        first = next((line for line in done.out.splitlines() if line.strip()), "nothing")
        visit.error(
            "devices.npu_smi",
            f"npu-smi info lists no chip; it says: {first.strip()[:120]}",
            "the driver runs, but shows no device that could be used",
            "npu-smi info -l; npu-smi info -m; dmesg | grep -i davinci | tail",
        )
        return
    names = ", ".join(f"{count} x {name}" for name, count in Counter(row.name for row in table.rows).items())
    visit.say(f"npu-smi lists {names}{f' ({facts.chip})' if facts.chip else ''}")
    if facts.chip is None:
        visit.warning(
            "devices.chip",
            f"{names} is no chip that msllm knows",
            f"it trains on {', '.join(name for name, chip in CHIPS.items() if chip.device_target == 'Ascend')}; others, as the "
            "310, are made for inference",
            "npu-smi info -t board -i 0",
        )
    _versions(visit, table.driver)
    _health(visit)
    _busy(visit)


def _npu_smi_failed(visit: Visit, done: Ran) -> None:
    said = done.out + done.err
    if done.code is None and done.problem and done.problem.startswith("there is no"):
        visit.warning(
            "devices.npu_smi",
            "there is no command npu-smi",
            "without it nobody sees health, memory and processes of the devices; training itself does not need it",
            "docker run -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi -v /usr/local/dcmi:/usr/local/dcmi ..."
            if visit.facts.container
            else "export PATH=$PATH:/usr/local/bin:/usr/local/sbin, or install the driver again",
        )
        return
    if "-8005" in said or "-8020" in said:
        why = "another container has the device, or this one was started without all of its files (dcmi, the driver)"
        mend = "docker ps on the host: stop the container that has the card; else start with " + DOCKER
    elif done.problem and "no answer" in done.problem:
        why = "the driver hangs, often after a device was lost; every process on it will hang too"
        mend = "dmesg | grep -i -E 'davinci|devdrv|hung' | tail; then reboot the server"
    elif "shared object" in said:
        why = "npu-smi does not find the libraries of the driver"
        libraries = f"{DRIVER}/lib64/driver:{DRIVER}/lib64/common"
        mend = f"export LD_LIBRARY_PATH={libraries}:$LD_LIBRARY_PATH"
    else:
        why = "what npu-smi cannot ask, MindSpore cannot use"
        mend = "npu-smi info; dmesg | grep -i davinci | tail"
    visit.error("devices.npu_smi", f"npu-smi info: {done.why()}", why, mend)


def _versions(visit: Visit, loaded: str | None) -> None:
    """npu-smi prints the version of the driver that runs; the file says what is installed or mounted."""
    facts = visit.facts
    if loaded and facts.driver and loaded.lower() != facts.driver.lower():
        visit.error(
            "devices.driver",
            f"the driver that runs is {loaded}, the one in {DRIVER_VERSION} is {facts.driver}",
            "libraries of one driver and a kernel module of another do not understand each other: errors, or a hang",
            "start the container again with /usr/local/Ascend/driver of this host"
            if facts.container
            else "sudo reboot: an installed driver is loaded at the start",
        )
    facts.driver = loaded or facts.driver


def _health(visit: Visit) -> None:
    for row in visit.facts.rows:
        if row.health.upper() == "OK":
            continue
        place = f"-i {row.npu} -c {row.chip}"
        report = visit.warning if row.health.lower() == "warning" else visit.error
        report(
            "devices.health",
            f"npu-smi says {row.health} of device {row.device} ({row.name}, {row.bus})",
            "a device with an alarm fails in the middle of a run, or gives wrong numbers (ECC)",
            f"npu-smi info -t health {place}; with nothing running: npu-smi set -t reset {place}",
        )


def _busy(visit: Visit) -> None:
    """P25: memory that others hold is memory that training lacks."""
    visible = masked_devices(visit)
    if {row.device for row in visit.facts.rows} - set(visit.facts.devices):
        visible = {row.device for row in visit.facts.rows}  # numbered anew in a container: the mask means others
    for row in visit.facts.rows:
        if row.device not in visible or not row.memory_total_mb or row.memory_used_mb is None:
            continue
        owners = [p for p in visit.facts.processes if (p.npu, p.chip) == (row.npu, row.chip)]
        held = ", ".join(f"process {p.pid} {p.name}".rstrip() + f" has {p.memory_mb} MB" for p in owners)
        if row.memory_used_mb >= BUSY_SHARE * row.memory_total_mb:
            visit.error(
                "devices.busy",
                f"of {row.memory_total_mb} MB of device {row.device}, {row.memory_used_mb} MB are taken: "
                f"{held or 'no process is shown, so it is one of another container'}",
                "a run that starts here ends with Malloc device memory failed, EL0004 or EI0011",
                f"ps -fp {owners[0].pid}, and end what is not wanted (kill {owners[0].pid}); or use other devices: "
                "export ASCEND_RT_VISIBLE_DEVICES=..."
                if owners
                else "on the host: npu-smi info, and stop the container that has the device",
            )
        elif owners:
            visit.warning(
                "devices.busy",
                f"device {row.device} is in use: {held}",
                "two jobs on one device share its memory and its time",
                f"ps -fp {owners[0].pid}",
            )


def masked_devices(visit: Visit) -> set[int]:
    """Devices that ASCEND_RT_VISIBLE_DEVICES lets through; all where it is unset or cannot be read."""
    words = visit.host.environment.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",")
    chosen = {int(word) for word in words if word.strip().isascii() and word.strip().isdigit()}
    return chosen or set(visit.facts.devices)


def _missing(visit: Visit) -> None:
    """Cards that fell off the bus, or that the driver lists and Linux does not show."""
    facts = visit.facts
    devices, rows = set(facts.devices), {row.device: row for row in facts.rows}
    gone: str | None = None
    if facts.container:
        # It may have some of the cards, and npu-smi may number them anew.
        if rows and len(rows) < len(devices):
            gone = f"npu-smi lists {len(rows)} of /dev/davinci{span(facts.devices)}"
    elif rows and devices - set(rows):
        gone = f"npu-smi does not list /dev/davinci{span(sorted(devices - set(rows)))}"
    elif rows and set(rows) - devices:
        gone = f"npu-smi lists device {span(sorted(set(rows) - devices))}, but there is no such /dev/davinciN"
    elif len(devices) < facts.accelerators:
        gone = f"{facts.accelerators} devices are on the PCI bus, but there are only /dev/davinci{span(facts.devices)}"
    elif devices != set(range(len(devices))):
        absent = sorted(set(range(max(devices))) - devices)
        gone = f"there is no /dev/davinci{span(absent)}, though there is /dev/davinci{max(devices)}"
    elif len(devices) not in FULL_SERVERS:
        gone = f"there are {len(devices)} devices; servers have {', '.join(map(str, FULL_SERVERS))}"
    if gone:
        visit.error(
            "devices.missing",
            f"a card is missing: {gone}",
            "a job for the whole server waits for its rank until HCCL's time-out; the card is broken, loose or without power",
            "lspci | grep -i accelerators; dmesg | grep -i -E 'davinci|pcie' | tail; power the server off and on, else have "
            "the card replaced; until then train on the others with ASCEND_RT_VISIBLE_DEVICES",
        )


def span(numbers: list[int]) -> str:
    """`0-7`, `0-4,6,7`: runs of three and more as a range."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*numbers, -1]:
        if run and number == run[-1] + 1:
            run.append(number)
            continue
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
        run = [number]
    return ",".join(parts)
