"""Layer 3: Python, its packages, and whether their versions belong together."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from msllm.doctor.visit import Visit
from msllm.hardware.versions import (
    ACCEPTED_CANN,
    LAST_GRAPH_MODE,
    NUMPY_BELOW,
    OURS,
    PYTHON,
    Release,
    order,
    release_of,
    release_of_cann,
    series,
)

PACKAGES = ("mindspore", "mindformers", "numpy", "msllm")
OLD_NAMES = ("mindspore-ascend", "mindspore-gpu", "mindspore-dev")
"""Packages that install files of the same name as mindspore."""
EXTENSION = "_c_expression*.so"
"""MindSpore's core, in the folder of the package."""
ELF_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""e_machine of an ELF header (elf.h)."""
PAIR = f'pip install "mindspore=={OURS.mindspore}" "mindformers=={OURS.mindformers}" "numpy>=1.26,<{NUMPY_BELOW}"'


def look_at_packages(visit: Visit) -> bool:
    """Versions as the packages themselves say them; nothing is imported."""
    host, facts = visit.host, visit.facts
    facts.python = ".".join(map(str, host.python_version))
    facts.packages = installed(host.site, (*PACKAGES, *OLD_NAMES))
    visit.say(f"Python {facts.python} in {host.python}")
    known = [f"{name} {facts.packages[name]}" for name in PACKAGES if name in facts.packages]
    if known:
        visit.say(", ".join(known))
    _python(visit)
    if "mindspore" not in facts.packages:
        visit.error(
            "packages.missing",
            f"mindspore is not installed for {host.python}",
            "msllm trains with MindSpore; another Python of this machine may have it, but this one runs msllm",
            PAIR,
        )
        return True
    _old_names(visit)
    _architecture(visit)
    _numpy(visit)
    _pair(visit, facts.packages["mindspore"], facts.packages.get("mindformers"))
    _cann(visit, facts.packages["mindspore"])
    return True


def installed(site: Sequence[str], names: tuple[str, ...]) -> dict[str, str]:
    """Versions of those packages that are installed in some folders; the first folder counts."""
    found: dict[str, str] = {}
    folders = [str(folder) or os.getcwd() for folder in site]
    for distribution in metadata.distributions(path=folders):
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except (OSError, ValueError, KeyError):  # a registration that was spoilt
            continue
        name = (name or "").lower().replace("_", "-")
        if name in names and version:
            found.setdefault(name, version)
    return found


def _python(visit: Visit) -> None:
    first, last = PYTHON
    if first <= visit.host.python_version[:2] <= last:
        return
    text = f"{'.'.join(map(str, first))} to {'.'.join(map(str, last))}"
    visit.error(
        "packages.python",
        f"Python is {visit.facts.python}; supported are {text}",
        f"MindSpore {OURS.mindspore} and MindFormers {OURS.mindformers} have no wheels for it",
        f"conda create -n msllm python={'.'.join(map(str, last))}   (or python3.11 -m venv .venv), then {PAIR}",
    )


def _old_names(visit: Visit) -> None:
    others = [f"{name} {visit.facts.packages[name]}" for name in OLD_NAMES if name in visit.facts.packages]
    if others:
        visit.error(
            "packages.twice",
            f"{', '.join(others)} and mindspore {visit.facts.packages['mindspore']} are both installed",
            "they write the same files: what runs is a mixture of the two",
            f"pip uninstall -y mindspore {' '.join(name.split()[0] for name in others)}, then {PAIR}",
        )


def _architecture(visit: Visit) -> None:
    """PyPI's wheel is tagged for any machine, but holds objects for x86-64; pip installs it on aarch64 without a word."""
    folder = _package_folder(visit, "mindspore")
    files = sorted(folder.glob(EXTENSION)) if folder else []
    if not files:
        visit.error(
            "packages.damaged",
            f"mindspore {visit.facts.packages['mindspore']} is registered, but its folder with {EXTENSION} is not there"
            f"{f' ({folder})' if folder else ''}",
            "an installation was broken off, or files were removed by hand",
            f"pip install --force-reinstall --no-deps mindspore=={OURS.mindspore}",
        )
        return
    machine = elf_machine(files[0])
    if machine != visit.host.machine:
        wheel = f"https://www.mindspore.cn/install (MindSpore {OURS.mindspore}, {visit.host.machine})"
        visit.error(
            "packages.architecture",
            f"mindspore holds objects for {machine or 'no known machine'} ({files[0].name}); this machine is "
            f"{visit.host.machine}",
            "the wheel on PyPI is tagged `any` although it is for x86-64: import mindspore fails with `cannot open shared "
            "object file` or `invalid ELF header`",
            f"pip uninstall -y mindspore; pip install the wheel for {visit.host.machine} from {wheel}",
        )


