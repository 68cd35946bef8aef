"""One file with all that was seen of a node, without addresses and names: for a report, and to compare nodes."""

from __future__ import annotations

import json
import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msllm import __version__
from msllm.doctor.anonymous import Anonymizer
from msllm.doctor.examine import Report
from msllm.doctor.host import Host
from msllm.doctor.visit import Request
from msllm.errors import InputError, Problem

FORMAT = 1
VARIABLES = (
    "ASCEND_", "HCCL_", "HCCN_", "CANN_", "NPU_", "MS_", "MINDSPORE_", "MSLLM_", "RANK_", "DEVICE_ID", "GLOG_", "OMP_",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PATH",
)  # fmt: skip
"""Beginnings of the variables that are kept; others may hold secrets."""
SECRET = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "_KEY")
"""Parts of names that are left out all the same."""
KEPT = frozenset({"status", "severity", "code", "architecture"})
"""Values of our own words, which no name of a machine may change."""


def make_bundle(host: Host, request: Request, report: Report, key: str | None = None) -> dict[str, Any]:
    """The document.

    Args:
        host: with the commands and files of the examination.
        request: what was asked for.
        report: what was found.
        key: a word that nodes share, so that their masks agree; None: a random one.
    """
    facts = report.facts
    hide = Anonymizer(
        key.encode() if key else secrets.token_bytes(32),
        hosts=_hosts(host, request),
        users=_users(host),
        versions=[text for text in (facts.driver, facts.npu_smi, facts.firmware, facts.cann, *facts.packages.values()) if text],
    )  # fmt: skip
    document = hide.tree(report.to_dict())
    _restore(document, report.to_dict())
    learnt = document["facts"]
    learnt["clock_offsets_of_nodes"] = {hide.text(node): s for node, s in facts.clock_offsets_of_nodes.items()}
    if facts.rank_table_sha256:
        learnt["rank_table_sha256"] = hide.mask("table", facts.rank_table_sha256)
    return {
        "msllm_doctor_bundle": FORMAT,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "msllm": __version__,
        "masks": hide.key_id,
        **document,
        "environment": {name: hide.text(value) for name, value in sorted(host.environment.items()) if _is_kept(name)},
        "commands": hide.tree([ran.to_dict() for ran in host.ran]),
        "files": {hide.text(name): hide.text(text) for name, text in sorted(host.texts.items())},
    }


def _restore(masked: Any, plain: Any) -> None:
    """Put back the values of KEPT, at the same places."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            if name in KEPT:
                masked[name] = value
            else:
                _restore(masked[name], value)
    elif isinstance(plain, list):
        for left, right in zip(masked, plain):
            _restore(left, right)


def _is_kept(name: str) -> bool:
    return name.startswith(VARIABLES) and not any(part in name.upper() for part in SECRET)


def _hosts(host: Host, request: Request) -> set[str]:
    """This machine's names, the nodes', and those of /etc/hosts and of the rank table."""
    names = {host.name, host.name.partition(".")[0], host.environment.get("HOSTNAME", "")}
    names |= {part for node in request.nodes for part in node.rpartition("@")[2:]}
    names |= {
        value for name, value in host.environment.items() if name.endswith(("_HOST", "_HOSTNAME")) and _is_kept(name)
    }
    for line in host.texts.get("/etc/hosts", "").splitlines():
        names |= {word for word in line.partition("#")[0].split()[1:] if not word.startswith(("ip6-", "localhost"))}
    for text in host.texts.values():
        if '"server_list"' in text:
            names |= _server_ids(text)
    return {name for name in names if any(character.isalpha() for character in name)}


def _server_ids(text: str) -> set[str]:
    try:
        found = json.loads(text)
        servers = found["server_list"]
        return {str(server["server_id"]) for server in servers if isinstance(server, dict) and "server_id" in server}
    except (ValueError, KeyError, TypeError):
        return set()


def _users(host: Host) -> set[str]:
    """Who runs this, and everybody that the machine knows as a person."""
    names = {host.user, *(host.environment.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER"))}
    home = Path(host.environment.get("HOME", "/"))
    names |= {home.name} if home.parent.name == "home" else set()
    try:
        accounts = host.path("/etc/passwd").read_text(encoding="utf-8", errors="replace")
    except OSError:
        accounts = ""
    for line in accounts.splitlines():
        words = line.split(":")
        if len(words) > 5 and words[2].isdigit() and 1000 <= int(words[2]) < 65534:
            names.add(words[0])
    return names


def read_bundle(path: Path) -> dict[str, Any]:
    """A bundle from its file; InputError where it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(Problem(f"cannot read this bundle: {error.strerror}", path)) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "msllm_doctor_bundle" not in found:
        raise InputError(Problem("is no bundle; expected a file that `msllm doctor --bundle FILE` wrote", path))
    if found["msllm_doctor_bundle"] != FORMAT:
        version = found["msllm_doctor_bundle"]
        raise InputError(Problem(f"is a bundle of format {version!r}; this msllm reads format {FORMAT}", path))
    if not isinstance(found.get("facts"), dict) or not isinstance(found.get("environment"), dict):
        raise InputError(Problem("is a damaged bundle: it has no facts or no environment; make it again", path))
    return found
