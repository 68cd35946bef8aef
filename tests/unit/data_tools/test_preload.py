"""What workers are forked from: everything imported, no thread, deaf to Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import data_tools.preload
import os, signal, sys, threading
assert {"mindspore.mindrecord", "sentencepiece", "data_tools.worker"} <= set(sys.modules)
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
assert threading.active_count() == 1, threading.enumerate()
assert "mindspore.common" not in sys.modules
assert os.environ["OMP_NUM_THREADS"] == "1" and os.environ["OPENBLAS_NUM_THREADS"] == "3"
print("as it should be", flush=True)
"""


def test_the_server_has_imported_all_and_started_nothing() -> None:
    env = {"OPENBLAS_NUM_THREADS": "3", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=env, check=False)
    # The process ends without a word, whatever has happened in it.
    assert done.stdout == "as it should be\n", done.stderr
