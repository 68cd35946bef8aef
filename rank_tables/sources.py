"""Where device addresses come from: hccn_tool and npu-smi of a server, its /etc/hccn.conf, or a file with their output."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from msllm.errors import InputError, Problem
from rank_tables.fields import MAX_DEVICES, is_loopback, wrong_address

HCCN_CONF = Path("/etc/hccn.conf")
TOOLS = "/usr/local/Ascend/driver/tools:/usr/local/bin:/usr/local/sbin"

# Prints "[device N]" and the tools' own output for each device; where hccn_tool says nothing, the hccn.conf given as $1.
# On an A3, device N is die N % 2 of card N / 2.
COLLECT = f"""PATH="$PATH:{TOOLS}"
found=0
i=0
while [ $i -lt {MAX_DEVICES} ]; do
    addresses=$(hccn_tool -i $i -ip -g 2>/dev/null; hccn_tool -i $i -ip -inet6 -g 2>/dev/null)
    case "$addresses" in *[Aa]ddr*[0-9]*)
        found=1
        echo "[device $i]"
        echo "$addresses"
        npu-smi info -t spod-info -i $((i / 2)) -c $((i % 2)) 2>/dev/null | grep -E 'SDID|Super Pod ID' ;;
    esac
    i=$((i + 1))
done
if [ $found = 0 ] && [ -r "$1" ]; then echo "[file $1]"; cat "$1"; fi
exit 0
"""
"""What `generate` runs on a server, itself or over ssh; its output kept in a file does as well."""

_DEVICE = re.compile(r"\W*(?:device|dev|npu)[ _:#]*(\d+)\W*\Z|.*hccn_tool\s+-i\s*(\d+)\b", re.IGNORECASE)
_ADDRESS = re.compile(r"(ipv6)?_?address_(\d+)\s*=\s*(\S*)\Z", re.IGNORECASE)
_IPADDR = re.compile(r"ip(?:v6)?[ _]?addr(?:ess)?\s*[:=]\s*(\S+)\Z", re.IGNORECASE)
_SDID = re.compile(r"SDID\s*[:=]\s*(\S+)\Z", re.IGNORECASE)
_POD = re.compile(r"Super Pod ID\s*[:=]\s*(\S+)\Z", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*\Z")


@dataclass
class Collected:
    """What one server said about its devices: device_id -> value."""

    source: str
    """Command or file, for messages."""
    ipv4: dict[int, str] = field(default_factory=dict)
    ipv6: dict[int, str] = field(default_factory=dict)
    super_device_ids: dict[int, str] = field(default_factory=dict)
    super_pod: str | None = None

    def device_ips(self, ipv6: bool = False) -> dict[int, str]:
        """Addresses of one family: IPv4 where there are any, unless IPv6 is asked for."""
        return self.ipv6 if ipv6 or not self.ipv4 else self.ipv4


def parse_collected(text: str, source: str) -> Collected:
    """Read hccn.conf, or the output of hccn_tool (and npu-smi) with a line such as "[device 3]" before each device's.

    Raises:
        InputError: with every line that is no address, contradicts another one, or is of no device.
    """
    found, problems = Collected(source), []
    device: int | None = None

    def keep(values: dict[int, str], number: int | None, value: str, line: int) -> None:
        if number is None:
            problems.append(
                Problem('of which device? put a line "[device 0]" before each device\'s output', source, line)
            )
        elif values.setdefault(number, value) != value:
            problems.append(Problem(f"device {number} has {values[number]} above and {value} here", source, line))

    for line, raw in enumerate(text.splitlines(), start=1):
        row = raw.strip()
        address, bare = _ADDRESS.match(row), _IPADDR.match(row)
        if address or bare:
            number, value = (int(address[2]), address[3]) if address else (device, bare[1] if bare else "")
            value = value.partition("/")[0]
            problem = wrong_address(value)
            if problem:
                problems.append(Problem(f"the address of device {number} {problem}", source, line))
            else:
                keep(found.ipv6 if ":" in value else found.ipv4, number, value, line)
        elif match := _SDID.match(row):
            keep(found.super_device_ids, device, match[1], line)
        elif match := _POD.match(row):
            if found.super_pod not in (None, match[1]):
                problems.append(Problem(f"super pod {match[1]} here, but {found.super_pod} above", source, line))
            found.super_pod = match[1]
        elif match := _DEVICE.match(row):
            device = int(match[1] or match[2])
    if problems:
        raise InputError(problems)
    return found


def read_collected(path: Path) -> Collected:
    """As `parse_collected`, from a file; one without a single address is an InputError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(Problem(f"cannot read the device addresses: {error.strerror}", path)) from None
    found = parse_collected(text, str(path))
    if not (found.ipv4 or found.ipv6):
        message = "holds no device address; expected hccn.conf (address_0=192.168.1.8) or the output of `hccn_tool -i 0 -ip -g`"
        raise InputError(Problem(message, path))
    return found


