"""Addresses and ports of a node."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping

import psutil

from msllm.errors import Problem


def local_addresses() -> set[str]:
    """Addresses of this host's network cards, loopback too."""
    found = set()
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                found.add(entry.address.partition("%")[0])
    return found


def resolve(host: str) -> str:
    """The address of a name; ValueError with what to do where there is none."""
    try:
        return str(socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ValueError(
            f"--master-addr {host}: this name has no address here ({error.strerror or error}); give the IP address of node 0, "
            f"or put the name into /etc/hosts of every node"
        ) from None


def is_local(address: str) -> bool:
    """Whether an address is this host's."""
    return address in local_addresses() or address.startswith("127.")


def port_problems(address: str, ports: dict[str, int]) -> Iterator[Problem]:
    """Ports of this host (option -> port) that cannot be listened on, each with who does."""
    for option, port in ports.items():
        reason = _unusable(address, port)
        if reason is None:
            continue
        if reason.errno == errno.EADDRINUSE:
            owner = _owner(port)
            yield Problem(
                f"{option} {port} on {address} is in use{f' by {owner}' if owner else ''}; end that process if it is left from "
                f"an earlier job, or choose another port"
            )
        elif reason.errno == errno.EADDRNOTAVAIL:
            yield Problem(
                f"--master-addr {address} is no address of this host, which has {', '.join(sorted(local_addresses()))}; node 0 "
                f"must be the host of --master-addr"
            )
            return
        else:
            yield Problem(f"{option} {port} on {address} cannot be listened on: {reason.strerror}")


def _unusable(address: str, port: int) -> OSError | None:
    try:
        listen(address, port).close()
    except OSError as error:
        return error
    return None


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens; OSError where that cannot be."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an ended job's connections linger for a minute
        made.bind((address, port))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def _owner(port: int) -> str | None:
    """Who listens on a port, as far as this user may know."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
            and connection.pid
        ):
            try:
                process = psutil.Process(connection.pid)
                return f"process {connection.pid} ({' '.join(process.cmdline()[:4]) or process.name()})"
            except psutil.Error:
                return f"process {connection.pid}"
    return None


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with listen(address, 0) as probe:
        return int(probe.getsockname()[1])


HCCL_BASE_PORT, HCCL_PORTS = 60000, 16
"""HCCL listens on so many ports of the host from HCCL_IF_BASE_PORT on, one for each device."""


def hccl_port_problems(
    environment: Mapping[str, str], listening: Callable[[], Mapping[int, int]] | None = None
) -> Iterator[Problem]:
    """Ports that HCCL will want and others have.

    Args:
        environment: of the job's processes.
        listening: the host's ports in use, each with the process (0: unknown); None: looked up.
    """
    if "HCCL_HOST_SOCKET_PORT_RANGE" in environment:
        return
    given = environment.get("HCCL_IF_BASE_PORT", "")
    base = int(given) if given.isdecimal() else HCCL_BASE_PORT
    used = (listening or _listening)()
    taken = [port for port in range(base, base + HCCL_PORTS) if port in used]
    if taken:
        owners = ", ".join(str(owner) for owner in dict.fromkeys(used[port] for port in taken) if owner)
        yield Problem(
            f"port {', '.join(map(str, taken))} is in use{f' by process {owners}' if owners else ''}, and HCCL listens on {base} "
            f"to {base + HCCL_PORTS - 1} (HCCL_IF_BASE_PORT); end that process, set HCCL_IF_BASE_PORT to another base, or "
            "HCCL_HOST_SOCKET_PORT_RANGE to auto"
        )


def _listening() -> dict[int, int]:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return {}
    return {c.laddr.port: c.pid or 0 for c in connections if c.laddr}


def host_name() -> str:
    """This host's name, by which MindSpore tells servers apart."""
    return os.uname().nodename
