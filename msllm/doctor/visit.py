"""What an examination asks for, finds and learns: the request, the findings, the facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from msllm.doctor.host import Host
from msllm.doctor.npu_smi import NpuProcess, NpuRow

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    severity: str
    """`error`: training here fails or cannot start. `warning`: it may, or is slower than it has to be."""
    code: str
    """What it is, for programs: devices.permission."""
    seen: str
    why: str
    mend: str
    """The command that mends it, or that says more."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    rank_table: str | None = None
    """Path of the rank table of the job; None: RANK_TABLE_FILE."""
    folder: Path = Path(".")
    """Where runs will be written: its disk is tried."""
    nodes: tuple[str, ...] = ()
    """Other servers, to compare clocks with over ssh."""
    everything: bool = False
    """Look at every layer, also above one that failed."""
    quick: bool = False
    """Start no MindSpore."""


@dataclass
class Facts:
    """What was learnt on the way: for the layers above, and for comparing nodes."""

    architecture: str = ""
    operating_system: str = ""
    kernel: str = ""
    container: bool = False
    accelerators: int = 0
    """Ascend devices on the PCI bus, which a container sees too."""
    devices: list[int] = field(default_factory=list)
    """N of /dev/davinciN."""
    chip: str | None = None
    """Name in msllm.hardware.chips."""
    rows: list[NpuRow] = field(default_factory=list)
    processes: list[NpuProcess] = field(default_factory=list)
    npu_smi: str | None = None
    driver: str | None = None
    firmware: str | None = None
    cann: str | None = None
    cann_home: str | None = None
    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    device_ips: dict[int, str] = field(default_factory=dict)
    tls: dict[int, int] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)
    net_health: dict[int, str] = field(default_factory=dict)
    rank_table_sha256: str | None = None
    rank_table_devices: list[int] = field(default_factory=list)
    """Device ids that the rank table has for this server, in its order."""
    cores: int | None = None
    memory_gb: float | None = None
    shm_gb: float | None = None
    open_files: int | None = None
    disk_mb_per_second: float | None = None
    clock_synchronized: bool | None = None
    clock_offset_seconds: float | None = None
    """Of this clock from its time server."""
    clock_offsets_of_nodes: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Visit:
    """One examination of one host. A layer writes what it sees and finds here."""

    host: Host
    request: Request = field(default_factory=Request)
    facts: Facts = field(default_factory=Facts)
    seen: list[str] = field(default_factory=list)
    """Of the layer that is being looked at: what is as it should be."""
    findings: list[Finding] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Note what is there."""
        self.seen.append(printable(text))

    def error(self, code: str, seen: str, why: str, mend: str) -> None:
        """Note what is wrong."""
        self.findings.append(Finding(ERROR, code, printable(seen), why, mend))

    def warning(self, code: str, seen: str, why: str, mend: str) -> None:
        """Note what may go wrong."""
        self.findings.append(Finding(WARNING, code, printable(seen), why, mend))


def printable(text: str) -> str:
    """A text of which nothing moves the cursor or cannot be encoded: what commands and variables hold may be anything."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
