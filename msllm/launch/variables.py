"""Environment variables of HCCL, CANN and MindSpore that decide whether a job starts: their ranges, on which chip.

Sources: MindSpore's env_var_list, CANN's environment variable reference (hiascend.com).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msllm.errors import Problem

PREFIXES = ("HCCL_", "ASCEND_", "MS_", "GLOG_", "MINDSPORE_", "RANK_TABLE_FILE", "NPU_ASD_")
"""What belongs to a job's recipe."""
OF_THE_SHELL = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "TOOLCHAIN_HOME")
"""What set_env.sh changes; a shell that ssh opens has not read it."""
OF_A_RANK = ("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "RANK_ID", "RANK_SIZE")
"""What a job's processes are told and a launcher must not have been."""

CONNECT_DEFAULT, EXEC_DEFAULT = 600, 1836
"""Seconds: what MindSpore sets HCCL_CONNECT_TIMEOUT to, and CANN's default of HCCL_EXEC_TIMEOUT."""
EXEC_GRAIN_910A = 68
AIV_EXEC_MAX = 1091
MANY_DEVICES = 128
"""Beyond so many, ranks need longer to find each other: 900 to 1800 seconds are advised."""
MANY_TIMEOUT = 1800


@dataclass(frozen=True)
class Range:
    """Whole numbers that a variable may have."""

    least: int
    most: int
    unit: str

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most

    def __str__(self) -> str:
        return f"{self.least} to {self.most}{self.unit}"


RANGES: Mapping[str, Range] = {
    "HCCL_CONNECT_TIMEOUT": Range(120, 7200, " seconds"),
    "HCCL_BUFFSIZE": Range(1, 1 << 20, " MB for each communicator"),
    "HCCL_IF_BASE_PORT": Range(1024, 65520, ""),
    "HCCL_WHITELIST_DISABLE": Range(0, 1, ""),
    "GLOG_v": Range(0, 4, " (debug, info, warning, error, critical)"),
    "ASCEND_GLOBAL_LOG_LEVEL": Range(0, 4, " (debug, info, warning, error, none)"),
    "ASCEND_SLOG_PRINT_TO_STDOUT": Range(0, 1, ""),
    "ASCEND_GLOBAL_EVENT_ENABLE": Range(0, 1, ""),
    "ASCEND_HOST_LOG_FILE_NUM": Range(1, 1000, " files"),
    "MS_TOPO_TIMEOUT": Range(1, 1 << 31, " seconds"),
    "MS_NODE_TIMEOUT": Range(1, 1 << 31, " seconds"),
    "NPU_ASD_ENABLE": Range(0, 3, ""),
}
EXEC_910A, EXEC_LATER = Range(1, 17340, " seconds"), Range(0, 2147483647, " seconds (0: without end)")
PORT_RANGES = ("HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_NPU_SOCKET_PORT_RANGE")
OTHERS = (
    *PORT_RANGES, "HCCL_EXEC_TIMEOUT", "HCCL_SOCKET_IFNAME", "HCCL_DETERMINISTIC", "HCCL_OP_EXPANSION_MODE",
    "HCCL_ENTRY_LOG_ENABLE", "HCCL_LOGIC_SUPERPOD_ID", "HCCL_INTRA_ROCE_ENABLE", "HCCL_INTRA_PCIE_ENABLE",
    "HCCL_RDMA_TC", "HCCL_RDMA_SL", "HCCL_RDMA_TIMEOUT", "HCCL_RDMA_RETRY_CNT", "HCCL_ALGO", "HCCL_SOCKET_FAMILY",
    "HCCL_IF_IP", "HCCL_WHITELIST_FILE", "HCCL_OP_RETRY_ENABLE", "HCCL_OP_RETRY_PARAMS", "HCCL_DIAGNOSE_ENABLE",
    "HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT", "HCCL_RDMA_QPS_PER_CONNECTION", "HCCL_MULTI_QP_THRESHOLD",
    "HCCL_RDMA_QP_PORT_CONFIG_PATH", "HCCL_DEBUG_CONFIG", "HCCL_DFS_CONFIG", "HCCL_CONCURRENT_ENABLE",
)  # fmt: skip
"""Known names without a range here, so that a misspelt one can be told from them."""


def environment_problems(environment: Mapping[str, str], chip: str | None, exec_needed: Needed) -> list[Problem]:
    """Every variable whose value its chip does not take, or that is too short for the run.

    Args:
        environment: of the processes.
        chip: name in hardware.chips, None where it is not known.
        exec_needed: the longest that a rank of this run lets the others wait in a collective.
    """
    found: list[Problem] = []
    for name, allowed in RANGES.items():
        value = environment.get(name)
        if value is not None and (not _whole(value) or int(value) not in allowed):
            found.append(Problem(f"{name} ({value}) must be a whole number from {allowed}; set it so, or unset it"))
    for name in PORT_RANGES:
        if name in environment:
            found += map(Problem, _port_range(name, environment[name]))
    found += map(Problem, _exec_timeout(environment, chip, exec_needed))
    return found


@dataclass(frozen=True)
class Needed:
    """Seconds that HCCL_EXEC_TIMEOUT has to last, and what for."""

    seconds: float
    reason: str


def _exec_timeout(environment: Mapping[str, str], chip: str | None, needed: Needed) -> Iterator[str]:
    name = "HCCL_EXEC_TIMEOUT"
    given = environment.get(name)
    if given is None:
        return  # the recipe sets it
    allowed = EXEC_910A if chip == "910A" else EXEC_LATER
    on_chip = f" on {chip}" if chip else ""
    if not _whole(given) or int(given) not in allowed:
        why = ", where 0 does not mean without end" if given == "0" else ""
        yield f"{name} ({given}) must be a whole number from {allowed}{on_chip}{why}; set it so, or unset it"
        return
    value = int(given)
    if environment.get("HCCL_OP_EXPANSION_MODE") == "AIV" and not 0 < value <= AIV_EXEC_MAX:
        yield (
            f"{name} ({given}) must be from 1 to {AIV_EXEC_MAX} seconds with HCCL_OP_EXPANSION_MODE (AIV); set it so, or "
            "unset HCCL_OP_EXPANSION_MODE"
        )
    effective = value // EXEC_GRAIN_910A * EXEC_GRAIN_910A if chip == "910A" else value
    if value and effective < needed.seconds:
        rounded = f" (910A rounds it down to {effective})" if effective != value else ""
        yield (
            f"{name} ({given}){rounded} must be at least {recommended_exec(needed, chip)} seconds for this run: {needed.reason}"
        )


def recommended_exec(needed: Needed, chip: str | None) -> int:
    """Seconds to set HCCL_EXEC_TIMEOUT to: never below the default, within the chip's range, a multiple of its grain."""
    seconds = max(EXEC_DEFAULT, round(needed.seconds + 0.5))
    if chip == "910A":
        return min(-(-seconds // EXEC_GRAIN_910A) * EXEC_GRAIN_910A, EXEC_910A.most)
    return min(seconds, EXEC_LATER.most)


def _port_range(name: str, value: str) -> Iterator[str]:
    if value == "auto":
        return
    for part in value.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2] or match[1]) <= 65535:
            yield f"{name} ({value}) must be auto, or ports such as 60000-60050,60100; {part!r} is none"


def advice(environment: Mapping[str, str], workers: int) -> Iterator[str]:
    """What is legal and yet may not be meant."""
    known = {*RANGES, *OTHERS, "HCCL_EXEC_TIMEOUT"}
    for name in sorted(environment):
        if name.startswith("HCCL_") and name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.8)
            if near:
                yield f"{name} is no variable that HCCL is known to read; did you mean {near[0]}?"
    if workers > MANY_DEVICES:
        for name in ("MS_TOPO_TIMEOUT", "MS_NODE_TIMEOUT", "HCCL_CONNECT_TIMEOUT"):
            value = environment.get(name)
            if value is not None and _whole(value) and int(value) < 900:
                yield f"{name} ({value}) is short for {workers} ranks; 900 to {MANY_TIMEOUT} seconds are advised"


