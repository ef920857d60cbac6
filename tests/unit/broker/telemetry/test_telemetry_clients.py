"""Clients that push metrics: what they are told, when they may come, and what is kept of what they push."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from magnetar.broker.policy.model import AlterOperation, ConfigChange
from magnetar.broker.security.model import Principal
from magnetar.broker.telemetry import clients as module
from magnetar.broker.telemetry.clients import TelemetryClients
from magnetar.broker.telemetry.errors import (
    InvalidTelemetryRequest,
    TelemetryTooEarly,
    TelemetryTooLarge,
    UnknownTelemetrySubscription,
    UnsupportedTelemetryCompression,
)
from magnetar.broker.telemetry.model import (
    NO_INSTANCE,
    TELEMETRY_BYTES_MAX,
    Push,
    Subscribed,
    TelemetryClient,
    Wanted,
)
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions, shown
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.otlp import Point

APP = TelemetryClient("app", "a-client", "1.0", "10.0.0.1")
ANNS = APP._replace(owner=Principal("User", "ann"))
BOBS = APP._replace(owner=Principal("User", "bob"))
ID, OTHER = bytes([1] * 16), bytes([2] * 16)
INTERVAL_S = 10.0


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.subscriptions = TelemetrySubscriptions(MemoryMetadataStore())
        self.clients = TelemetryClients(self.subscriptions, self.clock)
        self.configure("all", {"metrics": "*", "interval.ms": str(int(INTERVAL_S * 1000))})

    def configure(self, name: str, configs: Mapping[str, str]) -> None:
        changes = [ConfigChange(key, AlterOperation.SET, value) for key, value in configs.items()]
        asyncio.run(self.subscriptions.change(name, self.subscriptions.after(name, changes)))

    def push(
        self,
        told: Subscribed,
        *,
        is_last: bool = False,
        compression: int = 0,
        size: int = 1,
        subscription_id: int | None = None,
    ) -> None:
        number = told.subscription_id if subscription_id is None else subscription_id
        push = Push(told.instance_id, number, is_last, compression, memoryview(bytes(size)))
        self.clients.admit(push, APP)

    def keep(self, instance_id: bytes, count: int, prefix: str = "m") -> None:
        self.clients.keep(
            instance_id, [Point(f"{prefix}{index}", (), float(index)) for index in range(count)]
        )

    def kept(self) -> list[tuple[tuple[str, str, str, str], float]]:
        return list(self.clients.numbers())


@pytest.fixture
def world() -> World:
    return World()


def test_a_client_without_an_id_gets_one_and_keeps_it(world: World) -> None:
    told = world.clients.subscribe(NO_INSTANCE, APP)
    assert told.instance_id != NO_INSTANCE
    assert told.wanted == Wanted(("*",), 10_000)
    world.clock.advance(INTERVAL_S)
    assert world.clients.subscribe(told.instance_id, APP) == told
    assert world.clients.subscribe(NO_INSTANCE, APP).instance_id != told.instance_id


def test_a_client_that_asks_again_within_its_interval_is_refused(world: World) -> None:
    world.clients.subscribe(ID, APP)
    world.clock.advance(INTERVAL_S - 0.001)
    with pytest.raises(TelemetryTooEarly):
        world.clients.subscribe(ID, APP)
    world.clock.advance(0.001)
    world.clients.subscribe(ID, APP)


def test_a_push_within_the_interval_is_refused_but_for_the_first_and_the_last(world: World) -> None:
    told = world.clients.subscribe(ID, APP)
    world.clock.advance(0.1)
    world.push(told)
    with pytest.raises(TelemetryTooEarly):
        world.push(told)
    with pytest.raises(TelemetryTooEarly):
        world.clients.subscribe(ID, APP)
    world.clock.advance(INTERVAL_S)
    world.push(told)
    world.push(told, is_last=True)
    world.push(told, is_last=True)  # it may not know whether the one before has come
    world.clock.advance(INTERVAL_S)
    with pytest.raises(InvalidTelemetryRequest):
        world.push(told)


def test_a_change_of_subscriptions_is_told_at_once(world: World) -> None:
    told = world.clients.subscribe(ID, APP)
    world.configure("all", {"metrics": "org.apache.kafka.producer."})
    with pytest.raises(UnknownTelemetrySubscription):
        world.push(told)
    world.clock.advance(0.001)
    again = world.clients.subscribe(ID, APP)
    assert again.wanted.metrics == ("org.apache.kafka.producer.",)
    assert again.subscription_id != told.subscription_id
    world.clock.advance(INTERVAL_S)
    world.push(again)


def test_a_client_that_was_refused_for_what_it_did_not_know_may_ask_at_once(world: World) -> None:
    told = world.clients.subscribe(ID, APP)
    refused: list[tuple[Callable[[], None], type[Exception]]] = [
        (lambda: world.push(told, subscription_id=told.subscription_id + 1), UnknownTelemetrySubscription),
        (lambda: world.push(told, compression=9), UnsupportedTelemetryCompression),
    ]
    for push, trouble in refused:
        world.clock.advance(INTERVAL_S)
        with pytest.raises(trouble):
            push()
        world.clock.advance(0.001)
        world.clients.subscribe(ID, APP)
        with pytest.raises(TelemetryTooEarly):
            world.clients.subscribe(ID, APP)
        with pytest.raises(TelemetryTooEarly):  # the next is due an interval after the one that was refused
            world.push(told)
        world.clock.advance(INTERVAL_S)
        with pytest.raises(trouble):
            push()
        with pytest.raises(TelemetryTooEarly):
            world.push(told)
        with pytest.raises(TelemetryTooEarly):  # it was refused once more since, for being early
            world.clients.subscribe(ID, APP)


def test_a_push_of_the_bytes_that_clients_are_told_is_taken_and_one_more_is_not(world: World) -> None:
    told = world.clients.subscribe(ID, APP)
    world.push(told, size=TELEMETRY_BYTES_MAX)
    world.clock.advance(INTERVAL_S)
    with pytest.raises(TelemetryTooLarge):
        world.push(told, size=TELEMETRY_BYTES_MAX + 1)


def test_a_push_without_an_id_is_refused(world: World) -> None:
    with pytest.raises(InvalidTelemetryRequest):
        world.push(Subscribed(NO_INSTANCE, 0, Wanted((), 1)))


def test_the_subscription_of_a_client_outlives_the_server_that_told_it(world: World) -> None:
    told = world.clients.subscribe(ID, APP)
    world.clients = TelemetryClients(world.subscriptions, world.clock)
    world.push(told)


def test_a_push_takes_the_place_of_the_one_before(world: World) -> None:
    world.clients.subscribe(ID, APP)
    world.keep(ID, 2, "old")
    world.clients.keep(ID, [Point("new", (("topic", "t"), ("partition", "0")), 3.0)])
    assert world.kept() == [(("new", "app", shown(ID), "topic=t,partition=0"), 3.0)]


def test_a_silent_client_is_forgotten_with_its_numbers(world: World) -> None:
    world.clients.subscribe(ID, APP)
    world.keep(ID, 1)
    world.clock.advance(module.KEPT_S_MIN)
    world.clients.subscribe(OTHER, APP)
    assert len(world.kept()) == 1
    world.clock.advance(INTERVAL_S + 1)
    world.clients.subscribe(NO_INSTANCE, APP)
    assert (world.kept(), len(world.clients)) == ([], 2)
    world.keep(ID, 1)
    assert world.kept() == [], "what was opened while its client was forgotten"


def test_a_forgotten_client_leaves_its_room_to_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 2)
    world.clients = TelemetryClients(world.subscriptions, world.clock)
    world.clients.subscribe(ID, APP)
    world.keep(ID, 2)
    world.clock.advance(module.KEPT_S_MIN + 1)
    world.clients.subscribe(OTHER, APP)
    world.keep(ID, 2)
    world.keep(OTHER, 2)
    assert len(world.kept()) == 2


def test_a_client_with_a_long_interval_is_known_for_three_of_them(world: World) -> None:
    world.configure("all", {"interval.ms": "60000"})
    world.clients.subscribe(ID, APP)
    world.clock.advance(180)
    world.clients.subscribe(OTHER, APP)
    assert len(world.clients) == 2
    world.clock.advance(11)
    world.clients.subscribe(NO_INSTANCE, APP)
    assert len(world.clients) == 2


def test_numbers_of_one_client_and_of_all_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 5)
    monkeypatch.setattr(module, "CLIENT_SERIES_MAX", 3)
    world.clients = TelemetryClients(world.subscriptions, world.clock)
    for instance_id in (ID, OTHER):
        world.clients.subscribe(instance_id, APP)
        world.keep(instance_id, 4)
    assert (len(world.kept()), world.clients.left_out) == (5, 3)
    world.keep(ID, 1)
    world.keep(OTHER, 3)
    assert len(world.kept()) == 4, "what a client gives up is room for others"


def test_texts_of_clients_are_cut(world: World) -> None:
    world.clients.subscribe(ID, APP._replace(client_id="c" * 1000))
    world.clients.keep(ID, [Point("m" * 1000, (("a", "v" * 1000),), 1.0)])
    ((labels, _),) = world.kept()
    assert list(map(len, labels)) == [
        module.NAME_CHARS_MAX,
        module.NAME_CHARS_MAX,
        22,
        module.ATTRIBUTES_CHARS_MAX,
    ]


def test_the_client_that_was_silent_for_longest_makes_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    world.clients = TelemetryClients(world.subscriptions, world.clock)
    for number in range(3):
        instance_id = bytes([number + 1] * 16)
        world.clients.subscribe(instance_id, APP)
        world.keep(instance_id, 1, f"of {number} ")
    assert len(world.clients) == 2
    assert [labels[0] for labels, _ in world.kept()] == ["of 1 0", "of 2 0"]
    world.clock.advance(INTERVAL_S)
    world.clients.subscribe(bytes([2] * 16), APP)
    world.clients.subscribe(bytes([4] * 16), APP)
    assert [labels[0] for labels, _ in world.kept()] == ["of 1 0"]


def test_clients_of_one_principal_do_not_push_those_of_others_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no right to ask: seventeen thousand questions of one client had the server forget all others."""
    monkeypatch.setattr(module, "CLIENTS_MAX", 8)
    monkeypatch.setattr(module, "SERIES_MAX", 8)
    world.clients = TelemetryClients(world.subscriptions, world.clock)
    world.clients.subscribe(ID, BOBS)
    world.keep(ID, 1, "of bob ")
    anns = [bytes([number] * 16) for number in range(10, 30)]
    for instance_id in anns:
        world.clients.subscribe(instance_id, ANNS)
        world.keep(instance_id, 2, "of ann ")
    assert len(world.clients) == 1 + 4, "half of what the others leave"
    names = [labels[0] for labels, _ in world.kept()]
    assert (names[0], len(names)) == ("of bob 0", 1 + 4)
    world.clients.subscribe(OTHER, BOBS)
    world.keep(OTHER, 2, "of bob ")
    assert len(world.kept()) == 1 + 4 + 1, "there is room for others still"
    world.clock.advance(INTERVAL_S)
    world.clients.subscribe(anns[-4], ANNS)
    with pytest.raises(TelemetryTooEarly):  # it is known still, and the one after it is not
        world.clients.subscribe(anns[-4], ANNS)
    world.clients.subscribe(anns[0], ANNS)
    world.clock.advance(module.KEPT_S_MIN + module._SWEEP_S)
    world.clients.subscribe(OTHER, BOBS)
    assert (len(world.clients), world.kept()) == (1, []), "all of it is given back"
    for instance_id in anns:
        world.clients.subscribe(instance_id, ANNS)
    assert len(world.clients) == 1 + 4


def test_an_instance_id_is_its_principals(world: World) -> None:
    told = world.clients.subscribe(ID, ANNS)
    with pytest.raises(InvalidTelemetryRequest):
        world.clients.subscribe(ID, BOBS)
    with pytest.raises(InvalidTelemetryRequest):
        world.clients.admit(Push(ID, told.subscription_id, False, 0, memoryview(b"x")), BOBS)
    world.clients.admit(Push(ID, told.subscription_id, False, 0, memoryview(b"x")), ANNS)
