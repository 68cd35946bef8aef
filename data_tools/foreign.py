"""Files that are no text although their names say so, known by their first bytes."""

from __future__ import annotations

import codecs
import os

from data_tools.sources import Source

HEAD = 1024
"""Bytes at a file's start that are looked at."""

_SIGNATURES = (
    (b"\x1f\x8b", "gzip data", ".gz"),
    (b"\x28\xb5\x2f\xfd", "zstd data", ".zst"),
    (b"PAR1", "a Parquet file", ".parquet"),
    (b"PK\x03\x04", "a zip archive", ""),
    (b"\xfd7zXZ\x00", "xz data", ""),
    (b"BZh", "bzip2 data", ""),
    (b"%PDF-", "a PDF", ""),
)
"""How a file begins, what it is then, and the extension with which it can be read."""
_NOT_CONTROL = b"\t\n\v\f\r\x1b" + bytes(range(32, 256))
_CONTROL_SHARE = 0.05


def foreign(head: bytes, source: Source) -> str | None:
    """What a file is whose content begins with `head`, and what to do; None where that may be text.

    A wrong byte here and there is a fault of its line, so without a signature only many of them count.
    """
    controls = len(head.translate(None, _NOT_CONTROL))
    if _is_utf8(head) and not controls:
        return None  # a text may begin with the letters of a signature
    for start, what, extension in _SIGNATURES:
        if not head.startswith(start):
            continue
        if source.compression:
            return f"what is compressed in it is {what} by its first bytes; extract the text first"
        if not extension:
            return f"it is {what} by its first bytes; extract the text first"
        name = os.path.basename(source.path)
        stem = os.path.splitext(name)[0] if extension == ".parquet" else name
        return f"it is {what} by its first bytes; rename it to {stem}{extension}"
    if controls > _CONTROL_SHARE * len(head) and not _is_utf8(head):
        return "its first bytes are binary data"
    return None


def _is_utf8(head: bytes) -> bool:
    """Whether it is UTF-8, the last character perhaps cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
