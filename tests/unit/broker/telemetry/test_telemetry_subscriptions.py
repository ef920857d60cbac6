"""Subscriptions to clients' metrics: what may be set, whom they are for, that they last."""

import asyncio
from collections.abc import Mapping

import pytest

from magnetar.base.config import ConfigSource
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange
from magnetar.broker.telemetry import subscriptions as module
from magnetar.broker.telemetry.model import TelemetryClient, Wanted
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions, shown
from magnetar.testing.metadata import MemoryMetadataStore

APP = TelemetryClient("app-1", "apache-kafka-java", "4.3.1", "10.0.0.1")
ID = bytes(range(16))
NOTHING = Wanted((), 300_000)


def configure(subscriptions: TelemetrySubscriptions, name: str, configs: Mapping[str, str]) -> None:
    changes = [ConfigChange(key, AlterOperation.SET, value) for key, value in configs.items()]
    asyncio.run(subscriptions.change(name, subscriptions.after(name, changes)))


@pytest.fixture
def subscriptions() -> TelemetrySubscriptions:
    return TelemetrySubscriptions(MemoryMetadataStore())


@pytest.mark.parametrize(
    ("match", "is_for"),
    [
        ("client_id=app-1", True),
        ("client_id=app", False),
        ("client_id=app-.*,client_software_name=apache-kafka-java,client_software_version=4\\.3.*", True),
        ("client_id=app-.*,client_software_name=librdkafka", False),
        (f"client_instance_id={shown(ID)}", True),
        ("client_source_address = 10\\.0\\..*", True),
        ("client_source_address=127.0.0.1", False),
    ],
)
def test_a_subscription_is_for_clients_that_all_of_its_patterns_match(
    subscriptions: TelemetrySubscriptions, match: str, is_for: bool
) -> None:
    configure(subscriptions, "s", {"metrics": "a.", "match": match, "interval.ms": "100"})
    assert subscriptions.wanted(APP, ID) == (Wanted(("a.",), 100) if is_for else NOTHING)


def test_a_client_is_asked_for_what_all_want_as_often_as_the_most_eager(
    subscriptions: TelemetrySubscriptions,
) -> None:
    assert subscriptions.wanted(APP, ID) == NOTHING
    configure(subscriptions, "one", {"metrics": "b.,a."})
    configure(subscriptions, "two", {"metrics": "c.,a.", "interval.ms": "5000"})
    assert subscriptions.wanted(APP, ID) == Wanted(("a.", "b.", "c."), 5000)
    configure(subscriptions, "three", {"metrics": "*", "interval.ms": "9000"})
    assert subscriptions.wanted(APP, ID) == Wanted(("*",), 5000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval.ms", "99"),
        ("interval.ms", "3600001"),
        ("interval.ms", "often"),
        ("match", "client_id"),
        ("match", "client_source_port=1"),
        ("match", "client_id=("),
        ("match", "client_id=a,client_id=b"),
        ("match", "client_id=" + "a" * (module.PATTERN_CHARS_MAX + 1)),
    ],
)
def test_what_cannot_be_is_refused(subscriptions: TelemetrySubscriptions, name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        configure(subscriptions, "s", {name: value})
    assert subscriptions.names == []


def test_a_subscription_needs_a_name_and_settings_that_are_known(
    subscriptions: TelemetrySubscriptions,
) -> None:
    with pytest.raises(InvalidConfigRequest):
        configure(subscriptions, "", {"metrics": "*"})
    with pytest.raises(InvalidConfigRequest):
        configure(subscriptions, "s", {"unknown": "*"})
    with pytest.raises(InvalidConfigRequest):
        subscriptions.after("s", [ConfigChange("interval.ms", AlterOperation.APPEND, "1000")])


def test_lists_grow_and_shrink(subscriptions: TelemetrySubscriptions) -> None:
    configure(subscriptions, "s", {"metrics": "a.,b."})
    after = subscriptions.after("s", [ConfigChange("metrics", AlterOperation.APPEND, "b.,c.")])
    assert after == {"metrics": "a.,b.,c."}
    after = subscriptions.after("s", [ConfigChange("metrics", AlterOperation.SUBTRACT, "a.,x.")])
    assert after == {"metrics": "b."}


def test_a_subscription_is_shown_with_its_own_settings_over_defaults(
    subscriptions: TelemetrySubscriptions,
) -> None:
    assert subscriptions.describe("s", None) == []
    configure(subscriptions, "s", {"metrics": "*"})
    found = {entry.name: (entry.value, entry.source) for entry in subscriptions.describe("s", None)}
    assert found == {
        "interval.ms": ("300000", ConfigSource.DEFAULT_CONFIG),
        "match": ("", ConfigSource.DEFAULT_CONFIG),
        "metrics": ("*", ConfigSource.CLIENT_METRICS_CONFIG),
    }
    assert [entry.name for entry in subscriptions.describe("s", ["match", "x"])] == ["match"]


def test_subscriptions_last_and_go_with_their_last_setting() -> None:
    metadata = MemoryMetadataStore()
    before = TelemetrySubscriptions(metadata)
    configure(before, "a/b", {"metrics": "*", "interval.ms": "1000"})
    after = TelemetrySubscriptions(metadata)
    asyncio.run(after.load())
    assert (after.names, after.wanted(APP, ID)) == (["a/b"], Wanted(("*",), 1000))
    changes = [
        ConfigChange(name, AlterOperation.DELETE, None) for name in ("metrics", "interval.ms", "match")
    ]
    asyncio.run(after.change("a/b", after.after("a/b", changes)))
    assert (after.names, after.wanted(APP, ID)) == ([], NOTHING)
    again = TelemetrySubscriptions(metadata)
    asyncio.run(again.load())
    assert again.names == []


def test_there_can_be_so_many_subscriptions_with_names_of_a_length(
    subscriptions: TelemetrySubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUBSCRIPTIONS_MAX", 2)
    with pytest.raises(InvalidConfigRequest):
        configure(subscriptions, "s" * (module.NAME_CHARS_MAX + 1), {"metrics": "*"})
    for name in ("a", "b"):
        configure(subscriptions, name, {"metrics": "*"})
    with pytest.raises(InvalidConfigRequest):
        configure(subscriptions, "c", {"metrics": "*"})
    configure(subscriptions, "a", {"metrics": "x."})
