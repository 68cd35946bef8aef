"""The machine as the layers see it: files under a root, an environment, and outside commands with a time limit."""

from __future__ import annotations

import getpass
import os
import platform
import resource
import secrets
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MAX_BYTES = 1 << 20
"""What is kept of a file, or of an output."""
TOOL_FOLDERS = ("usr/local/Ascend/driver/tools", "usr/local/sbin", "usr/local/bin")
"""Where the driver's tools are when PATH does not say so."""
PROBE_MB = 64
TAG = "MSLLM_DOCTOR_RUN"
"""Variable by which the processes of one command are found again: msrun's workers leave its process group."""


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    command: tuple[str, ...]
    code: int | None
    """Exit code; the negative signal that ended it; None where it did not start or did not end in time."""
    out: str = ""
    err: str = ""
    problem: str | None = None
    """Why there is no exit code: not found, no answer in 20 s, permission denied."""

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.code == 0

    def why(self) -> str:
        """How it failed, in a few words: its last line where there is one."""
        if self.problem:
            return self.problem
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        said = f": {lines[-1][:200]}" if lines else ""
        if self.code is not None and self.code < 0:
            return f"ended by {signal_name(-self.code)}{said}"
        return f"exit code {self.code}{said}"

    def to_dict(self) -> dict[str, object]:
        """For a bundle."""
        return {
            "command": list(self.command),
            "exit_code": self.code,
            "problem": self.problem,
            "stdout": self.out,
            "stderr": self.err,
        }


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass
class Host:
    """A machine. The defaults are this one; tests give another root, environment and PATH."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    name: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=platform.machine)
    """x86_64 or aarch64."""
    user: str = ""
    uid: int = field(default_factory=os.getuid)
    groups: frozenset[int] = field(default_factory=lambda: frozenset({os.getgid(), *os.getgroups()}))
    python: str = sys.executable
    python_version: tuple[int, int, int] = sys.version_info[:3]
    site: Sequence[str] = field(default_factory=lambda: list(sys.path))
    """Folders in which Python packages are looked for."""
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    open_files: int = field(default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """ulimit -n; -1 without a limit."""
    room_gb: Callable[[Path], tuple[float, float]] = field(default_factory=lambda: _room_gb)
    """Size and free space of the disk of a path, in units of 2^30 bytes; OSError where there is none."""
    write_speed: Callable[[Path], float] = field(default_factory=lambda: _write_speed)
    """MB a second (10^6 bytes) that a folder takes; OSError where nothing can be written."""
    patience: float = 1.0
    """Factor on all time limits of commands."""
    ran: list[Ran] = field(default_factory=list)
    """Every command, for a bundle."""
    texts: dict[str, str] = field(default_factory=dict)
    """Every file that was read, or why it could not be."""

    def __post_init__(self) -> None:
        if not self.user:
            self.user = self.environment.get("USER") or _user_name(self.uid)

    def path(self, name: str) -> Path:
        """A path of the machine, as `/dev/davinci0`, below its root."""
        return self.root / name.lstrip("/")

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder; False also where it may not be looked at."""
        try:
            return self.path(name).exists()
        except OSError:
            return False

    def read(self, name: str) -> str | None:
        """Text of a file, its first MB; None where it cannot be read, and `texts` then says why."""
        try:
            if not stat.S_ISREG(self.path(name).stat().st_mode):  # a pipe would be waited for
                raise OSError(0, "Is a directory" if self.path(name).is_dir() else "Is no regular file")
            with open(self.path(name), "rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", errors="replace")
        except OSError as error:
            self.texts[name] = f"({error.strerror})"
            return None
        self.texts[name] = text
        return text

    def why_unreadable(self, name: str) -> str:
        """Why `read` gave None: `No such file or directory`."""
        return self.texts.get(name, "").strip("()")

    def names(self, folder: str, pattern: str) -> list[str]:
        """Names in a folder that fit a pattern, sorted; none where there is no such folder."""
        try:
            return sorted(path.name for path in self.path(folder).glob(pattern))
        except OSError:
            return []

    def may_use(self, name: str) -> bool:
        """Whether this user may read and write a file, by its mode alone: a device is not opened for a look."""
        if self.uid == 0:
            return True
        try:
            found = self.path(name).stat()
        except OSError:
            return False
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in self.groups else 0
        return (stat.S_IMODE(found.st_mode) >> shift) & 6 == 6

    def which(self, name: str) -> str | None:
        """Path of a command: of the PATH, else where the driver has its tools. A path stays what it is."""
        if "/" in name:
            return name
        folders = [folder for folder in self.environment.get("PATH", "").split(os.pathsep) if folder]
        for folder in [*folders, *(str(self.root / tools) for tools in TOOL_FOLDERS)]:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
        return None

    def run(
        self,
        command: Sequence[str],
        timeout: float = 20.0,
        environment: Mapping[str, str | None] | None = None,
        cwd: str | Path | None = None,
    ) -> Ran:
        """Run a command, at most `timeout` seconds; nothing that it started is left.

        Args:
            command: name or path, and arguments.
            timeout: seconds.
            environment: added to the host's own; None takes a variable away. Messages are asked for in English.
            cwd: working folder.
        """
        done = self._run(tuple(map(str, command)), timeout * self.patience, environment or {}, cwd)
        self.ran.append(done)
        return done

    def _run(
        self, command: tuple[str, ...], timeout: float, environment: Mapping[str, str | None], cwd: str | Path | None
    ) -> Ran:
        program = self.which(command[0])
        if program is None:
            return Ran(command, None, problem=f"there is no command {command[0]}")
        tag = secrets.token_hex(8)
        merged = {**self.environment, "LC_ALL": "C", **environment, TAG: tag}
        own = {name: value for name, value in merged.items() if value is not None}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=own, cwd=cwd,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                return Ran(command, None, problem=f"{program}: {error.strerror}")
            code, problem = None, None
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                problem = f"no answer in {timeout:g} s"
            finally:
                end_tagged(tag)
                # A process in the kernel's hands cannot be ended; it is left rather than waited for.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            return Ran(command, code, _text(out), _text(err), problem)


def end_tagged(tag: str) -> None:
    """Kill the processes that carry a tag in their environment, until there is none."""
    for _ in range(20):
        found = [pid for pid in _process_ids() if _has_tag(pid, tag)]
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _process_ids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _has_tag(pid: int, tag: str) -> bool:
    """Those that have ended, and those of others, show no environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{TAG}={tag}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def _text(file: IO[bytes]) -> str:
    """The output; of a very long one its beginning and its end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= MAX_BYTES:
        return file.read().decode("utf-8", errors="replace")
    head = file.read(MAX_BYTES // 2)
    file.seek(size - MAX_BYTES // 2)
    return f"{head.decode('utf-8', errors='replace')}\n...\n{file.read().decode('utf-8', errors='replace')}"


def _user_name(uid: int) -> str:
    """A container's user often has a number and no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(uid)


def _room_gb(path: Path) -> tuple[float, float]:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize / 2**30, found.f_bavail * found.f_frsize / 2**30


def _write_speed(folder: Path) -> float:
    """Write a file of 64 MB, flush it to the disk, remove it."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        for _ in range(PROBE_MB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return PROBE_MB * len(block) / 1e6 / max(time.perf_counter() - start, 1e-9)
