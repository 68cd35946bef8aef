"""A bundle: everything that was seen, nothing that names a machine or a person."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import played

from msllm.doctor.anonymous import MASK
from msllm.doctor.bundle import make_bundle, read_bundle
from msllm.doctor.examine import Report, examine
from msllm.doctor.host import Host, Ran
from msllm.doctor.visit import Facts, Request
from msllm.errors import InputError

PRIVATE = (
    "29.1.112",
    "29.1.0.1",
    "10.21.4",
    "172.17.0.1",
    "fd21:4::11",
    "ascend-node",
    "cluster.example",
    "liwei",
    "zhangmin",
)


@pytest.fixture(scope="module")
def stale(tmp_path_factory):
    """The server with the stale table, examined in all layers."""
    extra = "$ export MS_SCHED_HOST=ascend-node-12\n$ export HCCL_IF_IP=10.21.4.11\n$ export ASCEND_TOKEN=x\n$ export API_PASS=y"
    host = played(tmp_path_factory.mktemp("stale") / "server", "stale_table_910b3", extra).host()
    request = Request(nodes=("liwei@ascend-node-13",), everything=True, quick=True)
    return host, request, examine(host, request)


def test_nothing_private_is_in_a_bundle(stale):
    text = json.dumps(make_bundle(*stale))
    assert [word for word in PRIVATE if word.lower() in text.lower()] == []
    assert re.search(r"/home/user-\w{10}/rank_table.json", text)


def test_a_bundle_holds_all_that_was_seen(stale):
    host, request, report = stale
    bundle = make_bundle(host, request, report)
    assert len(bundle["commands"]) == len(host.ran)
    assert any(
        command["command"][:2] == ["npu-smi", "info"] and "910B3" in command["stdout"] for command in bundle["commands"]
    )
    assert bundle["files"]["/usr/local/Ascend/driver/version.info"].startswith("Version=26.0.rc1")
    assert "address_0=ip-" in bundle["files"]["/etc/hccn.conf"]
    assert [finding["code"] for finding in bundle["findings"]][0] == "network.stale"
    assert {layer["name"]: layer["status"] for layer in bundle["layers"]}["devices"] == "passed"
    assert bundle["facts"]["driver"] == "26.0.rc1"
    assert bundle["facts"]["firmware"] == "7.9.0.1.205"


def test_variables_that_may_hold_secrets_are_left_out(stale):
    environment = make_bundle(*stale)["environment"]
    assert "ASCEND_HOME_PATH" in environment
    assert {"ASCEND_TOKEN", "API_PASS", "USER", "HOME"} & set(environment) == set()
    assert re.fullmatch(r"host-\w{10}", environment["MS_SCHED_HOST"])
    assert re.fullmatch(r"ip-\w{10}", environment["HCCL_IF_IP"])


def test_the_same_address_has_the_same_mask_everywhere(stale):
    bundle = make_bundle(*stale)
    own = bundle["environment"]["HCCL_IF_IP"]
    assert own in bundle["files"]["/etc/hosts"]
    assert own in bundle["findings"][0]["seen"], "the server_id of the table"
    assert bundle["facts"]["device_ips"][0] in bundle["files"]["/etc/hccn.conf"]


def test_masks_of_nodes_agree_where_they_share_a_key(stale):
    one, two, other = (make_bundle(*stale, key=key)["facts"] for key in ("word", "word", "another"))
    assert one["device_ips"] == two["device_ips"] != other["device_ips"]
    assert one["rank_table_sha256"] == two["rank_table_sha256"] != other["rank_table_sha256"]
    assert re.fullmatch(r"table-\w{10}", one["rank_table_sha256"])
    assert make_bundle(*stale)["facts"]["device_ips"] != make_bundle(*stale)["facts"]["device_ips"], "a random key"


def test_a_version_of_four_numbers_is_no_address(tmp_path):
    host = Host(root=tmp_path, environment={})
    report = Report(facts=Facts(driver="24.1.0.3", firmware="7.5.0.3"))
    host.ran.append(Ran(("npu-smi", "info"), 0, "npu-smi 24.1.0.3 Version: 24.1.0.3 at 24.1.0.4"))
    bundle = make_bundle(host, Request(), report)
    assert (bundle["facts"]["driver"], bundle["facts"]["firmware"]) == ("24.1.0.3", "7.5.0.3")
    assert re.fullmatch(r"npu-smi 24.1.0.3 Version: 24.1.0.3 at ip-\w{10}", bundle["commands"][0]["stdout"])


def test_a_user_named_like_one_of_our_words_changes_none_of_them(tmp_path):
    host = Host(root=tmp_path, environment={}, user="error", name="passed")
    report = examine(host, Request(quick=True, everything=True, folder=tmp_path))
    bundle = make_bundle(host, Request(), report)
    assert {layer["status"] for layer in bundle["layers"]} <= {"passed", "failed", "not here", "not looked at"}


def test_variables_and_outputs_that_are_no_text(tmp_path):
    host = Host(root=tmp_path, environment={"MS_X": "a\udcff"}, name="n\udcff")
    json.dumps(make_bundle(host, Request(), Report()), ensure_ascii=False).encode()


NAMES = st.from_regex(r"[a-z][a-z0-9-]{2,12}[a-z0-9]", fullmatch=True).filter(lambda name: name not in ("root", "home"))
V4 = st.ip_addresses(v=4).map(str).filter(lambda ip: not ip.startswith(("127.", "255.", "0.0.0.0")))
V6 = st.ip_addresses(v=6).map(str).filter(lambda ip: ip not in ("::", "::1"))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, NAMES, V4, V6)
def test_names_and_addresses_of_any_machine_do_not_leak(tmp_path, name, user, four, six):
    host = Host(root=tmp_path, environment={"USER": user, "HOME": f"/home/{user}", "MS_SCHED_HOST": name}, name=name)
    said = f"{name} {user} {four} {six}\n{user}@{name}:{four}/{six} /home/{user}/{name}.1"
    host.ran.append(Ran((name, user), 0, said, said))
    host.texts[f"/home/{user}/{four}.1"] = said
    bundle = make_bundle(host, Request(nodes=(name,)), Report())
    command = bundle["commands"][0]
    seen = [*command["command"], command["stdout"], command["stderr"], *bundle["files"], *bundle["files"].values(),
            *bundle["environment"].values()]  # fmt: skip
    left = MASK.sub("", " ".join(seen))
    assert [secret for secret in (name, user, four, six) if secret in left] == []


def test_a_bundle_is_read_again(stale, tmp_path):
    path = tmp_path / "node.json"
    path.write_text(json.dumps(make_bundle(*stale)))
    assert read_bundle(path)["facts"]["cann"] == "9.0.0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read this bundle: No such file or directory"),
        ("", "is no bundle"),
        ("[]", "is no bundle"),
        ('{"facts": {}}', "is no bundle"),
        ("[" * 100_000, "is no bundle"),
        ('{"msllm_doctor_bundle": 2}', "is a bundle of format 2; this msllm reads format 1"),
        ('{"msllm_doctor_bundle": 1, "facts": []}', "is a damaged bundle"),
    ],
)
def test_what_is_no_bundle(tmp_path, content, message):
    path = tmp_path / "node.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        read_bundle(path)
