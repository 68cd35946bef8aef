"""Stand-ins for the CANN libraries, so that MindSpore's Ascend target loads where there is neither an NPU nor CANN.

MindSpore's wheel holds its Ascend plugin. What the plugin needs of CANN are symbols: under simulation it never computes with
them. So a library of each needed name is made with every needed symbol, nearly all of them functions that return 0. The few
whose result the plugin looks at have a body in cann/.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from msllm.errors import InputError, RunError
from msllm.files import new_directory, write_atomic

SOURCES = Path(__file__).parent / "cann"
SYSTEM = (
    "libc.so.6",
    "libm.so.6",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
)
RUNTIME = ("libascendcl.so", "libacl_op_compiler.so", "libacl_tdt_channel.so", "libgraph.so", "libmsprofiler.so")
"""Libraries that the plugin opens and looks functions of the runtime up in."""
OPERATORS = (
    "libopapi.so",
    "libopapi_math.so",
    "libopapi_nn.so",
    "libopapi_transformer.so",
    "libopapi_cv.so",
    "libcust_opapi.so",
)
"""Libraries that it looks operators (aclnn...) up in."""
_RUNTIME_NAME = re.compile(rb"(?:acl|aclop|aclrt|aclprof|aclmdl|acldump|acltdt|rt|hrt|Hccl|Hcom|hccl|Msprof)[A-Z]\w+")
_OPERATOR_NAME = re.compile(rb"\baclnn[A-Z]\w+")
_KINDS = ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList")
_OPERATOR_SUPPORT = {
    *("aclnnInit", "aclnnFinalize", "aclDestroyAclOpExecutor", "aclSetAclOpExecutorRepeatable", "aclSetTensorAddr"),
    *("aclSetDynamicTensorAddr", "InitHugeMemThreadLocal", "UnInitHugeMemThreadLocal", "ReleaseHugeMem"),
    *("InitPTACacheThreadLocal", "SetPTAHashKey", "CanUsePTACache", "PTAGetExecCache"),
    *(f"aclCreate{kind}" for kind in _KINDS),
    *(f"aclDestroy{kind}" for kind in _KINDS),
}
_COMPILER_MADE = ("_ITM", "__gmon", "__gcov", "_ZTH", "Py", "_Py")
"""Beginnings of undefined symbols that are weak or come from the interpreter."""


def ensure_stand_ins() -> Path:
    """The folder with the stand-ins for the installed MindSpore, made now if it is not there: about 5 seconds.

    It lies in the user's cache ($MSLLM_CACHE, else $XDG_CACHE_HOME/msllm, else ~/.cache/msllm), by MindSpore's version and the
    checksum of its plugin and of the sources here.

    Raises:
        InputError: the platform or MindSpore cannot be simulated, or a compiler is missing.
        RunError: the compiler failed.
    """
    mindspore = _mindspore_folder()
    libraries = _plugin_libraries(mindspore)
    _check_machine(libraries)
    folder = _cache() / f"stand-ins-{version('mindspore')}-{_checksum(libraries)}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        # Processes and threads that need them at the same time: one builds, the others find them made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with new_directory(folder) as temporary:
                _build(mindspore, libraries, temporary)
    return folder


def library_path(folder: Path) -> str:
    """LD_LIBRARY_PATH for a process that loads the plugin with these stand-ins."""
    plugin = _mindspore_folder() / "lib" / "plugin" / "ascend"
    return ":".join(
        map(str, (folder / "cann" / "lib64", plugin, plugin / "ms_kernels_symmetric_memory/shmem/shmem/lib"))
    )


def _cache() -> Path:
    if "MSLLM_CACHE" in os.environ:
        return Path(os.environ["MSLLM_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "msllm"


def _mindspore_folder() -> Path:
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        raise InputError("MindSpore is not installed; install msllm with pip, which brings it")
    return Path(spec.origin).parent


def _plugin_libraries(mindspore: Path) -> list[Path]:
    plugin = mindspore / "lib" / "plugin"
    wanted = [
        *sorted(plugin.glob("libmindspore_ascend.so*")),
        plugin / "libmindspore_ops_ascend.so",
        plugin / "ascend" / "libd_collective.so",
        plugin / "ascend" / "libmindspore_ascend_res_manager.so",
        plugin / "ascend/ms_kernels_symmetric_memory/shmem/shmem/lib/libshmem.so",
    ]
    found = [path for path in wanted if path.exists()]
    if len(found) < 3:
        raise InputError(
            f"the MindSpore in {mindspore} has no Ascend plugin, so nothing can be compiled for Ascend with it"
        )
    return found


def _check_machine(libraries: list[Path]) -> None:
    """The stand-ins are x86-64 assembler; MindSpore's wheel does not say for which machine it is, its libraries do."""
    with open(libraries[0], "rb") as file:
        header = file.read(20)
    if platform.system() != "Linux" or platform.machine() != "x86_64" or int.from_bytes(header[18:20], "little") != 62:
        raise InputError(
            f"without CANN, Ascend is simulated on Linux x86-64 only; this is {platform.system()} {platform.machine()}. "
            "Install CANN, which has its own dry run, or rehearse on an x86-64 machine"
        )
    missing = [tool for tool in ("gcc", "g++", "nm", "readelf") if shutil.which(tool) is None]
    if missing:
        raise InputError(
            f"{', '.join(missing)} not found, which the stand-ins for CANN are built with; install gcc, g++ and binutils "
            "(Debian, Ubuntu: apt install build-essential; openEuler: yum install gcc gcc-c++ binutils)"
        )


