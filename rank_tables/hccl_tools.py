"""The command line of MindSpore's old hccl_tools.py: a rank table of this server, in the current folder.

python rank_tables/hccl_tools.py --device_num "[0,8)" [--visible_devices 0,1,2,3,4,5,6,7] [--server_ip 10.0.0.1]
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write hccl_{n}p_{devices}_{server_ip}.json; the exit code."""
    from msllm.errors import MsllmError

    parser = ArgumentParser(
        description="Write the rank table of this server; see also: msllm ranktable generate --help"
    )
    parser.add_argument("--device_num", default="[0,8)", help='first and last + 1 of the visible devices, as "[0,4)"')
    parser.add_argument("--visible_devices", default=None, help="physical ids behind the numbers; left out: the same")
    parser.add_argument("--server_ip", default="", help="this server's address; left out: that of the default route")
    given = parser.parse_args(arguments)
    try:
        _write(given.device_num, given.visible_devices, given.server_ip)
    except MsllmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _write(device_num: str, visible_devices: str | None, server_ip: str) -> None:
    from msllm.errors import InputError
    from rank_tables.fields import MAX_DEVICES
    from rank_tables.generate import Wanted, generate, write_table
    from rank_tables.hosts import Host, HostFile
    from rank_tables.sources import collect_here, local_address

    span = re.fullmatch(r"\s*\[\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)\s*", device_num)
    if not span or not int(span[1]) < int(span[2]) <= MAX_DEVICES:
        raise InputError(f'--device_num {device_num!r} is no range of 0 to {MAX_DEVICES} such as "[0,8)"')
    positions = range(int(span[1]), int(span[2]))
    visible = list(range(MAX_DEVICES))
    if visible_devices is not None:
        if not re.fullmatch(r"\s*\d{1,2}\s*(,\s*\d{1,2}\s*)*", visible_devices):
            raise InputError(f"--visible_devices {visible_devices!r} is no list such as 0,1,2,3")
        visible = [int(number) for number in visible_devices.split(",")]
    if positions.stop > len(visible):
        raise InputError(f"--device_num {device_num} takes {positions.stop} devices, but {len(visible)} are visible")
    chosen = tuple(visible[position] for position in positions)
    address = server_ip or local_address()
    host = Host(address, address, device_ids=chosen)
    table = generate(HostFile((host,)), [collect_here()], Wanted(version="1.0")).table
    name = f"hccl_{len(chosen)}p_{''.join(map(str, positions))}_{address}.json"
    write_table(table, Path.cwd() / name, overwrite=True)
    print(f"Completed: hccl file was save in : {Path.cwd() / name}")


if __name__ == "__main__":
    # Started as a file, Python looks for modules beside it, not where the packages are.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
