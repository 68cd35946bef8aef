"""Layer 2: firmware and CANN, the toolkit that MindSpore's Ascend backend is built on."""

from __future__ import annotations

import os
import re

from msllm.doctor.devices import version_in
from msllm.doctor.visit import Visit
from msllm.hardware.versions import OURS, RELEASES, order, release_of_cann

FIRMWARE_VERSION = "/usr/local/Ascend/firmware/version.info"
HOME, TOOLKIT, OPP = "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH"
SET_ENV = (
    "/usr/local/Ascend/ascend-toolkit/set_env.sh",
    "/usr/local/Ascend/cann/set_env.sh",
    "{home}/Ascend/ascend-toolkit/set_env.sh",
    "{home}/Ascend/cann/set_env.sh",
)
"""Where installers put the script that sets the environment."""
TBE = "opp/built-in/op_impl/ai_core/tbe"
"""What MindSpore looks for in PYTHONPATH: the compiler of operators."""
SEPARATE_OPS = "8.5.0"
"""From this CANN on the operators are a package of their own (Ascend-cann-<chip>-ops)."""
INSTALL = (
    "bash Ascend-cann-toolkit_{version}_linux-{machine}.run --install, and the ops (or kernels) package of the chip"
)


def look_at_cann(visit: Visit) -> bool:
    """The environment of CANN, its version, and the driver's against it. False where there is neither NPU nor CANN."""
    host, facts = visit.host, visit.facts
    home = host.environment.get(HOME) or host.environment.get(TOOLKIT)
    if not home and not (facts.devices or facts.accelerators):
        return False
    firmware = host.read(FIRMWARE_VERSION)
    facts.firmware = version_in(firmware) if firmware else None
    if facts.firmware:
        visit.say(f"firmware {facts.firmware}")
    if not home:
        _not_sourced(visit)
        return True
    facts.cann_home = home
    if not host.exists(home):
        visit.error(
            "cann.path",
            f"{HOME} is {home}, and there is no such folder",
            "CANN was moved, replaced or removed after this environment was set",
            _source(visit) or INSTALL.format(version=OURS.cann, machine=host.machine),
        )
        return True
    facts.cann = cann_version(visit, home)
    visit.say(f"CANN {facts.cann or 'of an unknown version'} in {home}")
    _machine(visit, home)
    _paths(visit, home)
    _mixed(visit, home)
    _operators(visit, home)
    _driver(visit)
    return True


def _not_sourced(visit: Visit) -> None:
    command = _source(visit)
    if command:
        visit.error(
            "cann.not_sourced",
            f"CANN is installed, but {HOME} is not set: set_env.sh was not sourced in this shell",
            "MindSpore does not find libascendcl.so and its operators, and says that Ascend is no supported device",
            f"{command}   (and put the line into ~/.bashrc: a shell of ssh, cron or a scheduler needs it too)",
        )
        return
    visit.error(
        "cann.missing",
        f"there are NPUs, but no CANN: {HOME} is not set and there is no {SET_ENV[0]}",
        "MindSpore's Ascend backend is built on CANN",
        INSTALL.format(version=OURS.cann, machine=visit.host.machine),
    )


def _source(visit: Visit) -> str | None:
    """`source .../set_env.sh` of the first script that is there."""
    home = visit.host.environment.get("HOME", "/root").rstrip("/")
    scripts = [script.format(home=home) for script in SET_ENV]
    scripts += [f"/usr/local/Ascend/{name}/set_env.sh" for name in visit.host.names("/usr/local/Ascend", "cann-*")]
    return next((f"source {script}" for script in scripts if visit.host.exists(script)), None)


def cann_version(visit: Visit, home: str) -> str | None:
    """Version of a CANN folder, from the file of the toolkit, of the compiler, or from the folder's name."""
    version = version_in(visit.host.read(f"{home}/{visit.host.machine}-linux/ascend_toolkit_install.info") or "")
    if version:
        return version
    compiler = visit.host.read(f"{home}/compiler/version.info") or ""
    # Before 8.2 its Version= is a number of the compiler alone, as 7.2.0.1.238.
    match = re.search(r"^version_dir=(\d\S*)", compiler, re.MULTILINE)
    if match or version_in(compiler):
        return match[1] if match else version_in(compiler)
    # version.cfg holds lines such as toolkit_running_version=[7.7.0.0.1:8.2.RC1].
    match = re.search(r"toolkit_\w*version=\[(?:[^:\]]*:)?([^\]]+)\]", visit.host.read(f"{home}/version.cfg") or "")
    match = match or re.search(r"(?:/|cann-)(\d+\.\d+[^/]*)/?\Z", home)
    return match[1] if match else None


