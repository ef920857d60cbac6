"""Settings of brokers that are changed while they run (KIP-226): which may be, what goes over what, that it lasts."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.settings_connections import ConnectionRules, ListenerRules
from magnetar.broker.policy.dynamic_config import BrokerConfigs, checked, dynamic_key
from magnetar.broker.policy.errors import InvalidConfig
from magnetar.testing.metadata import MemoryMetadataStore

MAX, RATE = "max.connections", "max.connection.creation.rate"
OWN = "listener.name.internal.max.connections"
OTHER = "listener.name.other.max.connections"


class World:
    def __init__(self, metadata: MemoryMetadataStore | None = None, node_id: int | None = 1) -> None:
        self.metadata = metadata or MemoryMetadataStore()
        self.rules = ConnectionRules(ListenerRules(-1))
        self.configs = BrokerConfigs(
            self.metadata,
            {MAX: "100", "num.partitions": "3"},
            {("INTERNAL", MAX): "50"},
            node_id,
            ["INTERNAL", "OTHER"],
            self._govern,
        )

    def _govern(self, rules: ConnectionRules) -> None:
        self.rules = rules


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_what_is_set_later_goes_over_the_start_and_a_node_over_all() -> None:
    async def scenario() -> None:
        world = World()
        await world.configs.load()
        assert world.rules == ConnectionRules(ListenerRules(100), listeners={"INTERNAL": ListenerRules(50)})
        await world.configs.change({MAX: "90", RATE: "5", OWN: "40"}, for_all=True)
        assert world.rules == ConnectionRules(ListenerRules(90, 5), listeners={"INTERNAL": ListenerRules(40)})
        await world.configs.change({MAX: "80"}, for_all=False)
        assert world.rules.all_listeners == ListenerRules(80, 5)

        again = World(world.metadata)
        await again.configs.load()
        assert again.rules == world.rules
        assert again.configs.of_all() == {MAX: "90", RATE: "5", OWN: "40"}
        assert again.configs.of_node() == {MAX: "80"}

        await again.configs.change({}, for_all=False)
        assert again.rules.all_listeners == ListenerRules(90, 5)
        await again.configs.change({}, for_all=True)
        assert again.rules.all_listeners == ListenerRules(100)
        last = World(world.metadata)
        await last.configs.load()
        assert not last.configs.of_all()
        assert not last.configs.of_node()

    run(scenario)


def test_what_was_set_for_another_node_does_not_hold() -> None:
    async def scenario() -> None:
        world = World()
        await world.configs.change({MAX: "80"}, for_all=False)
        for node_id in (2, None):
            other = World(world.metadata, node_id)
            await other.configs.load()
            assert other.rules.all_listeners == ListenerRules(100)

    run(scenario)


def test_what_cannot_be_stored_does_not_hold() -> None:
    async def scenario() -> None:
        world = World()
        await world.configs.load()
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await world.configs.change({MAX: "80"}, for_all=True)
        assert world.rules.all_listeners == ListenerRules(100)
        assert not world.configs.of_all()

    run(scenario)


@pytest.mark.parametrize(
    ("name", "is_dynamic"),
    [
        (MAX, True),
        (OWN, True),
        ("listener.name.a.b.max.connection.creation.rate", True),
        ("listener.name.Internal.max.connections", False),  # Kafka's are lower case
        ("listener.name.internal.max.connections.per.ip", False),
        ("listener.name..max.connections", False),
        ("num.partitions", False),
        ("no.such.key", False),
    ],
)
def test_which_may_be_changed(name: str, is_dynamic: bool) -> None:
    assert (dynamic_key(name) is not None) == is_dynamic


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (MAX, "-1"),
        (MAX, "many"),
        (MAX, "2147483648"),
        (RATE, "1.5"),
        ("max.connections.per.ip.overrides", "localhost:5"),
        ("max.connections.per.ip.overrides", "127.0.0.1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:-5"),
        ("max.connections.per.ip.overrides", "127.0.0.1:5,x"),
        ("max.connections.per.principal", "-1"),
        ("max.connections.per.principal.overrides", "alice:5"),
        ("max.connections.per.principal.overrides", "User::5"),
        ("max.connections.per.principal.overrides", "User:alice"),
        ("max.connections.per.principal.overrides", "User:alice:-5"),
        ("max.connections.per.principal.overrides", "User:alice:5;x"),
    ],
)
def test_values_are_checked(name: str, text: str) -> None:
    key = dynamic_key(name)
    assert key is not None
    with pytest.raises(InvalidConfig, match=name):
        checked(name, key, text)


PER_ADDRESS, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"


@pytest.mark.parametrize(
    ("texts", "is_refused"),
    [
        ({MAX: "0"}, True),
        ({MAX: "1"}, False),
        ({PER_ADDRESS: "0"}, True),
        ({PER_ADDRESS: "0", OVERRIDES: "127.0.0.1:0"}, True),
        ({PER_ADDRESS: "0", OVERRIDES: "127.0.0.1:1"}, False),
        ({"max.connections.per.principal": "0"}, True),
        ({OWN: "0"}, False),
        ({OTHER: "0"}, False),
        ({OWN: "0", OTHER: "0"}, True),  # changes come by no other
        ({OWN: "0", OTHER: "1", "listener.name.pulsar.max.connections": "0"}, False),
        ({RATE: "0"}, False),
    ],
)
@pytest.mark.parametrize("for_all", [False, True])
def test_what_would_shut_out_all_clients_is_refused(
    texts: dict[str, str], is_refused: bool, for_all: bool
) -> None:
    """A start would find it again: no client could ever change it back."""
    configs = World().configs
    if is_refused:
        with pytest.raises(InvalidConfig, match=r"max\.connections"):
            configs.check(texts, for_all=for_all)
    else:
        configs.check(texts, for_all=for_all)


def test_a_change_is_looked_at_beside_what_else_is_set() -> None:
    async def scenario() -> None:
        world = World()
        await world.configs.change({OVERRIDES: "127.0.0.1:5"}, for_all=True)
        world.configs.check({PER_ADDRESS: "0"}, for_all=False)
        await world.configs.change({PER_ADDRESS: "0"}, for_all=False)
        with pytest.raises(InvalidConfig):
            world.configs.check({}, for_all=True)  # takes back what lets some in
        world.configs.check({OVERRIDES: "127.0.0.1:5", PER_ADDRESS: "7"}, for_all=True)
        world.configs.check({}, for_all=False)

    run(scenario)
