"""A list of servers from a plain file or YAML, for the commands about several servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    from rank_tables.hosts import HostFile


def read_hosts(path: Path) -> HostFile:
    """The servers of `path`: lines `host ip slots`, or YAML with hosts:; InputError with every fault."""
    from rank_tables.hosts import from_mapping, parse_plain

    if path.suffix not in (".yaml", ".yml"):
        try:
            return parse_plain(path.read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                Problem(f"cannot read this host file: {getattr(error, 'strerror', error)}", path)
            ) from None
    from msllm.config.yaml_text import read_yaml_file

    problems: list[Problem] = []
    tree = read_yaml_file(path, problems)
    if tree is None:
        problems.append(
            Problem("a host file holds hosts: at the top, as rank_tables/examples/hosts_a3.yaml does", path)
        )
    if tree is None or problems:
        raise InputError(problems)
    return from_mapping(tree.values, tree.lines, path)
