"""Limits on how many connections there are and how fast they come, at a real server (KIP-402, KIP-612)."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, free_ports
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.integration.server.wire import PATIENCE_S, Wire, eventually, frame

HELLO = frame("api_versions", 0, ApiVersionsRequest())
HOME, OTHER = "127.0.0.1", "127.0.0.2"
BROKER, SET, DELETE = 4, 0, 1
RATE = "max.connection.creation.rate"


class Clients:
    """Connections that each ask one thing at once."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.all: list[socket.socket] = []

    def come(self, port: int, address: str = HOME, hello: bytes = HELLO) -> socket.socket:
        one = self._stack.enter_context(
            socket.create_connection((HOME, port), timeout=PATIENCE_S, source_address=(address, 0))
        )
        one.sendall(hello)
        self.all.append(one)
        return one

    def leave(self) -> None:
        for one in self.all:
            one.close()
        self.all.clear()


@pytest.fixture
def clients() -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(stack)


def is_served(one: socket.socket) -> bool:
    """Whether it is answered, or closed without a word (waits for either)."""
    try:
        return bool(one.recv(4))
    except ConnectionResetError:
        return False


def set_address(wire: Wire, address: str | None, rate: float | None) -> None:
    limit = OpData("connection_creation_rate", rate or 0.0, rate is None)
    changed = AlterClientQuotasRequest([EntryData([EntityData("ip", address)], [limit])])
    assert wire.ask("alter_client_quotas", 1, changed).entries[0].error_code == 0


def set_broker(wire: Wire, name: str, value: int | str | None, node: str = "") -> int:
    change = AlterableConfig(name, DELETE if value is None else SET, None if value is None else str(value))
    changed = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, node, [change])])
    code: int = wire.ask("incremental_alter_configs", 1, changed).responses[0].error_code
    return code


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    one = MagnetarProcess()
    two = free_ports(1)[0]
    settings = {"listeners": f"PLAINTEXT://{HOME}:{one.ports[0]},SECOND://{HOME}:{two}"}
    with MagnetarProcess(
        settings=settings | {"listener.security.protocol.map": "SECOND:PLAINTEXT"}, data_dir=one.data_dir
    ) as made:
        made.ports = [one.ports[0], two]
        yield made
        assert "Traceback" not in made.log


def served_of(count: int, come: Callable[[int], socket.socket]) -> int:
    """How many are served of so many clients that come at once, at a rate of 1 for each."""
    began_s = time.monotonic()
    ones = [come(number) for number in range(count)]
    took_s = time.monotonic() - began_s
    served = sum(map(is_served, ones))
    assert 11 <= served <= 12 + took_s, "ten seconds' worth, and one that came while nothing was owed"
    assert time.monotonic() - began_s > 0.3, "those that are not are closed after a while"
    return served


def test_an_address_that_comes_too_fast_is_closed_after_a_while_and_another_is_served(
    server: MagnetarProcess, clients: Clients
) -> None:
    with Wire(server.ports[0]) as wire:
        set_address(wire, HOME, 1)
        assert served_of(40, lambda number: clients.come(server.ports[number % 2])) < 40
        late = clients.come(server.ports[0])
        assert is_served(clients.come(server.ports[0], OTHER))
        set_address(wire, HOME, None)
        is_served(late)
        assert all(is_served(clients.come(server.ports[0])) for _ in range(20))


def test_a_kill_keeps_what_addresses_may(server: MagnetarProcess, clients: Clients) -> None:
    with Wire(server.ports[0]) as wire:
        set_address(wire, None, 1)
        server.kill()
    server.restart()
    assert served_of(40, lambda _: clients.come(server.ports[0], OTHER)) < 40


def test_over_the_rate_of_all_clients_are_served_late_and_none_is_closed(
    server: MagnetarProcess, clients: Clients
) -> None:
    with Wire(server.ports[0]) as wire:
        assert set_broker(wire, RATE, 2) == 0
        began_s = time.monotonic()
        many = [clients.come(server.ports[number % 2]) for number in range(27)]
        assert all(map(is_served, many))
        assert time.monotonic() - began_s > 2.5, "six of them come at two a second"
        assert set_broker(wire, RATE, None) == 0
        began_s = time.monotonic()
        more = [clients.come(server.ports[0]) for _ in range(50)]
        assert all(map(is_served, more))
        assert time.monotonic() - began_s < 10


