"""Ports and addresses of a node, and the messages between launchers."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msllm.launch.agreement import Hello
from msllm.launch.channel import Channel, Closed
from msllm.launch.conductor import Limits
from msllm.launch.coordinator import Coordinator
from msllm.launch.network import (
    free_port,
    hccl_port_problems,
    is_local,
    listen,
    local_addresses,
    port_problems,
    resolve,
)


def test_an_address_of_another_host_is_told():
    [found] = port_problems("192.0.2.1", {"--master-port": 8118, "--control-port": 8119})
    assert str(found).startswith("--master-addr 192.0.2.1 is no address of this host, which has ")
    assert "node 0 must be the host of --master-addr" in str(found)


def test_a_free_port_is_no_problem():
    assert list(port_problems("127.0.0.1", {"--master-port": free_port()})) == []


def test_p28_ports_that_hccl_wants_and_others_have_are_named():
    used = {60003: 77, 60004: 77, 60020: 5}
    [found] = hccl_port_problems({}, lambda: used)
    assert str(found).startswith("port 60003, 60004 is in use by process 77, and HCCL listens on 60000 to 60015")
    assert "HCCL_HOST_SOCKET_PORT_RANGE to auto" in str(found)
    assert list(hccl_port_problems({"HCCL_IF_BASE_PORT": "61000"}, lambda: used)) == []
    assert list(hccl_port_problems({"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}, lambda: used)) == []
    assert isinstance(list(hccl_port_problems({})), list)


def test_addresses():
    assert resolve("127.0.0.1") == "127.0.0.1" and resolve("[::1]") == "::1"
    assert "127.0.0.1" in local_addresses()
    assert is_local("127.0.1.1") and not is_local("192.0.2.1")
    with pytest.raises(ValueError, match="--master-addr no such host: this name has no address here"):
        resolve("no such host")


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    yield Channel(left), right
    left.close()
    right.close()


def test_messages_arrive_whole_however_they_are_cut(pair):
    channel, other = pair
    for part in (b'{"type": "a"}\n{"ty', b'pe": "b"}\n'):
        other.sendall(part)
        found = channel.receive(1.0)
    assert found == [{"type": "b"}]
    assert channel.receive(0.0) == []
    other.close()
    with pytest.raises(Closed, match="the connection was closed"):
        channel.receive(1.0)


@given(st.binary(min_size=1, max_size=200))
def test_what_no_launcher_would_send_is_hung_up_on(data: bytes):
    left, right = socket.socketpair()
    with left, right:
        right.sendall(data + b"\n")
        with pytest.raises(Closed, match="this is no launcher"):
            Channel(left).receive(1.0)


def test_a_coordinator_survives_strangers_and_turns_late_nodes_away():
    port = free_port()
    listener = listen("127.0.0.1", port)
    coordinator = Coordinator(listener, 1, 1, Limits(), lambda text: None, lambda view: None, lambda: None)

    def connect() -> Channel:
        return Channel(socket.create_connection(("127.0.0.1", port)))

    def answer(channel: Channel, kind: str) -> dict:
        while True:
            for message in channel.receive(5.0):
                if message["type"] == kind:
                    return message

    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b'{"type": "hello"}\n', b'{"type": "hello", "node": "x"}\n', b""):
        stranger = connect()
        stranger.socket.sendall(rubbish)
        stranger.close()
    node = connect()
    node.send(Hello(0, "host").to_message())
    answer(node, "start")
    late = connect()
    late.send(Hello(0, "other").to_message())
    assert answer(late, "end")["problems"] == [
        "the job has all its 1 nodes already, and node 0 (other, 127.0.0.1) is none of them"
    ]
    node.send({"type": "done"})
    assert answer(node, "end")["code"] == 0
    node.close()
    coordinator.join()
    assert not any(thread is coordinator._thread for thread in threading.enumerate())
