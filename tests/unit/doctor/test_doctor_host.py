"""The machine as the layers see it: commands that hang, crash or are not there; files that cannot be read."""

from __future__ import annotations

import os
import stat
import subprocess
import time

import pytest

from msllm.doctor.host import TAG, Host


@pytest.fixture
def host(tmp_path):
    """A host with a PATH of its own and the usual one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return Host(root=tmp_path, environment={"PATH": f"{folder}:/usr/bin:/bin", "KEPT": "1", "LANG": "zh_CN.GB18030"})


def script(host: Host, name: str, body: str) -> None:
    path = host.root / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_output_exit_code_and_environment(host):
    script(host, "tool", 'echo "$1 $KEPT $LC_ALL $ADDED"; echo bad >&2; exit 3')
    done = host.run(["tool", "x"], environment={"ADDED": "2"})
    assert (done.code, done.out, done.err) == (3, "x 1 C 2\n", "bad\n")
    assert done.why() == "exit code 3: x 1 C 2"
    assert host.ran == [done]


def test_a_variable_can_be_taken_away(host):
    script(host, "tool", 'echo "[$KEPT]"')
    assert host.run(["tool"], environment={"KEPT": None}).out == "[]\n"


def test_a_command_that_is_not_there(host):
    done = host.run(["no-such-tool"])
    assert (done.code, done.why()) == (None, "there is no command no-such-tool")


def test_a_command_that_cannot_be_started(host):
    path = host.root / "bin" / "tool"
    path.write_bytes(b"\x7fELFgarbage")
    path.chmod(0o755)
    assert "Exec format error" in host.run(["tool"]).why()


def test_a_crash_is_named_by_its_signal(host):
    script(host, "tool", "echo before >&2; kill -SEGV $$")
    done = host.run(["tool"])
    assert done.code == -11
    assert done.why() == "ended by SIGSEGV: before"


def test_output_that_is_no_text_and_has_no_end(host):
    script(host, "tool", "printf '\\377\\376'; head -c 3000000 /dev/zero; printf 'the end'")
    out = host.run(["tool"]).out
    assert (1 << 20) <= len(out) < (1 << 20) + 10
    assert out.startswith("\ufffd\ufffd") and out.endswith("the end")


def test_a_hanging_command_ends_with_all_that_it_started_in_sessions_of_their_own(host):
    """As the workers of msrun are."""
    script(host, "tool", "setsid sleep 600 & echo $!; echo started; wait")
    before = time.monotonic()
    done = host.run(["tool"], timeout=0.5)
    assert done.problem == "no answer in 0.5 s"
    assert "started" in done.out
    assert time.monotonic() - before < 60
    assert with_tag() == []


def test_what_a_command_leaves_behind_is_ended(host):
    script(host, "tool", "setsid sleep 600 >/dev/null 2>&1 & exit 0")
    assert host.run(["tool"]).ok
    assert with_tag() == []


def with_tag() -> list[str]:
    """Processes of this test's commands that still run."""
    listed = subprocess.run(["ps", "-eo", "pid="], capture_output=True, text=True).stdout.split()
    found = []
    for pid in listed:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(f"{TAG}=".encode()) for word in words) and b"LANG=zh_CN.GB18030" in words:
            found.append(pid)
    return found


def test_tools_of_the_driver_are_found_beside_the_path(host):
    folder = host.root / "usr/local/Ascend/driver/tools"
    folder.mkdir(parents=True)
    (folder / "hccn_tool").write_text("#!/bin/sh\necho here\n")
    assert host.which("hccn_tool") is None, "it cannot be run"
    (folder / "hccn_tool").chmod(0o755)
    assert host.run(["hccn_tool"]).out == "here\n"


def test_files(host):
    (host.root / "etc").mkdir()
    (host.root / "etc/hccn.conf").write_bytes(b"address_0=\xff\n")
    assert host.read("/etc/hccn.conf") == "address_0=�\n"
    assert host.read("/etc/absent") is None
    assert host.why_unreadable("/etc/absent") == "No such file or directory"
    assert host.read("/etc") is None
    assert host.why_unreadable("/etc") == "Is a directory"
    assert host.names("/etc", "*.conf") == ["hccn.conf"]
    assert host.names("/nowhere", "*") == []
    assert not host.exists("/etc/hccn.conf/below-a-file")
    assert not host.may_use("/nowhere") or host.uid == 0


def test_a_pipe_is_not_waited_for(host):
    os.mkfifo(host.root / "hccn.conf")
    assert host.read("/hccn.conf") is None
    assert host.why_unreadable("/hccn.conf") == "Is no regular file"


def test_whose_a_device_is(host):
    path = host.root / "davinci0"
    path.touch()
    owner, group = os.stat(path).st_uid, os.stat(path).st_gid
    other = Host(root=host.root, environment={}, uid=owner + 77, groups=frozenset({group + 77}))
    member = Host(root=host.root, environment={}, uid=owner + 77, groups=frozenset({group}))
    for mode, allowed in (
        (0o600, (False, False)),
        (0o660, (False, True)),
        (0o666, (True, True)),
        (0o444, (False, False)),
    ):
        path.chmod(mode)
        assert (other.may_use("/davinci0"), member.may_use("/davinci0")) == allowed, stat.filemode(mode)