def test_a_listener_waits_alone_for_its_own_rate(server: MagnetarProcess, clients: Clients) -> None:
    with Wire(server.ports[0]) as wire:
        assert set_broker(wire, f"listener.name.second.{RATE}", 1) == 0
        first, second = server.ports
        began_s = time.monotonic()
        late = [clients.come(second) for _ in range(14)]
        assert all(is_served(clients.come(first)) for _ in range(30))
        assert all(map(is_served, late))
        assert time.monotonic() - began_s > 2.5


def test_counts_are_changed_while_connections_come_and_go(server: MagnetarProcess, clients: Clients) -> None:
    first, second = server.ports
    with Wire(first) as wire:
        assert set_broker(wire, "max.connections.per.ip", 3) == 0
        assert [is_served(clients.come(first)) for _ in range(4)] == [True, True, False, False]
        assert is_served(clients.come(first, OTHER))
        assert set_broker(wire, "max.connections.per.ip.overrides", f"{HOME}:4") == 0
        assert [is_served(clients.come(second)) for _ in range(2)] == [True, False]
        assert set_broker(wire, "listener.name.second.max.connections", 1) == 0
        assert not is_served(clients.come(second, OTHER))
        assert set_broker(wire, "max.connections", 5) == 0
        assert not is_served(clients.come(first, OTHER)), "five are open"
        clients.leave()
        eventually(lambda: is_served(clients.come(second, OTHER)), "places are given back")


def test_a_setting_of_one_node_goes_over_that_of_all(server: MagnetarProcess, clients: Clients) -> None:
    with Wire(server.ports[0]) as wire:
        assert set_broker(wire, "max.connections.per.ip", 1) == 0
        assert set_broker(wire, "max.connections.per.ip", 2, "1") == 0
        assert [is_served(clients.come(server.ports[0])) for _ in range(2)] == [True, False]


# --- TLS -------------------------------------------------------------------------------------------------------------


def client_hello(context: ssl.SSLContext) -> bytes:
    """What a client of TLS sends first."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_connections_in_the_handshake_have_places_and_none_begins_over_the_rate(
    tmp_path: Path, clients: Clients
) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server", hosts=["localhost", HOME])
    plain, tls = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://{HOME}:{plain},SSL://{HOME}:{tls}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(issued.both),
        "max.connections.per.ip": "4",
    }
    context = ssl.create_default_context(cafile=str(authority.certificate))

    def shakes_hands() -> bool:
        with socket.create_connection((HOME, tls), timeout=PATIENCE_S) as bare:
            try:
                with context.wrap_socket(bare, server_hostname="localhost") as secured:
                    secured.sendall(HELLO)
                    return is_served(secured)
            except (ssl.SSLError, ConnectionResetError):
                return False

    with MagnetarProcess(settings=settings) as server:
        with Wire(plain) as wire:
            half_open = [clients.come(tls, hello=b"\x16\x03\x01") for _ in range(3)]
            assert not is_served(clients.come(tls, hello=b"\x16")), "closed before any handshake"
            assert not shakes_hands()
            half_open[0].close()
            eventually(shakes_hands, "the place of a handshake that died is given back")
            assert set_broker(wire, "max.connections.per.ip", None) == 0
            assert set_broker(wire, "max.connections.per.ip.overrides", f"{HOME}:1000") == 0
            set_address(wire, HOME, 1)
            # Those that begin a handshake are answered in TLS, the others by nothing.
            assert served_of(40, lambda _: clients.come(tls, hello=client_hello(context))) < 40
        assert "Traceback" not in server.log


# --- Pulsar ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"brokerMaxConnections": "2"}, b"Reached the maximum number of connections"),
        (
            {"brokerMaxConnectionsPerIp": "2"},
            b"Reached the maximum number of connections on address 127.0.0.1",
        ),
    ],
)
def test_pulsars_ports_have_limits_of_their_own_and_say_so(
    clients: Clients, settings: dict[str, str], words: bytes
) -> None:
    with MagnetarProcess(settings=settings) as server:
        first = clients.come(server.pulsar_port, hello=b"")
        client = pulsar.Client(f"pulsar://{HOME}:{server.pulsar_port}")
        producer = client.create_producer("t")
        refused = clients.come(server.pulsar_port, hello=b"")
        told = b""
        while piece := refused.recv(1 << 10):
            told += piece
        assert words in told
        assert all(is_served(clients.come(server.ports[0])) for _ in range(5)), "Kafka's have none"
        producer.send(b"still here")
        first.close()
        eventually(lambda: _stays(clients.come(server.pulsar_port, hello=b"")), "places are given back")
        client.close()
        assert "Traceback" not in server.log


def _stays(one: socket.socket) -> bool:
    one.settimeout(0.3)
    try:
        one.recv(1)
    except TimeoutError:
        return True
    return False
