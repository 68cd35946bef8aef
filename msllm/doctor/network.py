"""Layer 6: what HCCL works with: addresses, links and TLS switches of the devices, and the rank table."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from pathlib import Path

from msllm.doctor.devices import span
from msllm.doctor.host import MAX_BYTES
from msllm.doctor.visit import Visit
from msllm.errors import InputError
from rank_tables.against import compare_server, server_at
from rank_tables.check import check_file
from rank_tables.fields import is_loopback
from rank_tables.sources import Collected, parse_collected
from rank_tables.table import RankTable, Server

HCCN_CONF = "/etc/hccn.conf"
BUSY_TRIES = 3
_TLS = re.compile(r"tls switch\s*\[([01])\]", re.IGNORECASE)
_LINK = re.compile(r"link status:\s*(\S+)", re.IGNORECASE)
_HEALTH = re.compile(r"net health status:\s*(.+)", re.IGNORECASE)
MOUNT_HCCN = (
    "docker run -v /etc/hccn.conf:/etc/hccn.conf:ro -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro ..."
)


def look_at_network(visit: Visit) -> bool:
    """Ask hccn_tool of each device, and hold the rank table against the answers. False without devices."""
    devices = visit.facts.devices
    table = _read_table(visit)
    if not devices:
        return table is not None or bool(visit.findings)
    said = _addresses(visit)
    if visit.host.which("hccn_tool"):
        for device in devices:
            _ask(visit, device)
        _tls(visit)
        _links(visit, several=table is not None and len(table.servers) > 1)
    _own_name(visit, table)
    if table is not None and said is not None:
        _fresh(visit, table, said)
    return True


def _read_table(visit: Visit) -> RankTable | None:
    """The rank table of --rank-table or RANK_TABLE_FILE, with every fault that `msllm ranktable check` finds (P2, P4)."""
    given = visit.request.rank_table or visit.host.environment.get("RANK_TABLE_FILE")
    if not given:
        return None
    path = Path(given) if visit.request.rank_table else visit.host.path(given)
    again = f"msllm ranktable check {given}; msllm ranktable generate -o {given} --overwrite"
    try:
        checked = check_file(path)
        raw = path.read_bytes()
    except (InputError, OSError) as error:
        message = error.problems[0].message if isinstance(error, InputError) else error.strerror
        visit.error(
            "network.rank_table",
            f"the rank table {given}: {message}",
            "HCCL reads it before anything else: EI0004",
            again,
        )
        return None
    visit.facts.rank_table_sha256 = hashlib.sha256(raw).hexdigest()
    visit.host.texts[given] = raw[:MAX_BYTES].decode("utf-8", errors="replace")
    for fault in checked.faults:
        visit.error(
            "network.rank_table",
            str(fault.problem(given)),
            "HCCL refuses such a table with EI0004, EI0014 or `device_ip invalid`, or waits for ranks that do not exist",
            again,
        )
    if checked.faults or checked.table is None:
        return None
    servers = len(checked.table.servers)
    visit.say(f"rank table {given}: {checked.table.size} ranks on {servers} server{'s' if servers > 1 else ''}")
    return checked.table


def _addresses(visit: Visit) -> Collected | None:
    """Device addresses of hccn_tool, else of hccn.conf (P1)."""
    host, facts = visit.host, visit.facts
    lines = []
    if host.which("hccn_tool"):
        for device in facts.devices:
            answers = [_hccn(visit, device, "-ip", "-g"), _hccn(visit, device, "-ip", "-inet6", "-g")]
            lines += [f"[device {device}]", *(line for answer in answers for line in answer.splitlines())]
            if facts.chip == "910C":
                place = ["-i", str(device // 2), "-c", str(device % 2)]
                lines += host.run(["npu-smi", "info", "-t", "spod-info", *place]).out.splitlines()
    said = _parsed(visit, "\n".join(lines), "hccn_tool")
    conf = host.read(HCCN_CONF)
    if said is not None and not said.device_ips() and conf is not None:
        said = _parsed(visit, conf, HCCN_CONF)
    if said is None:
        return None
    facts.device_ips = dict(said.device_ips())
    missing = sorted(set(facts.devices) - set(facts.device_ips))
    if facts.device_ips and not missing:
        visit.say(f"devices {span(facts.devices)} have addresses, by {said.source}")
        return said
    said_last = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("[")), "")
    _no_addresses(visit, missing, conf is None, said_last)
    return said


def _parsed(visit: Visit, text: str, source: str) -> Collected | None:
    try:
        return parse_collected(text, source)
    except InputError as error:
        for problem in error.problems:
            visit.error(
                "network.addresses",
                str(problem),
                "HCCL takes the device's address from here",
                "hccn_tool -i N -ip -s address A netmask M, for the device",
            )
        return None


def _no_addresses(visit: Visit, missing: list[int], no_conf: bool, tool_said: str) -> None:
    tool = visit.host.which("hccn_tool")
    absent = [name for name, gone in (("hccn_tool", not tool), (HCCN_CONF, no_conf)) if gone]
    seen = f"device {span(missing)} has no address"
    if absent:
        seen += f": there is no {' and no '.join(absent)}"
    if tool and tool_said:
        seen += f"; hccn_tool says: {tool_said[:120]}"
    report = visit.error if visit.facts.device_ips or _table_given(visit) else visit.warning
    report(
        "network.addresses",
        seen,
        "HCCL between servers, and rank tables, need an address on each device; the old hccl_tools.py stops with KeyError",
        MOUNT_HCCN
        if visit.facts.container and absent
        else f"hccn_tool -i {missing[0]} -ip -s address A netmask M, for each; or list them: msllm ranktable generate "
        "--device-ips A,B,...",
    )


def _table_given(visit: Visit) -> bool:
    return bool(visit.request.rank_table or visit.host.environment.get("RANK_TABLE_FILE"))


def _hccn(visit: Visit, device: int, *arguments: str) -> str:
    """Output of hccn_tool; it answers one caller at a time."""
    text = ""
    if any(finding.code == "network.hccn_tool" for finding in visit.findings):
        return text
    for _ in range(BUSY_TRIES):
        done = visit.host.run(["hccn_tool", "-i", str(device), *arguments])
        text = done.out + done.err
        if done.code is None:
            visit.error(
                "network.hccn_tool",
                f"hccn_tool -i {device} {' '.join(arguments)}: {done.why()}",
                "what hccn_tool cannot ask, HCCL cannot use: the driver or the device's network hangs",
                "dmesg | grep -i -E 'davinci|hccp|hung' | tail; reboot the server where it does not recover",
            )
            return ""
        if "is busy" not in text:
            break
        time.sleep(0.5)
    return text


def _ask(visit: Visit, device: int) -> None:
    facts = visit.facts
    if match := _TLS.search(_hccn(visit, device, "-tls", "-g")):
        facts.tls[device] = int(match[1])
    if match := _LINK.search(_hccn(visit, device, "-link", "-g")):
        facts.links[device] = match[1].upper()
    if match := _HEALTH.search(_hccn(visit, device, "-net_health", "-g")):
        facts.net_health[device] = match[1].strip()


def _tls(visit: Visit) -> None:
    """P7: ranks whose switches differ do not connect, and say so only after the time-out."""
    tls = visit.facts.tls
    if not tls:
        return
    if len(set(tls.values())) == 1:
        visit.say(f"TLS switch {next(iter(tls.values()))} on all devices")
        return
    usual = Counter(tls.values()).most_common(1)[0][0]
    odd = [device for device, value in tls.items() if value != usual]
    visit.error(
        "network.tls",
        f"the TLS switch is {1 - usual} on device {span(odd)} and {usual} on the others",
        "devices with and without TLS do not connect: HCCL ends after 120 s with EI0006 and `no connect`",
        "; ".join(f"hccn_tool -i {device} -tls -s enable {usual}" for device in odd),
    )


def _links(visit: Visit, several: bool) -> None:
    """Links and net health. A server that stands alone needs neither, so all links down are no error by themselves."""
    facts = visit.facts
    down = [device for device, link in facts.links.items() if link != "UP"]
    if facts.links and not down:
        visit.say("all links are up")
    alone = len(down) == len(facts.links) and not several
    if down:
        report = visit.warning if alone else visit.error
        report(
            "network.link",
            f"the link of device {span(down)} is {facts.links[down[0]]}",
            "between servers these devices do not reach the others: HCCL ends with EI0006, `no connect`"
            + ("; a job on this server alone does not need them" if alone else ""),
            f"hccn_tool -i {down[0]} -link_stat -g; hccn_tool -i {down[0]} -optical -g; check cable, module and switch port",
        )
    sick = {d: h for d, h in facts.net_health.items() if h.lower() not in ("success", "init") and d not in down}
    if sick:
        names = ", ".join(f"{health} of device {device}" for device, health in sick.items())
        report = visit.error if several else visit.warning
        report(
            "network.health",
            f"net health is {names}",
            "the device's network check does not reach the address that it was given: gateway, VLAN or switch",
            f"hccn_tool -i {next(iter(sick))} -netdetect -g; hccn_tool -i {next(iter(sick))} -gateway -g; ping it: "
            f"hccn_tool -i {next(iter(sick))} -ping -g address A",
        )


def _own_name(visit: Visit, table: RankTable | None) -> None:
    """P1, P3: server_id 127.0.1.1 comes from /etc/hosts."""
    name = visit.host.name
    for line in (visit.host.read("/etc/hosts") or "").splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and name in words[1:] and is_loopback(words[0]) and name != "localhost":
            if table is None or len(table.servers) > 1:
                visit.warning(
                    "network.hosts",
                    f"/etc/hosts says that {name} is {words[0]}",
                    "tools that ask for this server's address by its name get one that means every machine; EI0004 follows",
                    f"put this server's own address into that line of /etc/hosts, or give it: msllm ranktable generate "
                    f"--server-ip {(_own_addresses(visit) or ['ADDRESS'])[0]}",
                )
            return


def _own_addresses(visit: Visit) -> list[str]:
    return [word for word in visit.host.run(["hostname", "-I"]).out.split() if not is_loopback(word)]


def _fresh(visit: Visit, table: RankTable, said: Collected) -> None:
    """Whether the table still says what the devices say (P2), and which of its devices are this server's."""
    server = _this_server(visit, table, said)
    if server is None:
        visit.warning(
            "network.rank_table",
            f"none of the {len(table.servers)} servers of the rank table has an address of this one",
            "its ranks would wait for a server that is not there, or this server is not part of the job",
            "hostname -I; msllm ranktable check FILE --against hccn --server-ip ID",
        )
        return
    visit.facts.rank_table_devices = [
        device.device_id for device in sorted(server.devices, key=lambda device: device.rank_id)
    ]
    stale = compare_server(table, server, said)
    for finding in stale:
        visit.error(
            "network.stale",
            f"the rank table is stale: {finding.problem(None)}",
            "HCCP ends with EJ0004 or `the IP address in the ranktable is inconsistent with the network adapter`",
            "msllm ranktable generate --output rank_table.json, on each server, and msllm ranktable merge",
        )
    if not stale:
        visit.say(f"the rank table agrees with {said.source} on server {server.server_id}")


def _this_server(visit: Visit, table: RankTable, said: Collected) -> Server | None:
    """By the addresses of its devices, by its own, or because there is one only."""
    known = {*said.ipv4.values(), *said.ipv6.values()}

    def hits(server: Server) -> int:
        return sum(device.device_ip in known for device in server.devices)

    best = max(table.servers, key=hits)
    if hits(best):
        return best
    if found := server_at(table.servers, [*_own_addresses(visit), visit.host.name]):
        return found
    return table.servers[0] if len(table.servers) == 1 else None
