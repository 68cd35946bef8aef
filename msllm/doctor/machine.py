"""Layer 7: processors, memory, shared memory, open files, the disk of the runs, and the clock."""

from __future__ import annotations

import re
import time

from msllm.doctor.visit import Visit

CORES_PER_DEVICE = 4
MEMORY_GB_PER_DEVICE = 16
SHM_GB_PER_DEVICE = 1
DOCKER_SHM_GB = 0.07
"""Docker gives 64 MB where --shm-size does not say otherwise."""
OPEN_FILES = 65536
SMALL_OPEN_FILES = 1024
DISK_MB_PER_SECOND = 100
FREE_GB = 20
SKEW_SECONDS = 1.0
"""Clocks that differ by more make logs of several nodes unreadable, and files look newer than they are."""
GB = 1 << 30


def look_at_machine(visit: Visit) -> bool:
    """The host's own resources; what NPUs need of them only where there are NPUs."""
    facts = visit.facts
    facts.operating_system = _os_name(visit)
    facts.kernel = (visit.host.read("/proc/sys/kernel/osrelease") or "").strip()
    _cores(visit)
    _memory(visit)
    _shm(visit)
    _open_files(visit)
    _disk(visit)
    _clock(visit)
    _clocks_of_nodes(visit)
    return True


def _os_name(visit: Visit) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', visit.host.read("/etc/os-release") or "", re.MULTILINE)
    return match[1] if match else ""


def _devices(visit: Visit) -> int:
    return len(visit.facts.devices)


def _cores(visit: Visit) -> None:
    """Cores that this process may use: of its affinity, cut by a container's quota."""
    cores = visit.host.cores
    quota, _, period = (visit.host.read("/sys/fs/cgroup/cpu.max") or "max").partition(" ")
    if quota.isdigit() and period.strip().isdigit() and int(period):
        cores = min(cores, max(1, round(int(quota) / int(period))))
    visit.facts.cores = cores
    visit.say("1 core" if cores == 1 else f"{cores} cores")
    needed = CORES_PER_DEVICE * _devices(visit)
    if cores < needed:
        visit.warning(
            "machine.cores",
            f"{cores} cores for {_devices(visit)} devices",
            "each rank compiles its graph and reads its data on cores of its own; devices will wait for them",
            "docker run --cpus ... , or the scheduler's number of cores a task; taskset -p $$ shows what is allowed",
        )


def _memory(visit: Visit) -> None:
    match = re.search(r"^MemTotal:\s*(\d+) kB", visit.host.read("/proc/meminfo") or "", re.MULTILINE)
    if match is None:
        return
    total = int(match[1]) * 1024 / GB
    limit = (visit.host.read("/sys/fs/cgroup/memory.max") or "").strip()
    if limit.isdigit():
        total = min(total, int(limit) / GB)
    visit.facts.memory_gb = round(total, 1)
    visit.say(f"{total:.0f} GB of memory")
    needed = MEMORY_GB_PER_DEVICE * _devices(visit) if _devices(visit) else 4
    if total < needed:
        visit.warning(
            "machine.memory",
            f"{total:.1f} GB of memory{f' for {_devices(visit)} devices' if _devices(visit) else ''}",
            "each rank holds its graph, its data and a copy of its weights while a checkpoint is written; the kernel ends "
            "processes (SIGKILL) where memory runs out",
            "free -g; docker run --memory ..., or fewer ranks a server",
        )


def _shm(visit: Visit) -> None:
    """P24: MindSpore's data processes pass batches through /dev/shm."""
    needed = SHM_GB_PER_DEVICE * max(1, _devices(visit))
    why = "MindSpore's data processes pass batches through it: GetNext timeout, Bus error, or a worker that ends without a word"
    mend = f"docker run --shm-size={max(64, needed)}g ..., or mount -o remount,size={max(64, needed)}g /dev/shm"
    try:
        size, _ = visit.host.room_gb(visit.host.path("/dev/shm"))
    except OSError as error:
        visit.warning("machine.shm", f"/dev/shm: {error.strerror}", why, "mount -t tmpfs -o size=64g tmpfs /dev/shm")
        return
    visit.facts.shm_gb = round(size, 3)
    visit.say(f"/dev/shm of {size:.1f} GB")
    if size < needed:
        report = visit.error if size < DOCKER_SHM_GB and _devices(visit) else visit.warning
        report("machine.shm", f"/dev/shm has {size * 1024:.0f} MB", why, mend)


def _open_files(visit: Visit) -> None:
    """P24: sockets to other ranks and shards of the data are files."""
    limit = visit.host.open_files if visit.host.open_files >= 0 else 1 << 30
    visit.facts.open_files = limit
    visit.say(f"{limit} open files allowed" if limit < 1 << 30 else "any number of open files allowed")
    if limit >= (OPEN_FILES if _devices(visit) else SMALL_OPEN_FILES):
        return
    report = visit.error if limit < SMALL_OPEN_FILES else visit.warning
    report(
        "machine.open_files",
        f"ulimit -n is {limit}",
        "every rank opens sockets to all others and every shard of the data: Too many open files, or a hang of the data sink",
        f"ulimit -n {OPEN_FILES}, and for good in /etc/security/limits.conf; docker run --ulimit nofile={OPEN_FILES}",
    )


