"""Layer 3: Python, MindSpore and its neighbours."""

from __future__ import annotations

import pytest
from recorded import SITE

from msllm.doctor.packages import elf_machine, look_at_packages
from msllm.doctor.visit import Facts, Visit

HEALTHY = "healthy_910b3"


def package(name: str, version: str) -> str:
    return (
        f"$ cat {SITE}/{name}-{version}.dist-info/METADATA\nMetadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )


def instead(name: str, old: str, new: str) -> str:
    return f"$ rm {SITE}/{name}-{old}.dist-info\n{package(name, new)}"


@pytest.fixture
def look(server):
    """The layer's visit."""

    def run(*transcripts: str, cann: str | None = "9.0.0", **host: object) -> Visit:
        visit = Visit(server(HEALTHY, *transcripts).host(**host), facts=Facts(cann=cann))
        assert look_at_packages(visit)
        return visit

    return run


def codes(visit: Visit) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in visit.findings]


def test_the_pinned_pair_is_fine(look):
    assert codes(look()) == []


@pytest.mark.parametrize(
    ("version", "fine"), [((3, 9, 18), False), ((3, 10, 0), True), ((3, 12, 7), True), ((3, 13, 1), False)]
)
def test_pythons_for_which_there_are_wheels(look, version, fine):
    visit = look(python_version=version)
    assert codes(visit) == ([] if fine else [("error", "packages.python")])


def test_a_python_without_mindspore(look):
    visit = look(f"$ rm {SITE}/mindspore-2.9.0.dist-info")
    assert codes(visit) == [("error", "packages.missing")]
    assert 'pip install "mindspore==2.9.0" "mindformers==1.9.0"' in visit.findings[0].mend


def test_the_wheel_of_pypi_on_aarch64_holds_x86_objects(look):
    visit = look(f"$ elf x86_64 {SITE}/mindspore/_c_expression.cpython-311-aarch64-linux-gnu.so")
    assert codes(visit) == [("error", "packages.architecture")]
    assert visit.findings[0].seen.startswith("mindspore holds objects for x86_64 ")
    assert "mindspore.cn/install" in visit.findings[0].mend


@pytest.mark.parametrize(
    "removed", [f"{SITE}/mindspore", f"{SITE}/mindspore/_c_expression.cpython-311-aarch64-linux-gnu.so"]
)
def test_a_mindspore_of_which_only_the_registration_is_left(look, removed):
    assert codes(look(f"$ rm {removed}")) == [("error", "packages.damaged")]


@pytest.mark.parametrize(("version", "fine"), [("1.26.4", True), ("2.0.0", False), ("2.1.3", False)])
def test_numpy_2_is_refused(look, version, fine):
    visit = look(instead("numpy", "1.26.4", version))
    assert codes(visit) == ([] if fine else [("error", "packages.numpy")])


def test_no_numpy(look):
    assert codes(look(f"$ rm {SITE}/numpy-1.26.4.dist-info")) == [("error", "packages.numpy")]


def test_p26_a_mindformers_of_another_mindspore(look):
    """P26: fails at the import."""
    visit = look(instead("mindformers", "1.9.0", "1.7.0"))
    assert codes(visit) == [("error", "packages.pair")]
    assert "mindspore 2.9.0 goes with mindformers 1.9.0" in visit.findings[0].seen


def test_msllm_runs_without_mindformers(look):
    assert codes(look(f"$ rm {SITE}/mindformers-1.9.0.dist-info")) == [("warning", "packages.missing")]


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("2.7.0", [("error", "packages.pair"), ("error", "packages.mindspore"), ("error", "packages.cann")]),
        ("2.10.0", [("warning", "packages.mindspore")]),
        ("2.11.1", [("warning", "packages.mindspore")]),
        ("2.12.0", [("error", "packages.mindspore")]),
    ],
)
def test_other_versions_of_mindspore(look, version, found):
    assert codes(look(instead("mindspore", "2.9.0", version))) == found


@pytest.mark.parametrize(
    ("cann", "found"),
    [(None, []), ("9.0.1", []), ("8.5.0", [("warning", "packages.cann")]), ("8.2.RC1", [("warning", "packages.cann")]),
     ("8.0.RC3", [("error", "packages.cann")]), ("9.1.0", [("error", "packages.cann")])],
)  # fmt: skip
def test_p26_the_cann_of_a_mindspore(look, cann, found):
    """P26: MindSpore starts on some CANN without a warning, and was released for one."""
    assert codes(look(cann=cann)) == found


def test_registrations_that_were_spoilt_are_passed_over(server):
    made = server(HEALTHY)
    for name, content in (("empty", b""), ("bytes", b"Name: \xff\xfe\nVersion: 1\n"), ("half", b"Name: numpy\n")):
        made.file(f"{SITE}/{name}-1.dist-info/METADATA").write_bytes(content)
    made.file(f"{SITE}/nothing-1.dist-info/RECORD").touch()
    visit = Visit(made.host(), facts=Facts())
    assert look_at_packages(visit)
    assert codes(visit) == []


def test_two_packages_that_write_the_same_files(look):
    visit = look(package("mindspore_ascend", "2.0.0"))
    assert codes(visit) == [("error", "packages.twice")]
    assert "pip uninstall -y mindspore mindspore-ascend" in visit.findings[0].mend


def test_machines_of_shared_objects(tmp_path):
    file = tmp_path / "a.so"
    assert elf_machine(file) is None
    for head, machine in (
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00", "aarch64"),
        (b"\x7fELF\x02\x02\x01" + bytes(9) + b"\x00\x03\x00\xb7", "aarch64"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x15\x00", "ELF machine 21"),
        (b"\x7fELF\x02\x01", None),
        (b"MZ" + bytes(30), None),
    ):
        file.write_bytes(head)
        assert elf_machine(file) == machine
