"""The process that msrun starts beside the workers to bring them together."""

from __future__ import annotations

import os
import signal
import time

import psutil

GRACE_SECONDS = 15.0
"""A scheduler whose workers have ended well sees that itself within 5 seconds."""


def is_scheduler() -> bool:
    """Whether this process is the scheduler; msrun lets it run the same command as the workers."""
    return os.environ.get("MS_ROLE") == "MS_SCHED"


def run_scheduler(device_target: str) -> None:
    """Serve the workers of the job until they end; `device_target` is CPU or Ascend."""
    end_with_workers()
    import mindspore as ms
    from mindspore import communication

    ms.set_device(device_target)
    communication.init()


def end_with_workers(grace: float = GRACE_SECONDS) -> None:
    """Leave a process behind that ends this scheduler once all workers on this host are gone.

    Workers that end before they have joined, of a wrong configuration for one, are nothing to MindSpore's scheduler: it waits
    10 minutes for them, and msrun for it. It cannot look after them itself, as it waits with Python's lock held.
    """
    scheduler, msrun = os.getpid(), os.getppid()
    if os.fork():
        return
    command, seen = psutil.Process(scheduler).cmdline(), time.monotonic()
    while os.getppid() == scheduler:
        if _workers(msrun, scheduler, command):
            seen = time.monotonic()
        if time.monotonic() - seen > grace:
            os.kill(scheduler, signal.SIGKILL)
        time.sleep(1.0)
    os._exit(0)


def _workers(msrun: int, scheduler: int, command: list[str]) -> bool:
    """Whether msrun has a child that is alive and runs the scheduler's command."""
    try:
        children = psutil.Process(msrun).children()
    except psutil.NoSuchProcess:
        return False
    for child in children:
        try:
            if child.pid != scheduler and child.status() != psutil.STATUS_ZOMBIE and child.cmdline() == command:
                return True
        except psutil.NoSuchProcess:
            continue
    return False
