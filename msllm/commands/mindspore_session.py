"""Around the use of MindSpore in a command: where its compiler writes, and what it says when Ctrl-C meets it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

REPORTS = "MS_OM_PATH"
"""MindSpore's variable for the folder of `rank_<n>/om/analyze_fail.ir`, which it writes where a graph does not compile."""

SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def mindspore_session(reports: Path | None = None) -> Iterator[Callable[[], None]]:
    """Import MindSpore and let it work; restores what it found.

    The compiler's report on a graph that does not compile goes to `reports` (left out: the folder for temporary files) and
    not to the current folder, unless the user has set MS_OM_PATH.

    Ctrl-C raises KeyboardInterrupt as ever, and stderr is closed until that leaves this block: inside the compiler it is an
    error like any other, of which MindSpore prints pages. MindSpore may also lose it: its C++ asks the cells for attributes
    with a call that drops every exception. So the block is given a function that raises KeyboardInterrupt where Ctrl-C has
    come before; a long loop calls it in every round.
    """
    _import_mindspore()
    given = os.environ.get(REPORTS)
    if given is None:
        os.environ[REPORTS] = str((reports or Path(tempfile.gettempdir())).absolute())
    stderr: int | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stderr
        if stderr is None:
            stderr = os.dup(2)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)
        raise KeyboardInterrupt

    def raise_if_lost() -> None:
        if stderr is not None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield raise_if_lost
    except BaseException:
        if stderr is not None:
            raise KeyboardInterrupt from None  # whatever MindSpore has made of it
        raise
    else:
        raise_if_lost()
    finally:
        signal.signal(signal.SIGINT, before)
        if given is None:
            del os.environ[REPORTS]
        if stderr is not None:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            if sys.stderr.isatty():
                sys.stderr.write(SHOW_CURSOR)  # what a live line has written at its end was lost


def _import_mindspore() -> None:
    """Ctrl-C waits for the end of the import, some seconds: broken off, it goes on with half of itself and aborts at the exit."""
    asked = False

    def wait(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    before = signal.signal(signal.SIGINT, wait)
    try:
        import mindspore  # noqa: F401
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt
