"""How many connections there may be, and how fast they may come (KIP-402, KIP-612)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings import load_settings
from magnetar.base.settings_connections import ConnectionRules, ListenerRules, connection_rules
from magnetar.broker.quotas import admission as module
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.broker.quotas.model import DEFAULT, Entity, Limit
from magnetar.broker.security.errors import TooManyConnections
from magnetar.broker.security.model import USER, Principal
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

A, B = "10.0.0.1", "10.0.0.2"
IN, OUT = "INTERNAL", "EXTERNAL"


class World:
    def __init__(self, rules: ConnectionRules | None = None) -> None:
        self.clock = FakeClock()
        self.quotas = ClientQuotas(MemoryMetadataStore(), self.clock)
        self.admission = Admission(self.clock, self.quotas)
        if rules is not None:
            self.admission.govern(rules)

    async def limit(self, address: Any, rate: float | None) -> None:
        limits = {} if rate is None else {Limit.CONNECTED: rate}
        await self.quotas.change({Entity(None, None, address): limits})

    def accept(self, count: int, listener: str = OUT, address: str = A) -> int:
        """How many of so many come in at once."""
        accepted = 0
        for _ in range(count):
            if self.admission.owed_s(listener) or self.admission.came(listener, address):
                break
            accepted += 1
        return accepted


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


# --- how many --------------------------------------------------------------------------------------------------------


def test_places_are_counted_in_all_for_a_listener_and_for_an_address() -> None:
    listeners = {IN: ListenerRules(2)}
    admission = World(ConnectionRules(ListenerRules(5), 3, {B: 1}, listeners)).admission
    assert [admission.take_place(IN, A) for _ in range(2)] == [None, None]
    assert "2 are open at INTERNAL" in (admission.take_place(IN, A) or "")
    assert admission.take_place(OUT, A) is None
    assert "it has 3" in (admission.take_place(OUT, A) or "")
    assert admission.take_place(OUT, B) is None
    assert "it has 1" in (admission.take_place(OUT, B) or "")
    assert admission.take_place(OUT, "c") is None
    assert admission.count == 5
    assert "5 are open" in (admission.take_place(OUT, "d") or "")


def test_a_place_that_is_given_back_can_be_taken_and_one_that_was_refused_is_not_held() -> None:
    admission = World(ConnectionRules(ListenerRules(2), 1, {}, {IN: ListenerRules(1)})).admission
    for _ in range(3):
        assert admission.take_place(IN, A) is None
        for _ in range(3):
            assert admission.take_place(OUT, A) is not None
            assert admission.take_place(IN, B) is not None
        admission.give_place(IN, A)
        assert admission.count == 0
    assert not admission._address_counts, "addresses without a connection take no room"


def test_a_limit_that_is_lowered_leaves_those_that_there_are() -> None:
    admission = World(ConnectionRules(ListenerRules(3))).admission
    for _ in range(3):
        assert admission.take_place(OUT, A) is None
    admission.govern(ConnectionRules(ListenerRules(2)))
    admission.give_place(OUT, A)
    assert admission.take_place(OUT, A) is not None
    admission.give_place(OUT, A)
    assert admission.take_place(OUT, A) is None


# --- how fast --------------------------------------------------------------------------------------------------------


def test_ten_seconds_worth_comes_at_once_and_then_at_the_rate() -> None:
    world = World(ConnectionRules(ListenerRules(rate=2)))
    assert world.accept(100) == 21, "the last one comes while nothing is owed yet"
    assert world.admission.owed_s(OUT) == 0.5
    assert world.admission.owed_s(IN) == 0.5, "all listeners share it"
    world.clock.advance(0.5)
    assert world.accept(100) == 1
    world.clock.advance(3)
    assert world.accept(100) == 6
    world.clock.advance(1_000)
    assert world.accept(100) == 21


def test_a_listener_has_a_rate_of_its_own() -> None:
    world = World(ConnectionRules(ListenerRules(rate=100), listeners={OUT: ListenerRules(rate=1)}))
    assert world.accept(100, OUT) == 11
    assert world.admission.owed_s(IN) == 0.0
    assert world.accept(100, IN) == 100
    world.clock.advance(1)
    assert world.accept(100, OUT) == 1


def test_the_longer_of_both_waits_counts() -> None:
    world = World(ConnectionRules(ListenerRules(rate=4), listeners={OUT: ListenerRules(rate=2)}))
    assert world.accept(100, OUT) == 21
    assert world.accept(100, IN) == 20
    assert (world.admission.owed_s(OUT), world.admission.owed_s(IN)) == (0.5, 0.25)
    world = World(ConnectionRules(ListenerRules(rate=1), listeners={OUT: ListenerRules(rate=100)}))
    assert world.accept(100, OUT) == 11
    assert world.admission.owed_s(OUT) == 1.0


def test_a_rate_of_nothing_is_one_a_second() -> None:
    world = World(ConnectionRules(ListenerRules(rate=0)))
    world.accept(100)
    world.clock.advance(1)
    assert world.accept(100) == 1


def test_a_rate_is_changed_and_lifted_while_it_holds() -> None:
    world = World(ConnectionRules(ListenerRules(rate=1), listeners={OUT: ListenerRules(rate=1)}))
    assert world.accept(100) == 11
    same = ConnectionRules(ListenerRules(rate=1), per_address_max=7, listeners={OUT: ListenerRules(rate=1)})
    world.admission.govern(same)
    assert world.accept(100) == 0, "what was used stays used"
    world.admission.govern(ConnectionRules(ListenerRules(rate=10)))
    assert world.accept(1000) == 90, "ten seconds' worth is a hundred, less those that came"
    world.admission.govern(ConnectionRules())
    assert world.accept(1000) == 1000


def test_a_rate_that_is_lowered_shuts_nobody_out() -> None:
    """What came at a hundred a second was owed for a quarter of an hour at one a second."""
    world = World(ConnectionRules(ListenerRules(rate=100), listeners={OUT: ListenerRules(rate=100)}))
    assert world.accept(1001) == 1001
    world.admission.govern(ConnectionRules(ListenerRules(rate=1), listeners={OUT: ListenerRules(rate=1)}))
    assert 0 < world.admission.owed_s(OUT) <= 1
    world.clock.advance(1)
    assert world.accept(100) == 1


def test_an_address_over_its_rate_is_put_off_and_counts_nowhere() -> None:
    async def scenario() -> None:
        world = World(ConnectionRules(ListenerRules(rate=100), listeners={OUT: ListenerRules(rate=50)}))
        await world.limit(A, 2.0)
        assert world.accept(100) == 21
        assert world.admission.came(OUT, A) == 0.5
        before = world.admission._rate, world.admission._rates[OUT]
        left = [one.left(0.0) for one in before if one is not None]
        for _ in range(1000):
            assert world.admission.came(OUT, A) == 0.5
        assert [one.left(0.0) for one in before if one is not None] == left
        assert world.accept(100, address=B) == 100
        world.clock.advance(0.5)
        assert world.admission.came(OUT, A) == 0.0

    run(scenario)


def test_the_default_is_as_much_for_each_address_and_one_by_name_goes_over_it() -> None:
    async def scenario() -> None:
        world = World()
        await world.limit(DEFAULT, 1.0)
        await world.limit(B, 5.0)
        assert [world.accept(100, address=one) for one in (A, B, "c")] == [11, 51, 11]
        await world.limit(A, 3.0)
        assert world.accept(100, address=A) == 20
        await world.limit(A, None)
        await world.limit(DEFAULT, None)
        assert world.accept(1000, address=A) == 1000

    run(scenario)


def test_an_address_whose_rate_is_lowered_waits_for_a_second_at_most() -> None:
    async def scenario() -> None:
        world = World()
        await world.limit(A, 10.0)
        assert world.accept(200) == 101
        await world.limit(A, 1.0)
        assert 0 < world.admission.came(OUT, A) <= 1
        world.clock.advance(1)
        assert world.accept(100) == 1

    run(scenario)


def test_addresses_without_end_take_room_with_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADDRESSES_MAX", 3)

    async def scenario() -> None:
        world = World()
        await world.limit(DEFAULT, 1.0)
        assert world.accept(100, address="kept") == 11
        for number in range(100):
            world.accept(1, address=f"{number}")
            assert world.accept(1, address="kept") == 0
        assert len(world.admission._by_address) == 3

    run(scenario)


def test_a_principal_has_as_many_places_as_it_gives_back() -> None:
    alice, bob = Principal(USER, "alice"), Principal(USER, "bob")
    admission = World(ConnectionRules(per_principal_max=2, per_principal={"User:bob": 1})).admission
    for who, count in ((alice, 2), (bob, 1)):
        for _ in range(count):
            admission.take_place_for(who)
        with pytest.raises(
            TooManyConnections, match=rf"^{who} has as many connections as it may have \({count}\)$"
        ):
            admission.take_place_for(who)
    admission.give_place_for(alice)
    admission.take_place_for(alice)
    for who in (alice, alice, bob):
        admission.give_place_for(who)
    assert not admission._principal_counts, "it remembers nobody who has gone"
    assert admission.count == 0


# --- settings --------------------------------------------------------------------------------------------------------


def test_rules_from_settings() -> None:
    texts = {
        "max.connections": "100",
        "max.connections.per.ip": "10",
        "max.connections.per.ip.overrides": "10.0.0.1:3, [0:0::1]:4,::2:5,::FFFF:10.0.0.2:6,",
        "max.connection.creation.rate": "7",
        "max.connections.per.principal": "8",
        "max.connections.per.principal.overrides": "User:CN=a,O=b:9; User:a:b:11",
    }
    own = {
        (IN, "max.connections"): "20",
        (IN, "max.connection.creation.rate"): "2",
        (OUT, "max.connections"): "9",
    }
    assert connection_rules(texts, own) == ConnectionRules(
        ListenerRules(100, 7),
        10,
        {A: 3, "::1": 4, "::2": 5, B: 6},
        {IN: ListenerRules(20, 2), OUT: ListenerRules(9)},
        8,
        {"User:CN=a,O=b": 9, "User:a:b": 11},
    )
    assert connection_rules({}, {}) == ConnectionRules()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["max.connections=0"], "max.connections must be at least 1"),
        (["max.connections.per.ip=0"], "max.connections.per.ip may be 0 only where"),
        (["max.connections.per.ip=0", "max.connections.per.ip.overrides=127.0.0.1:3"], ""),
        (["max.connections.per.principal=0"], "max.connections.per.principal may be 0 only where"),
        (["max.connections.per.principal=0", "max.connections.per.principal.overrides=User:a:3"], ""),
    ],
)
def test_settings_that_shut_out_all_clients_end_the_start(settings: list[str], reason: str) -> None:
    if not reason:
        load_settings(assignments=settings)
        return
    with pytest.raises(ConfigError, match=reason):
        load_settings(assignments=settings)
