"""Environments of the processes of a rehearsal: simulated Ascend ranks, and CPU processes that nothing of them leaks into."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from msllm.rehearsal.stand_ins import ensure_stand_ins, library_path

_LAUNCHED = ("RANK_", "MS_SIMULATION", "MS_ROLE", "MS_WORKER", "MS_SCHED", "MS_NODE", "DEVICE_ID")
"""Beginnings of variables that place a process in a job."""
_CANN = ("ASCEND_", "HCCL_")
_TOOLKITS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann", "/usr/local/Ascend/latest")


def find_cann() -> Path | None:
    """The root of an installed CANN, which ASCEND_HOME_PATH names once its set_env.sh has been read."""
    candidates = [os.environ.get("ASCEND_HOME_PATH"), os.environ.get("ASCEND_TOOLKIT_HOME"), *_TOOLKITS]
    for folder in candidates:
        if folder and (Path(folder) / "lib64" / "libascendcl.so").exists():
            return Path(folder)
    return None


def simulated_environment(rank: int, size: int, level: int) -> dict[str, str]:
    """Environment of a process that is rank `rank` of `size` on simulated Ascend.

    Args:
        level: MS_SIMULATION_LEVEL: 0 compiles, 1 also plans the device memory.

    With CANN it is MindSpore's official dry run, elsewhere the stand-ins take CANN's place.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHED)}
    environment |= {"MS_SIMULATION_LEVEL": str(level), "RANK_SIZE": str(size), "RANK_ID": str(rank), "GLOG_v": "3"}
    if find_cann() is not None:
        return environment
    folder = ensure_stand_ins()
    home = str(folder / "cann")
    environment |= {"ASCEND_HOME_PATH": home, "ASCEND_TOOLKIT_HOME": home, "ASCEND_OPP_PATH": f"{home}/opp"}
    environment["LD_LIBRARY_PATH"] = library_path(folder)
    environment["PYTHONPATH"] = ":".join([str(folder / "python"), *_python_path()])
    return environment


def cpu_environment() -> dict[str, str]:
    """Environment of a process that runs on CPU, whatever this one was started with."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHED + _CANN)}
    environment.pop("LD_LIBRARY_PATH", None)
    environment["PYTHONPATH"] = ":".join(_python_path())
    # msrun takes the first python on the PATH, which is this one only where its environment is activated.
    environment["PATH"] = ":".join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment["GLOG_v"] = "3"
    return environment


def _python_path() -> list[str]:
    """Where this package lies, for children that do not start in its folder, and what the user had set."""
    root = str(Path(__file__).parents[2])
    return [root, *(part for part in os.environ.get("PYTHONPATH", "").split(":") if part and part != root)]
