"""Which protocols a server speaks."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType

import pytest

from magnetar.base import plugins
from magnetar.base.errors import ConfigError
from magnetar.base.settings import load_settings
from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.broker.cluster.model import Endpoint, Node
from magnetar.protocols.door import DoorListener
from magnetar.server import doors
from magnetar.server.doors import Bound, load_doors, looked_up

INSTALLED = MappingProxyType(
    {
        name: EntryPoint(name, value, plugins.PROTOCOLS)
        for name, value in {
            "kafka": "magnetar.protocols.kafka.door:KafkaDoor",
            "pulsar": "magnetar.protocols.pulsar.door:PulsarDoor",
            "broken": "magnetar.nothing_there:Door",
        }.items()
    }
)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> Mapping[str, EntryPoint]:
        assert group == plugins.PROTOCOLS
        return INSTALLED

    monkeypatch.setattr(doors, "installed", installed)
    monkeypatch.setattr("magnetar.base.settings_names.installed", installed)


def names(*assignments: str) -> list[str]:
    return [door.name for door in load_doors(load_settings(assignments=assignments))]


def test_kafka_and_pulsar_are_always_spoken() -> None:
    assert names() == ["kafka", "pulsar"]
    assert names("messagingProtocols=kafka") == ["kafka", "pulsar"]  # as a KoP broker's file has it


def test_a_protocol_that_no_package_offers_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"no installed package offers the protocol 'mqtt'.*broken"):
        names("messagingProtocols=mqtt")


def test_a_protocol_that_cannot_be_loaded_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"the protocol 'broken' \(magnetar.nothing_there:Door\) cannot be"):
        names("messagingProtocols=kafka,broken")


def test_settings_of_an_installed_protocol_are_its_own_affair() -> None:
    settings = load_settings(assignments=["broken.port=7", "broken.a.b=c"])
    assert settings.door_options == {"broken": {"port": "7", "a.b": "c"}}
    with pytest.raises(ConfigError, match=r"unknown key 'mqtt\.port'"):
        load_settings(assignments=["mqtt.port=7"])


def listeners(*assignments: str) -> dict[str, DoorListener]:
    return {
        one.name: one
        for door in load_doors(load_settings(assignments=assignments))
        for one in door.listeners()
    }


def test_what_http_says_of_a_topics_place_is_where_pulsars_clients_connect() -> None:
    found = listeners()
    assert [name for name, one in found.items() if one.is_looked_up] == ["pulsar"]
    door = load_doors(load_settings())[1]
    node = Node(0, None)
    node.advertised |= {"a": Endpoint("plain", 1), "b": Endpoint("secret", 2), "c": Endpoint("other", 3)}
    pem = Material("ssl.keystore.location", None)
    tls = TlsSettings(pem, pem, None, ClientCertificates.NONE, ("TLSv1.3",))
    plain = Bound(door, DoorListener("a", "", 0, "x", is_looked_up=True), [])
    secret = Bound(door, DoorListener("b", "", 0, "x", tls=tls, is_looked_up=True), [])
    other = Bound(door, DoorListener("c", "", 0, "x"), [])
    assert looked_up([other, secret, plain], [node]) == (Endpoint("plain", 1), Endpoint("secret", 2))
    assert looked_up([other, plain], [node]) == (Endpoint("plain", 1), None)


def test_pulsars_listeners_ask_for_a_login_where_there_is_authentication(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    wanted = (
        "authenticationEnabled=true",
        "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        f"tokenSecretKey=file://{tmp_path}/key",
    )
    assert not listeners()["pulsar"].asks_for_login
    assert listeners(*wanted)["pulsar"].asks_for_login
