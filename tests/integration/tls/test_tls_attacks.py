"""What hostile, broken and lost clients do to a port with TLS: one line in the log, and nothing is left of them."""

import contextlib
import os
import re
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from magnetar.base.rare_line import SAID_EVERY_S
from magnetar.server.tls import HANDSHAKE_S_MAX
from magnetar.testing.certificates import Authority, Issued
from magnetar.testing.server import MagnetarProcess
from tests.integration.quiet_log import assert_quiet
from tests.integration.server.wire import fetch_request, frame

from .secured import Secured, open_sockets

HELLO = bytes.fromhex("16030100c5010000c10303") + bytes(192)


@pytest.fixture
def target(authority: Authority) -> Iterator[Secured]:
    """A server of the test's own, whose log has nothing but its doing."""
    one = Secured(authority)
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one
        assert_quiet(server.log)


def wait_until(holds: Callable[[], bool], timeout_s: float = 20) -> None:
    until_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until_s, "in vain"
        time.sleep(0.02)


def settled(one: Secured) -> int:
    """The open sockets of a server at rest."""
    with urllib.request.urlopen(f"{one.server.http_url}/health") as answer:
        assert answer.status == 200
    with one.connect(one.ssl), one.connect(one.pulsar):
        pass
    counts = [0, 1]
    while counts[-1] != counts[-2]:
        counts.append(open_sockets(one.server))
        time.sleep(0.3)
    return counts[-1]


def plain(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=HANDSHAKE_S_MAX * 2)


def warnings(server: MagnetarProcess) -> list[str]:
    return [line for line in server.log.splitlines() if "WARNING" in line.upper()]


def is_closed_by_server(connection: socket.socket) -> bool:
    """Having said what it has to say, if it has."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return True


def say_what_is_not_tls(target: Secured, port: int, _: Authority) -> None:
    with plain(port) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_closed_by_server(one)


def hang_up_in_the_handshake(target: Secured, port: int, _: Authority) -> None:
    with plain(port) as one:
        one.sendall(HELLO[:100])
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset


def _is_refused(target: Secured, issued: Issued | None) -> bool:
    """With TLS 1.3 a client learns of it behind its own end of the handshake."""
    try:
        with target.connect(target.mutual, issued) as one:
            return one.recv(1000) == b"\0"
    except (ssl.SSLError, ConnectionError):
        return True


def show_a_certificate_of_another_authority(target: Secured, port: int, other: Authority) -> None:
    assert _is_refused(target, other.issue("client"))


def show_none(target: Secured, port: int, _: Authority) -> None:
    assert _is_refused(target, None)


def say_noise(target: Secured, port: int, _: Authority) -> None:
    with plain(port) as one, contextlib.suppress(ConnectionError):
        one.sendall(os.urandom(100_000))
        assert is_closed_by_server(one)


@pytest.mark.parametrize(
    "attack",
    [
        say_what_is_not_tls,
        say_noise,
        hang_up_in_the_handshake,
        show_a_certificate_of_another_authority,
        show_none,
    ],
)
@pytest.mark.parametrize("door", ["ssl", "pulsar"])
def test_an_attack_is_one_line_and_leaves_nothing(
    target: Secured, other_authority: Authority, attack: Callable[[Secured, int, Authority], None], door: str
) -> None:
    port = getattr(target, door)
    before = settled(target)
    began_s = time.monotonic()
    for _ in range(20):
        attack(target, port, other_authority)
    wait_until(lambda: open_sockets(target.server) <= before)
    said = warnings(target.server)
    assert len(said) <= 1 + (time.monotonic() - began_s) // SAID_EVERY_S, said
    # A reset may come before the server has read a byte: that is nobody.
    assert said or attack is hang_up_in_the_handshake
    # The kernel may not know any more whose a connection was that is reset.
    assert all(re.search("TLS with (127.0.0.1|unknown) failed", line) for line in said)
    with target.connect(port) as good:
        assert good.version() == "TLSv1.3"


def test_slow_handshakes_end_and_others_are_served_meanwhile(target: Secured) -> None:
    before = settled(target)
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(plain(target.ssl)) for _ in range(100)]
        for one in slow[:50]:
            one.sendall(HELLO[:20])
        wait_until(lambda: open_sockets(target.server) >= before + 100)
        with target.connect(target.pulsar) as good:
            assert good.version() == "TLSv1.3"
        assert all(is_closed_by_server(one) for one in slow)
        assert HANDSHAKE_S_MAX - 1 < time.monotonic() - began_s < HANDSHAKE_S_MAX + 5
    wait_until(lambda: open_sockets(target.server) <= before)
    assert len(warnings(target.server)) <= 2


def test_handshakes_count_among_the_connections_of_an_address(authority: Authority) -> None:
    one = Secured(authority, **{"max.connections.per.ip": "10"})
    with MagnetarProcess(settings=one.settings) as server, contextlib.ExitStack() as stack:
        one.server = server
        before = settled(one)
        silent = [stack.enter_context(plain(one.ssl)) for _ in range(10)]
        wait_until(lambda: open_sockets(server) == before + 10)
        assert is_closed_by_server(stack.enter_context(plain(one.plain))), "there is no place for it"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            one.connect(one.ssl)
        silent.pop().close()
        wait_until(lambda: _can_connect(one))
        wait_until(lambda: "as many as may be" in server.log)  # a thread reads what the server writes
        assert_quiet(server.log)


def _can_connect(one: Secured) -> bool:
    try:
        one.connect(one.ssl).close()
    except (ssl.SSLError, ConnectionError):
        return False
    return True


@pytest.mark.parametrize("door", ["plain", "pulsar without TLS"])
def test_tls_at_a_port_without_is_one_line(target: Secured, door: str) -> None:
    port = target.plain if door == "plain" else target.server.pulsar_port
    with plain(port) as one, pytest.raises((ssl.SSLError, ConnectionError)):
        target.context().wrap_socket(one, server_hostname="localhost")
    wait_until(lambda: len(warnings(target.server)) == 1)


def test_a_slow_reader_over_tls_holds_no_more_memory_than_one_without(target: Secured) -> None:
    """100 MiB are asked for and not read: the server keeps a few, as blocks of its cache and not as copies."""
    producer = confluent_kafka.Producer({**target.confluent(target.ssl), "message.max.bytes": 2 << 20})
    for _ in range(100):
        producer.produce("slow", os.urandom(1 << 20))
        producer.poll(0)
    assert producer.flush(60) == 0
    grown = {}
    request = frame("fetch", 11, fetch_request("slow", 0, max_bytes=50 << 20))
    for name, connect in (("plain", plain), ("ssl", target.connect)):
        port = target.plain if name == "plain" else target.ssl
        before = _resident_bytes(target.server)
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(connect(port)) for _ in range(10)]
            for reader in readers:
                for _ in range(20):
                    reader.sendall(request)
            time.sleep(2)  # for what would go wrong: there is nothing to wait for when nothing does
            grown[name] = _resident_bytes(target.server) - before
    assert grown["ssl"] < grown["plain"] + (80 << 20), grown


def _resident_bytes(server: MagnetarProcess) -> int:
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