def _machine(visit: Visit, home: str) -> None:
    """A toolkit of the other processor, as in an image that was built elsewhere."""
    folders = [name for name in visit.host.names(home, "*-linux") if name in ("x86_64-linux", "aarch64-linux")]
    if folders and f"{visit.host.machine}-linux" not in folders:
        visit.error(
            "cann.architecture",
            f"CANN in {home} is for {folders[0].removesuffix('-linux')}; this machine is {visit.host.machine}",
            "none of its libraries can be loaded here",
            INSTALL.format(version=visit.facts.cann or OURS.cann, machine=visit.host.machine),
        )


def _paths(visit: Visit, home: str) -> None:
    """What set_env.sh sets besides the home: a part of it alone is worse than nothing."""
    environment = visit.host.environment
    opp = environment.get(OPP)
    again = _source(visit) or f"source {home}/set_env.sh"
    if not opp or not visit.host.exists(opp):
        visit.error(
            "cann.path",
            f"{OPP} is {opp + ', and there is no such folder' if opp else 'not set'}, though {HOME} is {home}",
            "no operator is found, and the first graph fails to compile",
            again,
        )
    libraries = [path for path in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    if not any(path.startswith(home.rstrip("/")) for path in libraries):
        visit.error(
            "cann.path",
            f"LD_LIBRARY_PATH holds no folder of {home}",
            "libascendcl.so, libhccl.so and others are not found, or those of another CANN are",
            again,
        )
    if TBE not in environment.get("PYTHONPATH", ""):
        visit.warning(
            "cann.path",
            f"PYTHONPATH does not hold {TBE}",
            "MindSpore looks there for te, which compiles operators that have no ready kernel",
            again,
        )


def _mixed(visit: Visit, home: str) -> None:
    """Two CANN in one environment: two scripts were sourced, one after the other."""
    opp = visit.host.environment.get(OPP, "").rstrip("/")
    other = os.path.dirname(opp)
    if not opp or opp.startswith(home.rstrip("/") + "/") or not visit.host.exists(opp):
        return
    version = cann_version(visit, other)
    if version and visit.facts.cann and version != visit.facts.cann:
        visit.error(
            "cann.mixed",
            f"{HOME} is CANN {visit.facts.cann} ({home}), {OPP} is CANN {version} ({opp})",
            "operators of one version are compiled by another: E-codes while graphs are compiled, or wrong results",
            f"open a new shell, and source one script only: {_source(visit) or f'source {home}/set_env.sh'}",
        )


def _operators(visit: Visit, home: str) -> None:
    """P26: an operator is missing, or is of another version than the toolkit."""
    cann = visit.facts.cann
    if not cann or order(cann) < order(SEPARATE_OPS):
        return
    folder = f"{home}/{visit.host.machine}-linux"
    if not visit.host.exists(f"{folder}/ascend_toolkit_install.info"):
        return
    operators = version_in(visit.host.read(f"{folder}/ascend_ops_install.info") or "")
    package = f"bash Ascend-cann-<chip>-ops_{cann}_linux-{visit.host.machine}.run --install"
    if operators is None:
        visit.warning(
            "cann.operators",
            f"there is no {folder}/ascend_ops_install.info: the package of operators is not installed",
            f"from CANN {SEPARATE_OPS} on operators are a package of their own; without it the first graph fails",
            package,
        )
    elif operators.lower() != cann.lower():
        visit.error(
            "cann.operators",
            f"the toolkit is {cann}, the operators are {operators}",
            "an operator is missing, or is called with arguments that it does not know",
            package,
        )


def _driver(visit: Visit) -> None:
    """The matrix: a newer driver carries an older CANN, not the other way round."""
    facts = visit.facts
    row = release_of_cann(facts.cann) if facts.cann else None
    if row is None or facts.driver is None or order(facts.driver) >= order(row.driver):
        return
    visit.error(
        "cann.driver",
        f"driver {facts.driver} is older than {row.driver}, which CANN {facts.cann} was released with",
        "CANN calls functions that the driver does not have: an error at the import, at aclInit or in HCCL",
        f"install driver and firmware {row.driver} or later on the host (Ascend-hdk-<chip>-npu-driver_{row.driver}_linux-"
        f"{visit.host.machine}.run --full) and reboot; or a CANN that fits: {_older(facts.driver)}",
    )


def _older(driver: str) -> str:
    """The newest CANN of the matrix that a driver carries."""
    fitting = [row for row in RELEASES if order(row.driver) <= order(driver)]
    return f"CANN {fitting[-1].cann} with MindSpore {fitting[-1].mindspore}" if fitting else "none of the matrix"
