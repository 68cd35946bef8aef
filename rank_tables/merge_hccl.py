"""The command line of MindSpore's old merge_hccl.py: rank tables of single servers to one, in the current folder.

python rank_tables/merge_hccl.py hccl_8p_01234567_10.0.0.1.json hccl_8p_01234567_10.0.0.2.json [--save_path FILE]
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write hccl_{servers}s_{ranks}p.json; the exit code."""
    from msllm.errors import MsllmError
    from rank_tables.generate import write_table
    from rank_tables.merge import merge

    parser = ArgumentParser(description="Merge rank tables; see also: msllm ranktable merge --help")
    parser.add_argument("file_list", nargs="+", type=Path, help="rank tables of single servers")
    parser.add_argument("--save_path", type=Path, default=None, help="the file to write, or a folder for it")
    given = parser.parse_args(arguments)
    try:
        merged = merge(given.file_list)
        name = f"hccl_{len(merged.table.servers)}s_{merged.table.size}p.json"
        output = given.save_path or Path.cwd()
        output = output / name if output.is_dir() else output
        write_table(merged.table, output, overwrite=True)
    except MsllmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for note in merged.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"Completed: hccl file was save in : {output}")
    return 0


if __name__ == "__main__":
    # Started as a file, Python looks for modules beside it, not where the packages are.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
