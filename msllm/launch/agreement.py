"""What nodes tell of themselves before a job starts, and what must be the same on all of them."""

from __future__ import annotations

import os
import platform
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from msllm import __version__
from msllm.launch.channel import Message

COMPARED_PACKAGES = ("mindspore", "mindformers", "numpy")
SHOWN_KEYS = 4


@dataclass(frozen=True)
class Hello:
    """One node."""

    node: int
    host: str
    """Its name: MindSpore counts the cards of a server by it."""
    address: str = ""
    """From which it is connected."""
    versions: Mapping[str, str] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    """What must be the same: number of nodes and ranks, ports, and every value of the configuration by its name."""
    problems: tuple[str, ...] = ()
    """What the node has found wrong by itself."""
    folder: str | None = None
    """What marks the run's folder; None where it was not looked at."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"node {self.node} ({self.host})"

    @property
    def place(self) -> str:
        """For messages, with the address."""
        where = f", {self.address}" if self.address and self.address != self.host else ""
        return f"node {self.node} ({self.host}{where})"

    def to_message(self) -> Message:
        """As it is sent."""
        return {"type": "hello", **asdict(self)}

    @classmethod
    def from_message(cls, message: Message, address: str) -> Hello:
        """As it has come from `address`; KeyError, TypeError, ValueError where it is none."""
        return cls(
            int(message["node"]),
            str(message["host"]),
            address,
            dict(message["versions"]),
            dict(message.get("job", {})),  # another version of this command may say less
            tuple(map(str, message.get("problems", ()))),
            message.get("folder"),
        )


def mark_of(folder: Path) -> str:
    """What marks a folder, written by the first one who looks: the same for all nodes that share it."""
    mark = folder / ".folder"
    own = folder / f".folder-{uuid.uuid4().hex}"
    own.write_text(own.name)
    try:
        with suppress(FileExistsError):
            os.link(own, mark)  # whole at once, and never a second time
        return mark.read_text()
    finally:
        own.unlink()


def versions(environment: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """What is installed here, without importing it; CANN and driver where there are any. `root`: of the file system."""
    found = {"python": platform.python_version(), "msllm": __version__}
    for package in COMPARED_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    toolkit = Path(environment.get("ASCEND_TOOLKIT_HOME", "/usr/local/Ascend/ascend-toolkit/latest"))
    files = {"CANN": toolkit / "compiler/version.info", "driver": Path("/usr/local/Ascend/driver/version.info")}
    for name, file in files.items():
        version = _version_in(root / str(file).lstrip("/"))
        if version is not None:
            found[name] = version
    return found


def _version_in(file: Path) -> str | None:
    """Of a file with a line `Version=25.0.rc1`."""
    try:
        match = re.search(
            r"^version\s*=\s*\[?([^\]\s]+)", file.read_text(errors="replace"), re.IGNORECASE | re.MULTILINE
        )
    except OSError:
        return None
    return match[1] if match else None


def disagreements(hellos: Sequence[Hello]) -> list[str]:
    """Everything that keeps these nodes from being one job: what each has found by itself, then between them."""
    several = len(hellos) > 1
    found = [f"{hello.name}: {text}" if several else text for hello in hellos for text in hello.problems]
    first = hellos[0]
    by_host: dict[str, list[Hello]] = {}
    for hello in hellos:
        by_host.setdefault(hello.host, []).append(hello)
    for host, same in by_host.items():
        if len(same) > 1:
            nodes = " and ".join(str(hello.node) for hello in same)
            found.append(
                f"nodes {nodes} are both called {host}: MindSpore counts the devices of a server by its host name; start one "
                f"launcher on each server, or give the servers different names (hostnamectl set-hostname)"
            )
    for hello in hellos[1:]:
        for what in dict.fromkeys([*first.versions, *hello.versions]):
            value, expected = (node.versions.get(what, "none") for node in (hello, first))
            if value != expected:
                found.append(
                    f"{hello.name} has {what} {value}, {first.name} has {expected}; install the same on all nodes"
                )
        if first.folder and hello.folder and hello.folder != first.folder:
            found.append(
                f"{hello.name} sees another folder under the name of --output than {first.name}; it must be on a disk that all "
                f"nodes share, or no rank there could resume"
            )
        if not (first.problems or hello.problems):  # a configuration that is wrong was not read
            found += _other_job(first, hello)
    return found


def _other_job(first: Hello, hello: Hello) -> list[str]:
    keys = [key for key in {**first.job, **hello.job} if first.job.get(key) != hello.job.get(key)]
    found = [
        f"{hello.name} was started with {key} {hello.job.get(key)!r}, {first.name} with {first.job.get(key)!r}; give all nodes "
        f"the same configuration"
        for key in keys[:SHOWN_KEYS]
    ]
    if len(keys) > SHOWN_KEYS:
        found.append(f"{hello.name} differs from {first.name} in {len(keys) - SHOWN_KEYS} more values")
    return found
