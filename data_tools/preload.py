"""What the process imports from which workers are forked (multiprocessing's fork server).

Paid once and not by every worker. The numeric libraries get one thread: there is a worker per core, and a process that has
threads must not fork. Imported by no other module.
"""

import atexit
import contextlib
import importlib.util
import os
import signal
import sys
import types

# Ctrl-C is for the driver, which ends its workers; here it would only print where the imports were.
signal.signal(signal.SIGINT, signal.SIG_IGN)

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# MindRecord logs what it also raises; the driver says it once, with what to do.
os.environ.setdefault("GLOG_v", "4")


def _import_mindrecord() -> None:
    """Import MindRecord's writer without the rest of MindSpore, which it does not use: 2 s, and 150 MB in every worker.

    An empty package stands for `mindspore` while its part is imported; where a version's parts do not come alone, all of it
    is imported.
    """
    spec = importlib.util.find_spec("mindspore")
    assert spec is not None and spec.submodule_search_locations is not None
    package = types.ModuleType("mindspore")
    package.__spec__, package.__path__ = spec, list(spec.submodule_search_locations)
    sys.modules["mindspore"] = package
    try:
        import mindspore.mindrecord
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "mindspore"]:
            del sys.modules[name]
        import mindspore.mindrecord  # noqa: F401
    # At its end MindSpore's core asks for modules that are not there, and says so. Nothing here is worth an orderly end.
    atexit.register(os._exit, 0)


_import_mindrecord()

import numpy  # noqa: E402, F401
import sentencepiece  # noqa: E402, F401

import data_tools.worker  # noqa: E402, F401

with contextlib.suppress(ImportError):  # optional
    import awkward  # noqa: F401
    import gigatoken  # noqa: F401