def collect_here(hccn_conf: Path = HCCN_CONF) -> Collected:
    """Ask hccn_tool of this server, else read its hccn.conf."""
    done = _run(["sh", "-s", "--", str(hccn_conf)])
    found = parse_collected(done.stdout, f"hccn_tool or {hccn_conf} of this server")
    if found.ipv4 or found.ipv6:
        return found
    raise InputError(
        f"no device address on this server: hccn_tool gave none (searched in PATH and {TOOLS.split(':')[0]}) and "
        f"{hccn_conf} {'holds none' if hccn_conf.exists() else 'does not exist'}; in a container, mount both from the "
        "host; elsewhere give --hccn-conf FILE, --collected FOLDER, or --device-ips with --hosts or --server-ip"
    )


def collect_over_ssh(hosts: Sequence[str]) -> list[Collected]:
    """Ask every host, 16 at a time; InputError with every host that could not be asked or has no address."""
    problems: list[Problem] = [
        Problem(f"host {host!r} is no name that ssh can be given") for host in hosts if not _HOST.match(host)
    ]
    if problems:
        raise InputError(problems)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(_ask, hosts))
    found = [answer for answer in answers if isinstance(answer, Collected)]
    if len(found) < len(answers):
        raise InputError([problem for answer in answers if not isinstance(answer, Collected) for problem in answer])
    return found


def _ask(host: str) -> Collected | list[Problem]:
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, f"sh -s -- {HCCN_CONF}"]
    try:
        done = _run(command)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return [Problem(f"ssh {host} failed: {reason}; try `ssh {host} true`, or collect by hand for --collected")]
        found = parse_collected(done.stdout, f"ssh {host}")
    except InputError as error:
        return list(error.problems)
    if not (found.ipv4 or found.ipv6):
        return [Problem(f"ssh {host}: neither hccn_tool nor {HCCN_CONF} gave a device address there")]
    return found


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=COLLECT, capture_output=True, text=True, errors="replace", timeout=120)
    except FileNotFoundError:
        raise InputError(f"cannot run {command[0]}: it is not installed here") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"no answer in 120 s from: {' '.join(command)}") from None


def local_address() -> str:
    """This server's address on its default route, else the first one of its name; InputError where only loopback is found."""
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            # A datagram socket sends nothing on connect: the kernel only picks the route.
            with socket.socket(family, socket.SOCK_DGRAM) as route:
                route.connect((probe, 9))
                address = str(route.getsockname()[0])
        except OSError:
            continue
        if not is_loopback(address):
            return address
    for address in _addresses_of_name():
        if not is_loopback(address):
            return address
    raise InputError(
        f"cannot tell this server's address: there is no default route, and {socket.gethostname()} is unknown or means a "
        "loopback address in /etc/hosts; give --server-ip"
    )


def _addresses_of_name() -> Iterable[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)]
    except OSError:
        return []
