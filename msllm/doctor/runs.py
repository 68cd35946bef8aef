"""Layers 4 and 5: MindSpore runs a graph, and two processes of msrun add a tensor up."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any

from msllm.doctor.devices import masked_devices
from msllm.doctor.host import Ran
from msllm.doctor.visible import LAUNCHED, MASK, read_mask
from msllm.doctor.visit import Visit

PROBES = str(Path(__file__).with_name("probes.py"))
GRAPH_SECONDS, MSRUN_SECONDS = 180.0, 300.0
WORKERS = 2

CAUSES = (
    ("cannot allocate memory in static TLS block",
     "a library was loaded too late for its thread-local memory, as on aarch64",
     "export LD_PRELOAD=$(find / -name 'libgomp*.so*' 2>/dev/null | head -1)"),
    (r"_ARRAY_API not found|multiarray failed to import|numpy\.core",
     "MindSpore's extensions were compiled against another numpy", 'pip install "numpy>=1.26,<2"'),
    (r"invalid ELF header|wrong ELF class|cannot open shared object file: No such file",
     "a library is not found, or is for another machine",
     "source /usr/local/Ascend/ascend-toolkit/set_env.sh; ldd -r on the file"),
    (r"GLIBC(XX)?_[\d.]+' not found", "the system or its compiler's library is older than the wheel",
     "conda install -c conda-forge libstdcxx-ng; or an operating system that MindSpore lists (mindspore.cn/install)"),
    ("SIGILL", "this processor lacks instructions that the wheel was compiled with", "lscpu | grep -i flags: AVX is needed"),
    (r"SIGKILL", "the kernel ended it, most often for lack of memory", "dmesg | grep -i 'out of memory' | tail; free -g"),
    (r"Malloc device memory failed|EL0004|EI0011",
     "the device's memory is taken by another process, or 200 MB for each communication group do not fit",
     "npu-smi info, and end the other process; export HCCL_BUFFSIZE=100"),
    ("EI0008", "CANN differs between the ranks", "msllm doctor compare A.json B.json, with a --bundle of each node"),
    ("EI0006|EI0015|no connect", "ranks do not reach each other: TLS switch, links, addresses or a firewall",
     "hccn_tool -i 0 -link -g; hccn_tool -i 0 -tls -g, on each device"),
    ("EJ0001", "a process of an earlier run still holds HCCP", "npu-smi info, end what is left, and wait 10 s"),
    (r"[Aa]ddress already in use|already bound|bind.*failed", "the port is taken",
     "ss -ltnp, and end the other scheduler"),
    (r"[Uu]nsupported device target|not support.*Ascend|libmindspore_ascend",
     "MindSpore could not load its Ascend plugin: CANN is not sourced, or its version does not fit",
     "source /usr/local/Ascend/ascend-toolkit/set_env.sh; msllm doctor shows the versions"),
    (r"No module named '?(te|tbe)\b", "PYTHONPATH lacks the operators of CANN",
     "source /usr/local/Ascend/ascend-toolkit/set_env.sh"),
    (r"ModuleNotFoundError|ImportError", "a Python package is missing or damaged", "pip check; pip install -e ."),
)  # fmt: skip
"""What outputs hold -> why -> what to do; the first that fits."""


def look_at_graph(visit: Visit) -> bool:
    """Compile and run one graph in a process of its own."""
    device = device_target(visit)
    mask = visit.host.environment.get(MASK)
    if device == "Ascend" and mask is not None and read_mask(visit, mask) is None:
        return True  # said there; it would fail for that alone
    with tempfile.TemporaryDirectory(prefix="msllm-doctor-", ignore_cleanup_errors=True) as folder:
        done = visit.host.run([visit.host.python, PROBES, "graph", device], GRAPH_SECONDS, _quiet(folder), folder)
    result = _last_json(done.out)
    if done.ok and result.get("right"):
        visit.say(f"MindSpore {result.get('mindspore', '')} compiles and runs a graph on {device}")
        return True
    if done.ok:
        visit.error(
            "graph.wrong",
            f"a product of two matrices on {device} came out wrong, or was not printed: {done.out.strip()[-200:]}",
            "no result of this machine can be trusted",
            "npu-smi info -t health -i 0 -c 0; try another device with ASCEND_RT_VISIBLE_DEVICES"
            if device == "Ascend"
            else "pip install --force-reinstall mindspore==2.9.0; memtester",
        )
        return True
    why, mend = _cause(done.why() + "\n" + done.err + done.out)
    visit.error(
        "graph.failed",
        f"MindSpore does not run a graph on {device}: {_said(done)}",
        why or "nothing that trains can run",
        mend or f"{visit.host.python} {PROBES} graph {device}   (shows all that it says)",
    )
    return True


def look_at_msrun(visit: Visit) -> bool:
    """Two workers of msrun, on CPU, or on two devices where there are two."""
    host = visit.host
    device = device_target(visit)
    if device == "Ascend" and len(masked_devices(visit)) < WORKERS:
        device = "CPU"
    msrun = str(Path(host.python).with_name("msrun"))
    if not os.path.isfile(msrun):
        visit.error(
            "msrun.missing",
            f"there is no {msrun}",
            "msrun comes with MindSpore and starts the processes of a job",
            f"{host.python} -m pip install --force-reinstall --no-deps mindspore==2.9.0",
        )
        return True
    with tempfile.TemporaryDirectory(prefix="msllm-doctor-", ignore_cleanup_errors=True) as folder:
        port = str(_free_port())
        command = [
            msrun, "--worker_num", str(WORKERS), "--local_worker_num", str(WORKERS), "--master_port", port,
            "--join", "True", "--cluster_time_out", "120", "--log_dir", folder, PROBES, "allreduce", device,
        ]  # fmt: skip
        # msrun starts its workers with the python of the PATH.
        path = os.pathsep.join([str(Path(host.python).parent), host.environment.get("PATH", "")])
        done = host.run(command, MSRUN_SECONDS, {**_quiet(folder), "PATH": path}, folder)
        logs = [_read(Path(folder) / f"worker_{rank}.log") for rank in range(WORKERS)]
    right = [_last_json(log).get("right") is True for log in logs]
    if all(right):
        visit.say(f"msrun starts {WORKERS} workers on {device}, and their AllReduce is right")
        return True
    bad = right.index(False)
    text = logs[bad] or done.out + done.err
    why, mend = _cause(done.why() + "\n" + text)
    visit.error(
        "msrun.failed",
        f"rank {bad} of {WORKERS} on {device} did not finish an AllReduce: {done.problem or _error_line(text) or done.why()}",
        why or "no job of several processes can run",
        mend
        or f"msrun --worker_num 2 --local_worker_num 2 --join True --log_dir logs {PROBES} allreduce {device}; "
        "then read logs/worker_*.log",
    )
    return True


def device_target(visit: Visit) -> str:
    """What `training.device_target: auto` takes."""
    return "Ascend" if visit.facts.devices else "CPU"


def _quiet(folder: str) -> dict[str, str | None]:
    """Errors only, reports into a folder, and nothing of a job that this shell was once part of."""
    return {"GLOG_v": "3", "MS_OM_PATH": folder, **dict.fromkeys(LAUNCHED)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _last_json(text: str) -> dict[str, Any]:
    """The last line that is a JSON document; MindSpore prints around it."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            return found if isinstance(found, dict) else {}
    return {}


def _error_line(text: str) -> str | None:
    """The line that names the error: the exception's own, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    return (named or lines or [None])[-1]  # type: ignore[list-item]


def _said(done: Ran) -> str:
    if done.problem:
        return done.problem
    line = _error_line(done.err) or _error_line(done.out)
    return done.why() if done.code is None or done.code < 0 or not line else f"exit code {done.code}: {line[:200]}"


def _cause(text: str) -> tuple[str, str]:
    for pattern, why, mend in CAUSES:
        if re.search(pattern, text):
            return why, mend
    return "", ""
