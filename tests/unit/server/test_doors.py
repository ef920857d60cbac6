"""Which protocols a server speaks."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from types import MappingProxyType

import pytest

from magnetar.base import plugins
from magnetar.base.errors import ConfigError
from magnetar.base.settings import load_settings
from magnetar.server import doors
from magnetar.server.doors import load_doors

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
