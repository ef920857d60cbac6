"""By which names a server with `secure` goes, and what it writes for clients."""

import socket
from pathlib import Path

import pytest

from magnetar.base.settings import load_settings
from magnetar.base.settings_network import NetworkSettings
from magnetar.broker.cluster.model import Endpoint
from magnetar.server.security import client_files, own_addresses, server_names

HERE = ["localhost", "127.0.0.1", "::1"]


def network(*assignments: str) -> NetworkSettings:
    return load_settings(assignments=["secure=true", *assignments]).network


@pytest.mark.parametrize(
    ("assignments", "more"),
    [
        ((), []),
        (("host=10.0.0.5",), ["10.0.0.5"]),
        (("host=Kafka.Example.com.",), ["kafka.example.com"]),
        (("advertised.host=a.example.com",), ["a.example.com"]),
        (("advertised.listeners=SASL_SSL://b.example.com:19092",), ["b.example.com"]),
        (("pulsar.advertised.url=pulsar://c.example.com",), ["c.example.com"]),
        (("advertisedListeners=in:pulsar+ssl://e.example.com:6651",), ["e.example.com"]),
        (("http.allowed.hosts=d.example.com,*",), ["d.example.com"]),
    ],
)
def test_its_names_are_those_that_clients_are_told(assignments: tuple[str, ...], more: list[str]) -> None:
    assert server_names(network(*assignments)) == [*HERE, *more]


def test_on_every_address_they_are_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    names = server_names(network("host="))
    assert names[:4] == [*HERE, "box"]
    assert set(names) >= set(own_addresses())


def test_the_machines_addresses_are_those_of_its_interfaces() -> None:
    found = set(own_addresses())
    assert "127.0.0.1" in found
    assert not [one for one in found if one.startswith("fe80")]


def test_files_name_the_server_as_it_is_reached_and_are_plain_ascii() -> None:
    folder = Path("/data \\ ü 😀/security")
    kafka = [Endpoint("", 9092), Endpoint("::1", 9093)]
    files = client_files(folder, "TOKEN", kafka, Endpoint("a.example.com", 6651), Endpoint("", 8443))
    properties = files["client.properties"]
    assert "bootstrap.servers=localhost:9092,[::1]:9093\n" in properties
    assert 'required username="admin" password="token:TOKEN";\n' in properties
    assert "ssl.truststore.location=/data \\\\ \\u00fc \\ud83d\\ude00/security/ca.pem\n" in properties
    conf = files["client.conf"]
    assert "brokerServiceUrl=pulsar+ssl://a.example.com:6651/\n" in conf
    assert "webServiceUrl=https://localhost:8443/\n" in conf
    assert "authParams=file:///data%20%5C%20%C3%BC%20%F0%9F%98%80/security/admin.token\n" in conf
    assert all(files[name].isascii() for name in ("client.properties", "client.conf"))
    assert [name for name, text in files.items() if "TOKEN" in text] == ["client.properties"]
    assert "token" not in files["worker.toml"]  # it has no rights: its queries ask as owners of pipelines
