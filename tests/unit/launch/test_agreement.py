"""What must be the same on all nodes."""

from __future__ import annotations

from pathlib import Path

from msllm.launch.agreement import Hello, disagreements, mark_of, versions

VERSIONS = {"python": "3.11.9", "mindspore": "2.9.0"}


def hello(node: int, host: str | None = None, **fields) -> Hello:
    return Hello(node, host or f"host{node}", **{"versions": VERSIONS, "job": {"ranks": 2}, **fields})


def test_equal_nodes_are_one_job():
    assert disagreements([hello(0), hello(1)]) == []


def test_p26_versions_that_differ_between_nodes_are_named_before_anything_starts():
    other = {"python": "3.11.9", "mindspore": "2.8.0", "CANN": "8.5.0"}
    assert disagreements([hello(0), hello(1, versions=other)]) == [
        "node 1 (host1) has mindspore 2.8.0, node 0 (host0) has 2.9.0; install the same on all nodes",
        "node 1 (host1) has CANN 8.5.0, node 0 (host0) has none; install the same on all nodes",
    ]


def test_two_servers_of_one_name_are_refused():
    [found] = disagreements([hello(0, "node"), hello(1, "node")])
    assert found.startswith(
        "nodes 0 and 1 are both called node: MindSpore counts the devices of a server by its host name"
    )


def test_another_configuration_is_named_by_its_keys():
    other = {f"training.key{number}": number for number in range(6)}
    found = disagreements([hello(0), hello(1, job={"ranks": 2, **other})])
    assert found[0] == (
        "node 1 (host1) was started with training.key0 0, node 0 (host0) with None; give all nodes the same configuration"
    )
    assert found[-1] == "node 1 (host1) differs from node 0 (host0) in 2 more values"


def test_a_folder_that_nodes_do_not_share_is_told(tmp_path: Path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here, there = (mark_of(tmp_path / name) for name in ("here", "there"))
    assert here == mark_of(tmp_path / "here") != there
    assert [path.name for path in (tmp_path / "here").iterdir()] == [".folder"]
    [found] = disagreements([hello(0, folder=here), hello(1, folder=there)])
    assert found.startswith("node 1 (host1) sees another folder under the name of --output than node 0 (host0)")
    assert disagreements([hello(0, folder=here), hello(1, folder=here)]) == []


def test_what_each_node_has_found_by_itself_comes_with_its_name():
    assert disagreements([hello(0), hello(1, problems=("no data here",))]) == ["node 1 (host1): no data here"]
    assert disagreements([hello(0, problems=("no data here",))]) == ["no data here"]
    assert len(disagreements([hello(0), hello(1, job={}, problems=("run.yaml:3: unknown key",))])) == 1


def test_versions_of_cann_and_driver_are_read_where_they_are_installed(tmp_path: Path):
    cann = tmp_path / "opt/cann/compiler/version.info"
    driver = tmp_path / "usr/local/Ascend/driver/version.info"
    for file, text in ((cann, "Version=9.0.0\nversion_dir=x\n"), (driver, "Version=26.0.rc1\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    found = versions({"ASCEND_TOOLKIT_HOME": "/opt/cann"}, tmp_path)
    assert (found["CANN"], found["driver"]) == ("9.0.0", "26.0.rc1")
    assert "CANN" not in versions({}, tmp_path / "nothing")
    assert found["mindspore"][0].isdigit()


def test_a_hello_survives_its_way():
    sent = hello(1, problems=("a",), folder="x")
    assert Hello.from_message(sent.to_message(), "10.0.0.2") == hello(
        1, address="10.0.0.2", problems=("a",), folder="x"
    )
