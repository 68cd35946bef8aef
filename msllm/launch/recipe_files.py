"""What a run's folder keeps of its start: the environment as a shell can read it, and what was started."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msllm.files import write_atomic
from msllm.launch.agreement import Hello
from msllm.launch.plan import Job, shell
from msllm.launch.variables import Setting


def environment_text(settings: Sequence[Setting], job: Job) -> str:
    """Lines `export NAME=value   # where it comes from`, and the processes as comments."""
    lines = [
        f"# Environment of node {job.node_rank}, written by msllm launch. To start one rank by hand: source this file and"
    ]
    lines += ["# run its line."]
    lines += [f"export {s.name}={shlex.quote(s.value)}   # {s.why}" for s in settings]
    for process in job.processes(job.resume):
        lines += [f"# {process.name}: {shell(process.command, process.environment)}"]
    return "\n".join(lines) + "\n"


def write_recipe(job: Job, settings: Sequence[Setting], hello: Hello) -> Path:
    """RUN/launch/node_<k>/environment.sh and launch.json; the folder."""
    folder = job.output / "launch" / f"node_{job.node_rank}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "environment.sh", environment_text(settings, job))
    document = {"host": hello.host, "versions": dict(hello.versions), **describe(job)}
    write_atomic(folder / "launch.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return folder


def describe(job: Job) -> dict[str, Any]:
    """A node of a job as JSON."""
    return {
        "node_rank": job.node_rank,
        "environment": dict(job.settings),
        "processes": [
            {
                "name": process.name,
                "environment": dict(process.environment),
                "command": list(process.command),
                "log": str(job.logs() / f"{process.name}.log"),
            }
            for process in job.processes(job.resume)
        ],
        "msrun": list(job.msrun(job.resume) or ()) or None,
    }


def node_text(job: Job, added: Mapping[str, str], name: str, remote: str | None) -> str:
    """A node of a job for people: what is run there, with its environment.

    Args:
        job: as the node sees it.
        added: variables that the launcher sets beside those that are inherited.
        name: of the host.
        remote: the line by which it is started from here, None where nobody does.
    """
    lines = [f"# node {job.node_rank} of {job.nodes}: {name}"]
    if remote is not None:
        lines += ["# started from here by:", remote, "# which runs there:"]
    lines += [f"export {variable}={shlex.quote(value)}" for variable, value in added.items()]
    for process in job.processes(job.resume):
        log = job.logs() / f"{process.name}.log"
        lines.append(f"{shell(process.command, process.environment)} > {shlex.quote(str(log))} 2>&1 &")
    msrun = job.msrun(job.resume)
    if msrun is not None:
        lines.append(f"# the same, unwatched, by msrun: {shlex.join(msrun)}")
    return "\n".join(lines)
