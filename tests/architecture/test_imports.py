"""The import graph: which package may know which. Every import counts, those inside functions too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERYONE = {"msllm", "msllm.errors", "msllm.files"}
"""What all may import: the version, the errors, atomic files."""
EVERYTHING = "everything"
ALLOWED: dict[str, set[str] | str] = {
    "msllm.hardware": set(),
    "msllm.config": {"msllm.hardware"},
    "msllm.planner": {"msllm.config", "msllm.hardware"},
    "msllm.layers": {"msllm.config"},
    "msllm.parallel": {"msllm.config"},
    "msllm.data": {"msllm.config"},
    "msllm.optim": {"msllm.config"},
    "msllm.checkpoint": {"msllm.config", "msllm.parallel"},
    "msllm.training": {
        "msllm.config",
        "msllm.layers",
        "msllm.parallel",
        "msllm.data",
        "msllm.optim",
        "msllm.checkpoint",
    },
    "msllm.generation": {
        "msllm.config",
        "msllm.layers",
        "msllm.data",
        "msllm.checkpoint",
        "msllm.parallel",
        "msllm.registry",
    },
    "models.config": {"msllm.config"},
    "models.weights": {"msllm.config", "msllm.layers", "models.config"},
    "models.model": {"msllm.config", "msllm.layers", "models.config"},
    "models.sharding": {"msllm.config", "msllm.parallel", "models.config", "models.model"},
    "msllm.registry": {"msllm.config", "models.config", "models.weights", "models.model", "models.sharding"},
    "msllm.rehearsal": {
        "msllm.config",
        "msllm.hardware",
        "msllm.layers",
        "msllm.parallel",
        "msllm.training",
        "msllm.registry",
        "msllm.testing",
    },
    "msllm.bench": {"msllm.hardware"},
    "msllm.launch": {"msllm.config", "msllm.hardware", "msllm.parallel", "rank_tables"},
    "data_tools": {"msllm.config", "msllm.data"},
    "rank_tables": set(),
    "msllm.doctor": {"msllm.config", "msllm.hardware", "rank_tables"},
    "msllm.commands": EVERYTHING,
    "msllm.cli": EVERYTHING,
    "msllm.testing": {"msllm.config", "msllm.data"},
}
WITHOUT_MINDSPORE = (
    "msllm.config.load",
    "msllm.hardware.chips",
    "msllm.hardware.versions",
    "msllm.planner.verdict",
    "msllm.registry",
    "msllm.cli",
    "msllm.launch.node",
    "msllm.launch.preflight",
    "rank_tables.generate",
    "msllm.doctor.examine",
)
OURS = ("msllm", "models", "data_tools", "rank_tables")
PARALLEL_WORDS = ("parallel", "shard", "strategy", "rank", "world_size", "allreduce", "all_reduce", "set_comm", "mesh")


def package_of(module: str) -> str:
    """`msllm.data.sampler` -> `msllm.data`; `models.llama.model` -> `models.model`; `data_tools.plan` -> `data_tools`."""
    parts = module.split(".")
    if parts[0] == "models":
        return f"models.{parts[-1]}" if len(parts) > 2 else "models"
    return ".".join(parts[:2]) if parts[0] == "msllm" else parts[0]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(file: Path) -> set[str]:
    """Our modules that a file imports anywhere. `from a import b` counts as a.b where that is a module."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                path = ROOT.joinpath(*full.split("."))
                found.add(full if path.with_suffix(".py").exists() or path.is_dir() else str(node.module))
    return {name for name in found if name.split(".")[0] in OURS}


def library_files() -> list[Path]:
    return [file for root in OURS for file in sorted((ROOT / root).rglob("*.py"))]


@pytest.mark.parametrize("file", library_files(), ids=module_of)
def test_a_package_imports_only_what_stands_below_it(file: Path):
    package = package_of(module_of(file))
    if package in EVERYONE or package == "models":
        allowed: set[str] | str = set()
    else:
        assert package in ALLOWED, f"{package} is new: say in ALLOWED what it may import"
        allowed = ALLOWED[package]
    if allowed == EVERYTHING:
        return
    used = {package_of(module) for module in imported_modules(file)}
    assert used - EVERYONE - {package} <= set(allowed)


def test_the_allowed_imports_have_no_cycle():
    done: set[str] = set()
    left = {package: set(allowed) for package, allowed in ALLOWED.items() if allowed != EVERYTHING}
    while left:
        ready = [package for package, needs in left.items() if needs <= done]
        assert ready, f"a cycle among {sorted(left)}"
        done |= set(ready)
        for package in ready:
            del left[package]


def test_a_package_names_its_own_modules_by_their_full_path():
    """Only errors and files stand at the top: nothing else belongs to everyone."""
    top = {file.stem for file in (ROOT / "msllm").glob("*.py")}
    assert top == {"__init__", "errors", "files", "registry", "cli"}


@pytest.mark.parametrize("file", sorted((ROOT / "models").glob("*/model.py")), ids=lambda file: file.parent.name)
def test_a_model_file_has_no_word_of_parallelism(file: Path):
    text = file.read_text(encoding="utf-8").lower()
    assert [word for word in PARALLEL_WORDS if word in text] == []


@pytest.mark.parametrize("module", WITHOUT_MINDSPORE)
def test_what_starts_fast_does_not_import_mindspore(module: str):
    code = (
        f"import sys, {module}\n"
        "heavy = [m for m in ('mindspore', 'mindformers', 'pyarrow', 'tokenizers', 'torch') if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_rank_tables_need_only_the_standard_library():
    """They are made on servers where nothing is installed yet."""
    imported = set()
    for file in (ROOT / "rank_tables").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(str(node.module))
            imported |= {name.split(".")[0] for name in names}
    assert imported - set(sys.stdlib_module_names) == {"msllm", "rank_tables"}


@pytest.mark.parametrize("package", ["msllm.config", "msllm.hardware"])
def test_no_module_of_config_and_hardware_names_mindspore(package: str):
    folder = ROOT.joinpath(*package.split("."))
    users = []
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            if isinstance(node, ast.ImportFrom):
                names.append(str(node.module))
            users += [file.name for name in names if name.split(".")[0] in ("mindspore", "mindformers")]
    assert users == []
