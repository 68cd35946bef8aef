"""Layer 2: the environment of CANN, its version, and the driver's against it."""

from __future__ import annotations

import pytest

from msllm.doctor.cann import look_at_cann
from msllm.doctor.visit import Facts, Visit

HEALTHY = "healthy_910b3"
HOME = "/usr/local/Ascend/ascend-toolkit/latest"
UNSOURCED = "$ unset ASCEND_HOME_PATH\n$ unset ASCEND_TOOLKIT_HOME\n$ unset ASCEND_OPP_PATH\n$ unset LD_LIBRARY_PATH"


@pytest.fixture
def look(server):
    """The layer's visit, on a server whose devices are known."""

    def run(*transcripts: str, driver: str = "26.0.RC1") -> Visit:
        visit = Visit(server(HEALTHY, *transcripts).host(), facts=Facts(devices=list(range(8)), driver=driver))
        assert look_at_cann(visit)
        return visit

    return run


def codes(visit: Visit) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in visit.findings]


def test_a_machine_without_npu_and_cann(server):
    assert not look_at_cann(Visit(server("$ touch /x").host()))


def test_cann_that_was_not_sourced_is_sourced_by_the_command(look):
    visit = look(UNSOURCED)
    assert codes(visit) == [("error", "cann.not_sourced")]
    assert visit.findings[0].mend.startswith("source /usr/local/Ascend/ascend-toolkit/set_env.sh")


@pytest.mark.parametrize(
    ("script", "home"),
    [
        ("/home/liwei/Ascend/ascend-toolkit/set_env.sh", "/home/liwei"),
        ("/usr/local/Ascend/cann-9.0.0/set_env.sh", "/root"),
    ],
)
def test_the_script_is_found_where_installers_put_it(look, script, home):
    visit = look(UNSOURCED, f"$ rm /usr/local/Ascend/ascend-toolkit\n$ touch {script}\n$ export HOME={home}")
    assert visit.findings[0].mend.startswith(f"source {script} ")


def test_npus_without_cann(look):
    visit = look(UNSOURCED, "$ rm /usr/local/Ascend/ascend-toolkit")
    assert codes(visit) == [("error", "cann.missing")]
    assert "Ascend-cann-toolkit_9.0.0_linux-aarch64.run" in visit.findings[0].mend


def test_a_home_that_is_gone(look):
    visit = look("$ export ASCEND_HOME_PATH=/usr/local/Ascend/ascend-toolkit/8.0.0")
    assert codes(visit) == [("error", "cann.path")]
    assert "8.0.0, and there is no such folder" in visit.findings[0].seen


def test_an_environment_of_which_a_part_is_missing(look):
    visit = look("$ export ASCEND_OPP_PATH=/nowhere\n$ export LD_LIBRARY_PATH=/usr/lib\n$ unset PYTHONPATH")
    assert codes(visit) == [("error", "cann.path"), ("error", "cann.path"), ("warning", "cann.path")]
    assert "ASCEND_OPP_PATH is /nowhere, and there is no such folder" in visit.findings[0].seen


def test_two_versions_in_one_environment(look):
    other = "/usr/local/Ascend/ascend-toolkit/8.2.RC1"
    visit = look(f"$ touch {other}/opp/x\n$ cat {other}/compiler/version.info\nVersion=8.2.RC1\n"
                 f"$ export ASCEND_OPP_PATH={other}/opp")  # fmt: skip
    assert codes(visit) == [("error", "cann.mixed")]
    assert visit.findings[0].seen == (
        f"ASCEND_HOME_PATH is CANN 9.0.0 ({HOME}), ASCEND_OPP_PATH is CANN 8.2.RC1 ({other}/opp)"
    )


def test_a_toolkit_of_the_other_processor(look):
    visit = look(f"$ rm {HOME}/aarch64-linux\n$ touch {HOME}/x86_64-linux/a\n$ cat {HOME}/version.cfg\n"
                 "toolkit_running_version=[7.7.0.0.1:9.0.0]")  # fmt: skip
    assert codes(visit) == [("error", "cann.architecture")]
    assert "is for x86_64; this machine is aarch64" in visit.findings[0].seen


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ("$ cat {home}/compiler/version.info\nVersion=7.2.0.1.238\nversion_dir=8.0.RC1", "8.0.RC1"),
        ("$ cat {home}/compiler/version.info\nVersion=8.5.0", "8.5.0"),
        ("$ cat {home}/version.cfg\n# version\ntoolkit_running_version=[7.7.0.0.1:8.2.RC1]", "8.2.RC1"),
        ("$ cat {home}/version.cfg\ntoolkit_installed_version=[8.3.RC1]", "8.3.RC1"),
        ("$ touch {home}/nothing", None),
    ],
)
def test_versions_are_read_where_releases_keep_them(look, files, version):
    visit = look(f"$ rm {HOME}/aarch64-linux\n{files.format(home=HOME)}")
    assert visit.facts.cann == version


def test_p26_operators_of_another_version_than_the_toolkit(look):
    """P26: an operator is missing."""
    visit = look(f"$ cat {HOME}/aarch64-linux/ascend_ops_install.info\nversion=8.5.0")
    assert codes(visit) == [("error", "cann.operators")]
    visit = look(f"$ rm {HOME}/aarch64-linux/ascend_ops_install.info")
    assert codes(visit) == [("warning", "cann.operators")]


@pytest.mark.parametrize(
    ("driver", "fine"), [("26.0.rc1", True), ("26.1.0", True), ("25.5.0", False), ("24.1.rc3.7", False)]
)
def test_p26_a_driver_older_than_cann_s_is_wrong_and_a_newer_one_is_not(look, driver, fine):
    """P26: MindSpore, CANN and the driver do not fit."""
    visit = look(driver=driver)
    assert codes(visit) == ([] if fine else [("error", "cann.driver")])


def test_p26_the_newest_cann_that_the_driver_carries_is_named(look):
    visit = look(driver="25.5.0")
    assert "CANN 8.5.0 with MindSpore 2.7.2" in visit.findings[0].mend
