"""Plays a recording: its files under a folder, its commands as executables. The lines are explained in recordings/README.md."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msllm.doctor.host import Host

RECORDINGS = Path(__file__).parent / "recordings"
SITE = "/opt/venv/lib/python3.11/site-packages"
ELF_NUMBERS = {"x86_64": 62, "aarch64": 183}
EXIT = "[exit code "

STUB = """#!/bin/sh
key=${{0##*/}}
for argument in "$@"; do case "$argument" in /*) ;; *) key="$key $argument" ;; esac; done
answer="{answers}/$key"
if [ -f "$answer.hang" ]; then exec /bin/sleep 600; fi
if [ ! -f "$answer" ]; then echo "$key: not in the recording" >&2; exit 97; fi
/bin/cat "$answer"
if [ -f "$answer.code" ]; then exit "$(/bin/cat "$answer.code")"; fi
"""
MSRUN = """#!/bin/sh
while [ $# -gt 2 ]; do
    if [ "$1" = --log_dir ]; then logs=$2; fi
    shift
done
for rank in 0 1; do /bin/cat "{answers}/msrun $1 $2" > "$logs/worker_$rank.log"; done
if [ -f "{answers}/msrun $1 $2.code" ]; then exit "$(/bin/cat "{answers}/msrun $1 $2.code")"; fi
"""


@dataclass
class Played:
    """A folder that is being made into a server."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def answers(self) -> Path:
        return self.folder / "answers"

    @property
    def commands(self) -> Path:
        return self.folder / "bin"

    def file(self, name: str) -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def play(self, text: str) -> None:
        """Carry out a transcript."""
        lines = text.splitlines()
        for line in lines:
            if line.startswith("< "):
                self.play((RECORDINGS / line[2:].strip()).read_text(encoding="utf-8"))
        for command, output in _blocks(lines):
            self._do(command, output)

    def _do(self, command: str, output: list[str]) -> None:
        word, _, rest = command.partition(" ")
        if word == "cat":
            self.file(rest).write_text("".join(f"{line}\n" for line in output), encoding="utf-8")
        elif word == "touch":
            for name in rest.split():
                self.file(name).touch()
        elif word == "rm":
            for name in rest.split():
                self._remove(name)
        elif word == "export":
            name, _, value = rest.partition("=")
            self.environment[name] = value
        elif word == "unset":
            self.environment.pop(rest, None)
        elif word == "elf":
            machine, _, name = rest.partition(" ")
            header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, ELF_NUMBERS[machine])
            self.file(name).write_bytes(header)
        elif word == "hang":
            self._command(rest)
            (self.answers / f"{rest}.hang").touch()
        else:
            self._command(command)
            code = self.answers / f"{command}.code"
            code.unlink(missing_ok=True)
            if output and output[-1].startswith(EXIT):
                code.write_text(output[-1].removeprefix(EXIT).rstrip("]"))
                output = output[:-1]
            (self.answers / command).write_text("".join(f"{line}\n" for line in output), encoding="utf-8")

    def _command(self, command: str) -> None:
        name = command.partition(" ")[0]
        path = self.commands / name
        path.write_text((MSRUN if name == "msrun" else STUB).format(answers=self.answers))
        path.chmod(0o755)

    def _remove(self, name: str) -> None:
        path = self.root / name.lstrip("/") if name.startswith("/") else self.commands / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def host(self, **other: object) -> Host:
        """The server, with the resources of a usual one where `other` says nothing."""
        usual: dict[str, object] = {
            "root": self.root,
            "environment": {**self.environment, "PATH": str(self.commands)},
            "name": "ascend-node-11",
            "machine": "aarch64",
            "python": str(self.commands / "python"),
            "python_version": (3, 11, 9),
            "site": [str(self.root / SITE.lstrip("/"))],
            "cores": 192,
            "open_files": 1048576,
            "room_gb": lambda path: (503.0, 411.0),
            "write_speed": lambda folder: 1900.0,
            "patience": 0.5,
        }
        return Host(**{**usual, **other})  # type: ignore[arg-type]


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines below it."""
    command: str | None = None
    output: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            if command is not None:
                yield command, output
            command, output = line[2:], []
        elif command is not None:
            output.append(line)
    if command is not None:
        yield command, output


def played(folder: Path, *transcripts: str) -> Played:
    """A server in a folder, from names of recordings and texts of transcripts, one after the other."""
    server = Played(folder)
    for part in (server.root, server.answers, server.commands):
        part.mkdir(parents=True)
    for transcript in transcripts:
        is_name = not transcript.lstrip().startswith("$")
        server.play((RECORDINGS / f"{transcript}.txt").read_text(encoding="utf-8") if is_name else transcript)
    return server
