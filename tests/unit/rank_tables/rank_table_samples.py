"""Tables and outputs of tools that the tests of this folder share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rank_tables.check import Checked, check_text
from rank_tables.table import Device, RankTable, Server, in_rank_order

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "rank_tables" / "examples"


def make_table(*server_ids: str, devices: int = 8) -> RankTable:
    """A table of version 1.0: server n has the addresses 192.168.n.0 and up."""
    servers = [
        Server(
            name,
            tuple(Device(i, f"192.168.{number}.{i + 8}") for i in range(devices)),
            {"host_nic_ip": "reserve"},
        )
        for number, name in enumerate(server_ids, start=1)
    ]
    return RankTable("1.0", in_rank_order(tuple(servers)))


def findings(document: Any) -> Checked:
    """What a check says of plain values."""
    return check_text(json.dumps(document, indent=1))


HCCN_TOOL = """
# hccn_tool -i N -ip [-inet6] -g of a server with 8 devices
[ "$2" -lt 8 ] || { echo "Invalid device" >&2; exit 1; }
[ "$4" = -inet6 ] && exit 1
echo "ipaddr:192.168.1.$(($2 + 8))"
echo "netmask:255.255.255.0"
"""
A3_HCCN_TOOL = """
[ "$4" = -inet6 ] && exit 1
echo "ipaddr:192.168.1.$(($2 + 8))"
echo "netmask:255.255.255.0"
"""
A3_NPU_SMI = """
# npu-smi info -t spod-info -i CARD -c CHIP
echo "        SDID                           : $((37748736 + $5 * 4096 + $7))"
echo "        Super Pod Size                 : 384"
echo "        Super Pod ID                   : 3"
echo "        Server Index                   : 0"
"""