def _checksum(libraries: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in (*libraries, Path(__file__), *sorted(SOURCES.iterdir())):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _build(mindspore: Path, libraries: list[Path], folder: Path) -> None:
    lib64, objects = folder / "cann" / "lib64", folder / "objects"
    lib64.mkdir(parents=True)
    objects.mkdir()
    contents = [path.read_bytes() for path in libraries]
    bodies = set(re.findall(r"^[\w *]+?(\w+)\(.*\{", (SOURCES / "runtime.c").read_text(), re.MULTILINE))
    bodies.add("_ZN2ge13StatusFactory8InstanceEv")
    runtime = (_undefined(mindspore, libraries) | _names(_RUNTIME_NAME, contents)) - bodies
    runtime = {name for name in runtime if not name.startswith("aclnn")}
    operators = _names(_OPERATOR_NAME, contents)
    operators |= {f"{name}GetWorkspaceSize" for name in operators if not name.endswith("GetWorkspaceSize")}
    write_atomic(objects / "runtime.s", _assembler(runtime))
    write_atomic(objects / "operators.s", _assembler(operators | _OPERATOR_SUPPORT))
    _run("gcc", "-c", objects / "runtime.s", "-o", objects / "runtime.o")
    _run("gcc", "-c", objects / "operators.s", "-o", objects / "operators.o")
    _run("gcc", "-fPIC", "-c", SOURCES / "runtime.c", "-o", objects / "bodies.o")
    _run("g++", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=0", "-c", SOURCES / "status_factory.cc", "-o", objects / "status.o")
    for name in _needed(mindspore, libraries) | set(RUNTIME):
        parts = [objects / f"{part}.o" for part in ("runtime", "bodies", "status")] if name in RUNTIME else []
        _run("g++", "-shared", f"-Wl,-soname,{name}", "-o", lib64 / name, *parts)
    for name in OPERATORS:
        _run("gcc", "-shared", f"-Wl,-soname,{name}", "-o", lib64 / name, objects / "operators.o")
    # communication.init() reads a version from this package of CANN.
    hccl = folder / "python" / "hccl"
    hccl.mkdir(parents=True)
    write_atomic(hccl / "__init__.py", "")
    write_atomic(hccl / "sys_version.py", '__sys_version__ = "8.5"\n')


def _run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{command[0]} could not build the stand-ins for CANN: {done.stderr.strip()[-500:]}")
    return done.stdout


def _symbols(path: Path, which: str) -> set[str]:
    lines = _run("nm", "-D", which, path).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.strip()}


def _system_library(name: str) -> Path | None:
    path = Path(_run("gcc", f"-print-file-name={name}").strip())
    return path if path.is_absolute() else None


def _undefined(mindspore: Path, libraries: list[Path]) -> set[str]:
    """Symbols that the plugin needs and that neither MindSpore nor the system has."""
    wanted = set[str]().union(*(_symbols(path, "--undefined-only") for path in libraries))
    owners: list[Path] = [*(mindspore / "lib").glob("*.so*"), *mindspore.glob("_c_*.so"), *libraries]
    owners += [path for path in map(_system_library, SYSTEM) if path]
    for path in owners:
        wanted -= _symbols(path, "--defined-only")
    return {name for name in wanted if not name.startswith(_COMPILER_MADE)}


def _names(pattern: re.Pattern[bytes], contents: Iterable[bytes]) -> set[str]:
    """Names that stand as whole strings in the plugin, because it looks them up while it runs."""
    whole = re.compile(rb"(?<=\0)" + pattern.pattern + rb"(?=\0)")
    return {match.decode().rstrip("_") for content in contents for match in whole.findall(content)}


def _needed(mindspore: Path, libraries: list[Path]) -> set[str]:
    """Names of the libraries that the plugin is linked to and that are nowhere on this machine."""
    needed: set[str] = set()
    for path in libraries:
        needed |= set(re.findall(r"NEEDED.*\[(lib\S+)\]", _run("readelf", "-d", path)))
    lib = mindspore / "lib"
    present = {path.name for path in [*lib.glob("*.so*"), *lib.glob("plugin/**/*.so*")]}
    return {name for name in needed - present if _system_library(name) is None}


def _assembler(names: Iterable[str]) -> str:
    lines = [".data", ".align 64", "object: .zero 4096", ".text"]
    for name in sorted(names):
        if name.startswith(("_ZTV", "_ZTI", "_ZTS")):  # tables of C++ classes are data
            lines.append(
                f".data\n.globl {name}\n.type {name},@object\n.align 16\n{name}: .zero 256\n.size {name},256\n.text"
            )
            continue
        lines.append(f".globl {name}\n.type {name},@function\n{name}: {_body(name)}")
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def _body(name: str) -> str:
    if "CreateOperator" in name:  # returns a C++ object of three words, whose address comes in rdi
        return "mov %rdi,%rax\n xorps %xmm0,%xmm0\n movups %xmm0,(%rdi)\n movq $0,16(%rdi)\n ret"
    if re.fullmatch(rf"aclCreate({'|'.join(_KINDS)})", name):  # must not be null
        return "lea object(%rip),%rax\n ret"
    return "xor %eax,%eax\n ret"
