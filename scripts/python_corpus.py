"""A corpus that every machine has: the sources of Python's standard library, documentation strings and all.

    python scripts/python_corpus.py --output DIR [--megabytes N]

Writes DIR/train.jsonl and DIR/validation.jsonl, one `{"text": ...}` a module. A module goes to validation where the hash of
its name says so, one in twenty. Needs no package and no network. The files appear whole or not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "__pycache__", "encodings"}


def modules(library: Path) -> Iterator[tuple[str, str]]:
    """(name, source) of the library's modules in an order that does not depend on the file system."""
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library)
        if LEFT_OUT.isdisjoint(name.parts) and not name.name.startswith("_sysconfigdata"):
            text = path.read_text(encoding="utf-8", errors="ignore")
            if len(text) > 500:
                yield str(name), text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--megabytes", type=float, default=5.0, help="text to gather at most")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[str]] = {"train": [], "validation": []}
    left = int(options.megabytes * 1e6)
    # By hash, so that a limit takes modules from everywhere and not the first letters of the alphabet.
    found = sorted(modules(Path(sysconfig.get_path("stdlib"))), key=lambda m: hashlib.sha256(m[0].encode()).digest())
    for name, text in found:
        left -= len(text)
        if left < 0:
            break
        held_out = hashlib.sha256(name.encode()).digest()[-1] % 20 == 0
        parts["validation" if held_out else "train"].append(json.dumps({"text": text}, ensure_ascii=False))
    for part, lines in parts.items():
        target = options.output / f"{part}.jsonl"
        temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}")
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(temporary, target)
        print(f"{target}: {len(lines)} modules, {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
