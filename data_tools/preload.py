"""What the process imports from which workers are forked (multiprocessing's fork server).

MindSpore's import takes two seconds and 200 MB, and no part of it writes MindRecord alone; this way it is paid once and
not by every worker. The numeric libraries get one thread: there is a worker per core, and a process that has threads
must not fork. Imported by no other module.
"""

import os
import signal

# Ctrl-C is for the driver, which ends its workers; here it would only print where the imports were.
signal.signal(signal.SIGINT, signal.SIG_IGN)

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# MindRecord logs what it also raises; the driver says it once, with what to do.
os.environ.setdefault("GLOG_v", "4")

import contextlib  # noqa: E402

import mindspore.mindrecord  # noqa: E402, F401
import sentencepiece  # noqa: E402, F401

import data_tools.worker  # noqa: E402, F401

with contextlib.suppress(ImportError):  # optional
    import gigatoken  # noqa: F401