def _whole(value: str) -> bool:
    return re.fullmatch(r"[0-9]{1,10}", value) is not None


@dataclass(frozen=True)
class Setting:
    """One variable of a job's recipe, with where its value comes from."""

    name: str
    value: str
    why: str


def recipe(
    environment: Mapping[str, str], workers: int, ascend: bool, chip: str | None, exec_needed: Needed
) -> list[Setting]:
    """The variables that the job runs with: those of the user as they are, and what is missing."""
    mine = "of your environment"
    found = [Setting(n, v, mine) for n, v in sorted(environment.items()) if n.startswith(PREFIXES)]
    many = workers > MANY_DEVICES

    def default(name: str, value: int, why: str) -> None:
        if name not in environment:
            found.append(Setting(name, str(value), why))

    if workers > 1:
        why = f"advised for more than {MANY_DEVICES} ranks" if many else "as msrun sets it"
        default("MS_TOPO_TIMEOUT", MANY_TIMEOUT if many else 600, why)
    if many:
        default("MS_NODE_TIMEOUT", MANY_TIMEOUT, f"advised for more than {MANY_DEVICES} ranks")
    if ascend and workers > 1:
        why = f"advised for more than {MANY_DEVICES} ranks" if many else "as MindSpore sets it"
        default("HCCL_CONNECT_TIMEOUT", MANY_TIMEOUT if many else CONNECT_DEFAULT, why)
        seconds = recommended_exec(exec_needed, chip)
        default("HCCL_EXEC_TIMEOUT", seconds, exec_needed.reason if seconds > EXEC_DEFAULT else "CANN's own default")
    return found