def _package_folder(visit: Visit, name: str) -> Path | None:
    for folder in visit.host.site:
        path = os.path.join(folder or ".", name)
        if os.path.isdir(path):  # of a folder that may not be read, too
            return Path(path)
    return None


def elf_machine(file: Path) -> str | None:
    """Machine that a shared object is for: x86_64, aarch64; a number for another; None for no ELF file."""
    try:
        with open(file, "rb") as opened:
            head = opened.read(20)
    except OSError:
        return None
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    (number,) = struct.unpack("<H" if head[5] == 1 else ">H", head[18:20])
    return ELF_MACHINES.get(number, f"ELF machine {number}")


def _numpy(visit: Visit) -> None:
    numpy = visit.facts.packages.get("numpy")
    if numpy is None or order(numpy) >= order(NUMPY_BELOW):
        visit.error(
            "packages.numpy",
            f"numpy is {numpy or 'not installed'}; MindSpore {OURS.mindspore} needs 1.26",
            "MindSpore's extensions are compiled against numpy 1: _ARRAY_API not found, or multiarray failed to import",
            f'pip install "numpy>=1.26,<{NUMPY_BELOW}"',
        )


def _pair(visit: Visit, mindspore: str, mindformers: str | None) -> None:
    """P26: MindSpore and MindFormers are released for each other, and this project for one pair."""
    if order(mindspore) >= order(LAST_GRAPH_MODE) and series(mindspore) != series(LAST_GRAPH_MODE):
        visit.error(
            "packages.mindspore",
            f"mindspore is {mindspore}",
            f"Graph mode on several devices ended upstream after MindSpore {LAST_GRAPH_MODE}",
            PAIR,
        )
        return
    row = release_of(mindspore)
    if mindformers is None:
        visit.warning(
            "packages.missing",
            f"mindformers is not installed for {visit.host.python}",
            "msllm runs without it; it is what msllm's keys, weights and versions are compared with",
            PAIR,
        )
    elif row is not None and mindformers != row.mindformers:
        visit.error(
            "packages.pair",
            f"mindspore {mindspore} and mindformers {mindformers} are no pair: mindspore {mindspore} goes with mindformers "
            f"{row.mindformers}",
            "MindFormers calls functions that other versions of MindSpore do not have: ImportError, or an operator is missing",
            PAIR,
        )
    if row != OURS:
        report = visit.error if order(mindspore) < order(OURS.mindspore) else visit.warning
        report(
            "packages.mindspore",
            f"mindspore is {mindspore}; msllm is written for {OURS.mindspore} and tested with it alone",
            "names and arguments of MindSpore differ between versions",
            PAIR,
        )


def _cann(visit: Visit, mindspore: str) -> None:
    """P26: MindSpore against CANN. MindSpore itself starts on more than the one of the matrix."""
    cann, row = visit.facts.cann, release_of(mindspore)
    if cann is None or row is None or series(cann) == series(row.cann):
        return
    accepted = ACCEPTED_CANN.get(mindspore, ())
    report = visit.warning if ".".join(series(cann)) in accepted else visit.error
    report(
        "packages.cann",
        f"CANN is {cann}; mindspore {mindspore} was released for CANN {row.cann}"
        + (f" and starts on {', '.join(accepted)}" if accepted else ""),
        "versions that were not tested together: an operator is missing, a graph does not compile, or HCCL does not start",
        _cann_remedy(row, cann),
    )


def _cann_remedy(row: Release, cann: str) -> str:
    install = f"install CANN {row.cann} (driver {row.driver} or later) and source its set_env.sh"
    other = release_of_cann(cann)
    return f"{install}; CANN {cann} goes with mindspore {other.mindspore}" if other else install
