"""Where a server listens: on this machine only, until the operator says otherwise for all of its ports."""

import http.client
import json
import socket
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.server.listeners import bind
from magnetar.testing.server import MagnetarProcess, free_ports
from magnetar.wire.kafka.messages.metadata import MetadataRequest

from .wire import Wire

WARNING = "listening outside of loopback"


def _sockets_of(server: MagnetarProcess) -> set[tuple[str, int]]:
    """(address, port) of everything that the server's process listens on, as the kernel knows it."""
    inodes = set()
    for entry in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{server.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw, port = fields[1].split(":")
                words = [bytes.fromhex(raw[at : at + 8])[::-1] for at in range(0, len(raw), 8)]
                found.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def test_every_listener_is_on_loopback_when_nothing_is_said() -> None:
    with MagnetarProcess(host=None) as server:
        addresses = {address for address, _ in _sockets_of(server)}
        assert addresses <= {"127.0.0.1", "::1"}
        assert "127.0.0.1" in addresses
        assert WARNING not in server.log
        with Wire(server.ports[0]) as wire:
            told = wire.ask("metadata", 9, MetadataRequest(topics=[]))
            assert {(one.host, one.port) for one in told.brokers} == {("127.0.0.1", server.ports[0])}
        connection = http.client.HTTPConnection("localhost", server.http_port, timeout=10)
        connection.request("GET", "/admin/v2/clusters")
        assert connection.getresponse().status == 200
        connection.close()


def test_listeners_on_loopback_keep_pulsar_and_http_there() -> None:
    """`listeners=PLAINTEXT://127.0.0.1:...` left Pulsar and HTTP on 0.0.0.0 and [::]."""
    port = free_ports(1)[0]
    with MagnetarProcess(host=None, settings={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as server:
        assert {address for address, _ in _sockets_of(server)} == {"127.0.0.1"}
        assert WARNING not in server.log


@pytest.mark.parametrize("says", ["host", "listeners"])
def test_listening_outside_of_loopback_is_warned_of_once(says: str) -> None:
    port = free_ports(1)[0]
    settings = {"listeners": f"PLAINTEXT://0.0.0.0:{port}"} if says == "listeners" else {}
    with MagnetarProcess(host="0.0.0.0" if says == "host" else None, settings=settings) as server:
        assert "0.0.0.0" in {address for address, _ in _sockets_of(server)}
        warnings = [line for line in server.log.splitlines() if WARNING in line]
        assert len(warnings) == 1, json.dumps(warnings)
        for listening in (
            port if says == "listeners" else server.ports[0],
            server.pulsar_port,
            server.http_port,
        ):
            assert f"0.0.0.0:{listening}" in warnings[0]


def test_localhost_is_both_loopback_addresses_whatever_the_table_of_hosts_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    real = socket.getaddrinfo

    def getaddrinfo(name: bytes | None, *args: object, **kwargs: object) -> object:
        asked.append(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    sockets = bind("localhost", 0)
    try:
        assert asked == [b"127.0.0.1", b"::1"]
        assert len({one.getsockname()[1] for one in sockets}) == 1
        assert {one.getsockname()[0] for one in sockets} <= {"127.0.0.1", "::1"}
    finally:
        for one in sockets:
            one.close()


def _asked_as(server: MagnetarProcess, host: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=10)
    try:
        connection.request("GET", "/admin/v2/clusters", headers={"Host": host, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_http_port_answers_to_the_names_that_the_server_was_given() -> None:
    """Settings, advertised names and the Host of a page whose name was made to resolve to this machine."""
    port = free_ports(1)[0]
    settings = {
        "http.allowed.hosts": "inside, other.example.com",
        "http.allowed.origins": "https://console.example.com",
        "advertised.listeners": f"PLAINTEXT://kafka.example.com:{port}",
        "pulsar.advertised.url": "pulsar://pulsar.example.com",
    }
    with MagnetarProcess(settings=settings) as server:
        for host in (
            "inside",
            "other.example.com:80",
            "kafka.example.com",
            "pulsar.example.com",
            "localhost",
        ):
            assert _asked_as(server, host) == 200, host
        for host in ("evil.example", "example.com", socket.gethostname()):
            assert _asked_as(server, host) == 403, host
        assert _asked_as(server, "localhost", Origin="https://console.example.com") == 200
        assert _asked_as(server, "localhost", Origin="https://other.example.com") == 403


def test_a_host_that_no_name_can_be_is_refused_in_a_sentence() -> None:
    for host in ("a" * 64, "bad..name"):
        with pytest.raises(ConfigError, match=rf"^cannot listen on {host}: no address for this name"):
            bind(host, 0)
