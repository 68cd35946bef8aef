"""Bytes of an input: read in blocks, counted and hashed on the way, decompressed where needed."""

from __future__ import annotations

import hashlib
import io
import queue
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, BinaryIO

from data_tools.sources import Compression

BLOCK = 1 << 20
COMPRESSED_BLOCK = 1 << 15
"""Small, as it may become a thousand times as much."""
AHEAD = 4
"""Blocks that are decompressed before they are asked for."""


class DamagedStream(Exception):
    """A compressed file that is cut or damaged; what came before is good."""


class HashedRange(io.RawIOBase):
    """The bytes [start, end) of a file, as a file; knows the sha256 of what was read, each byte once and in order."""

    def __init__(self, path: str, start: int, end: int, on_bytes: Callable[[int], None] = lambda count: None):
        super().__init__()
        self._file: BinaryIO = open(path, "rb")
        self._file.seek(start)
        self._left = end - start
        self._digest = hashlib.sha256()
        self._on_bytes = on_bytes
        self._unreported = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view)  # type: ignore[attr-defined]
        self._digest.update(view[:count])
        self._left -= count
        self._unreported += count
        return count

    def report(self) -> None:
        """Call `on_bytes` for what was read since the last time; apart from reading, which may happen in another thread."""
        count, self._unreported = self._unreported, 0
        self._on_bytes(count)

    def finish(self) -> str:
        """Read what is left, and give the sha256 of the whole range."""
        while self.read(BLOCK):
            self.report()
        self.report()
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


def blocks(raw: HashedRange, compression: Compression) -> Generator[bytes, None, None]:
    """Yield the decompressed content in blocks of at most a few MiB; close it before anything else is done with `raw`.

    Compressed data are read, hashed and decompressed by a thread ahead of the caller; the libraries do that without the
    interpreter's lock.

    Raises:
        DamagedStream: after the blocks that could be read.
    """
    if compression == "gzip":
        frames = _frames(raw, lambda: zlib.decompressobj(wbits=31), zlib.error, "gzip", padding=b"\0")
    elif compression == "zstd":
        # Not zstandard's own stream reader: it takes a cut frame for the end of the file.
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        frames = _frames(raw, decompressor.decompressobj, zstandard.ZstdError, "zstd", padding=b"")
    else:
        while block := raw.read(BLOCK):
            raw.report()
            yield block
        return
    for block in _ahead(frames):
        raw.report()
        yield block


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, made by a thread that is at most AHEAD of them ahead; it has ended when this generator has."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def fill() -> None:
        last: BaseException | None = None
        try:
            for block in blocks:
                if stopped.is_set():
                    return
                waiting.put(block)
        except BaseException as error:
            last = error
        waiting.put(last)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while isinstance(block := waiting.get(), bytes):
            yield block
        if block is not None:
            raise block
    finally:
        stopped.set()
        while thread.is_alive():
            # The thread may wait for room.
            try:
                waiting.get(timeout=0.01)
            except queue.Empty:
                thread.join(0.01)


def _frames(
    raw: HashedRange, begin: Callable[[], Any], failure: type[Exception], name: str, padding: bytes
) -> Iterator[bytes]:
    """Decompress frames that follow one another, as `cat a.gz b.gz` makes them, with padding behind."""
    rest = raw.read(COMPRESSED_BLOCK)
    if not rest:
        raise DamagedStream(f"an empty file is no {name} stream")
    try:
        while rest:
            frame = begin()
            while not frame.eof:
                rest = rest or raw.read(COMPRESSED_BLOCK)
                if not rest:
                    raise DamagedStream(f"the {name} stream is cut")
                if block := frame.decompress(rest):
                    yield block
                rest = frame.unused_data
            rest = (rest or raw.read(COMPRESSED_BLOCK)).lstrip(padding)
    except failure as error:
        raise DamagedStream(f"not {name}, or damaged: {error}") from None
