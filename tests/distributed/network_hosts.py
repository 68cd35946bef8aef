"""Two "hosts" on this machine: network namespaces with a cable between them and host names of their own."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_numbers = itertools.count()

SSH = """#!/bin/sh
# In the place of ssh: $1 the host, $2 a line for its shell.
exec ip netns exec "$1" unshare --uts sh -c "hostname $1; $2"
"""


@dataclass(frozen=True)
class Hosts:
    """Names double as those of the namespaces."""

    names: tuple[str, str]
    addresses: tuple[str, str]
    cable: str
    ssh: Path

    def file(self, folder: Path) -> Path:
        """A host file."""
        path = folder / "hosts.txt"
        path.write_text("".join(f"{name} {address} 1\n" for name, address in zip(self.names, self.addresses)))
        return path

    def on(self, index: int, line: str) -> list[str]:
        """The command that runs a shell line on a host."""
        return ["sh", str(self.ssh), self.names[index], line]

    def processes(self, index: int) -> list[int]:
        """What runs there."""
        done = subprocess.run(["ip", "netns", "pids", self.names[index]], capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]

    def cut(self) -> None:
        """Pull the cable."""
        subprocess.run(["ip", "-n", self.names[0], "link", "set", self.cable, "down"], check=True)


def why_not() -> str | None:
    """Why there can be no such hosts here."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "needs iproute2 and util-linux (ip, unshare)"
    probe = f"msllm-probe-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"cannot make network namespaces: {done.stderr.strip()}" if done.returncode else None


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Make them, and remove them with all that runs there. Skips where that is not possible."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    tag = f"{os.getpid()}x{next(_numbers)}"
    names = (f"msllm{tag}a", f"msllm{tag}b")
    cables = (f"v{tag}a"[:15], f"v{tag}b"[:15])
    ssh = folder / "ssh.sh"
    ssh.write_text(SSH)
    hosts = Hosts(names, ("10.77.0.1", "10.77.0.2"), cables[0], ssh)

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for name, cable, address in zip(names, cables, hosts.addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for index, name in enumerate(names):
            for pid in hosts.processes(index):
                subprocess.run(["kill", "-9", str(pid)], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
