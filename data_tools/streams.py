"""Bytes of an input: read in blocks, counted and hashed on the way, decompressed where needed."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from data_tools.sources import Compression

BLOCK = 1 << 20


class DamagedStream(Exception):
    """A compressed file that is cut or damaged; what came before is good."""


class HashedRange(io.RawIOBase):
    """The bytes [start, end) of a file, as a file; knows the sha256 of what was read, each byte once and in order."""

    def __init__(self, path: str, start: int, end: int, on_bytes: Callable[[int], None] = lambda count: None):
        super().__init__()
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by close()
        self._file.seek(start)
        self._left = end - start
        self._digest = hashlib.sha256()
        self._on_bytes = on_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view)  # type: ignore[attr-defined]
        self._digest.update(view[:count])
        self._left -= count
        self._on_bytes(count)
        return count

    def finish(self) -> str:
        """Read what is left, and give the sha256 of the whole range."""
        while self.read(BLOCK):
            pass
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


def blocks(raw: HashedRange, compression: Compression) -> Iterator[bytes]:
    """Yield the decompressed content in blocks of at most a few MiB.

    Raises:
        DamagedStream: after the blocks that could be read.
    """
    if compression == "gzip":
        yield from _gzip_blocks(raw)
    elif compression == "zstd":
        yield from _zstd_blocks(raw)
    else:
        while block := raw.read(BLOCK):
            yield block


def _gzip_blocks(raw: HashedRange) -> Iterator[bytes]:
    stream = gzip.GzipFile(fileobj=raw)
    try:
        while block := stream.read(BLOCK):
            yield block
    except EOFError:
        raise DamagedStream("the gzip stream is cut") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DamagedStream(f"not gzip, or damaged: {error}") from None


def _zstd_blocks(raw: HashedRange) -> Iterator[bytes]:
    # Not zstandard's stream reader: it takes a cut frame for the end of the file.
    import zstandard

    rest = b""
    try:
        while True:
            rest = rest or raw.read(BLOCK) or b""
            if not rest:
                return
            frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
            while not frame.eof:
                if not rest:
                    rest = raw.read(BLOCK // 8) or b""
                    if not rest:
                        raise DamagedStream("the zstd stream is cut")
                if block := frame.decompress(rest):
                    yield block
                rest = frame.unused_data if frame.eof else b""
    except zstandard.ZstdError as error:
        raise DamagedStream(f"not zstd, or damaged: {error}") from None
