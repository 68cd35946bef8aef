"""`python -m data_tools.measure COMMAND...`: what a command and all its descendants took, as a line of JSON on stdout.

A process of its own for each command, as the system adds up only what all children of a process took together.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36


def measure(command: list[str]) -> int:
    """Run a command, wait for its descendants, print the measurement; returns the command's exit code."""
    # Descendants whose parents have ended become ours, or what they took would be counted nowhere.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    code = process.wait()
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
    seconds = time.monotonic() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": usage.ru_maxrss * 1024}))
    return code


if __name__ == "__main__":
    sys.exit(measure(sys.argv[1:]))