def _disk(visit: Visit) -> None:
    """The disk that checkpoints are written to."""
    folder = visit.request.folder.absolute()
    try:
        _, free = visit.host.room_gb(folder)
        speed = visit.host.write_speed(folder)
    except OSError as error:
        visit.error(
            "machine.disk",
            f"nothing can be written to {folder}: {error.strerror}",
            "runs, checkpoints and logs are written there",
            "msllm doctor --folder FOLDER tries another one; df -h; ls -ld shows its owner",
        )
        return
    visit.facts.disk_mb_per_second = round(speed)
    visit.say(f"{folder}: {speed:.0f} MB/s written, {free:.0f} GB free")
    if speed < DISK_MB_PER_SECOND:
        visit.warning(
            "machine.disk_speed",
            f"{folder} takes {speed:.0f} MB/s",
            f"a checkpoint of 7 billion parameters with Adam's moments has 84 GB: {84e3 / max(speed, 1e-3) / 60:.0f} minutes, "
            "in which all ranks wait",
            "choose a local NVMe disk or a parallel file system: msllm doctor --folder FOLDER tries it",
        )
    if free < FREE_GB:
        visit.warning(
            "machine.disk_space",
            f"{folder} has {free:.1f} GB left",
            "checkpoints do not fit; a run ends when one cannot be written",
            f"df -h {folder}; msllm doctor --folder FOLDER tries another one",
        )


def _clock(visit: Visit) -> None:
    """Whether this clock follows a time server, and how far it is from it."""
    host, facts = visit.host, visit.facts
    chrony = host.run(["chronyc", "-n", "tracking"]) if host.which("chronyc") else None
    if chrony is not None and chrony.ok:
        match = re.search(r"System time\s*:\s*([\d.]+) seconds (slow|fast)", chrony.out)
        if match:
            facts.clock_offset_seconds = float(match[1]) * (-1 if match[2] == "slow" else 1)
        facts.clock_synchronized = "Leap status     : Not synchronised" not in chrony.out
    elif host.which("timedatectl"):
        done = host.run(["timedatectl", "show", "-p", "NTPSynchronized", "--value"])
        if done.ok and done.out.strip() in ("yes", "no"):
            facts.clock_synchronized = done.out.strip() == "yes"
    if facts.clock_synchronized:
        visit.say("the clock follows a time server")
    if abs(facts.clock_offset_seconds or 0) > SKEW_SECONDS:
        visit.warning(
            "machine.clock",
            f"this clock is {abs(facts.clock_offset_seconds or 0):.1f} s off its time server",
            "logs of several nodes cannot be put in order, and a file of another node looks newer than it is",
            "sudo chronyc makestep",
        )
    elif facts.clock_synchronized is False and _devices(visit):
        visit.warning(
            "machine.clock",
            "this clock follows no time server",
            "clocks of several nodes drift apart: logs cannot be put in order, certificates and leases fail",
            "sudo timedatectl set-ntp true",
        )


def _clocks_of_nodes(visit: Visit) -> None:
    """Ask other nodes for their time over ssh. The answer is right to half of the time that it took."""
    for node in visit.request.nodes:
        before = time.time()
        done = visit.host.run(
            ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", node, "date +%s.%N"], timeout=30
        )
        after = time.time()
        match = re.search(r"^(\d{9,}\.\d+)\s*$", done.out, re.MULTILINE)
        if not done.ok or match is None:
            visit.error(
                "machine.node",
                f"ssh {node} date: {done.why() if not done.ok else 'it printed no time'}",
                "a job of several nodes is started over ssh, or needs it to be looked after",
                f"ssh {node} date; ssh-copy-id {node}",
            )
            continue
        judge_skew(visit, node, float(match[1]), before, after)


def judge_skew(visit: Visit, node: str, theirs: float, before: float, after: float) -> None:
    """Say how far a node's clock is from ours: what it said, and our clock before and after the question, in seconds."""
    middle, doubt = (before + after) / 2, (after - before) / 2
    offset = theirs - middle
    visit.facts.clock_offsets_of_nodes[node] = round(offset, 3)
    if abs(offset) - doubt > SKEW_SECONDS:
        visit.error(
            "machine.skew",
            f"the clock of {node} is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this one",
            "logs of several nodes cannot be put in order, and a file of another node looks newer than it is",
            f"ssh {node} sudo chronyc makestep; sudo chronyc makestep",
        )
    else:
        visit.say(f"the clock of {node} differs by {offset:+.2f} s (within {doubt:.2f} s)")
