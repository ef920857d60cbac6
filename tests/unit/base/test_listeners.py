import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.listeners import (
    Listener,
    is_loopback,
    parse_advertised,
    parse_listeners,
    parse_protocol_map,
)

NO_MAP = parse_protocol_map("")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://0.0.0.0:9092", "", 9092),
        ("PLAINTEXT://[::]:9092", "", 9092),
        ("plaintext://localhost:0", "localhost", 0),
        ("PLAINTEXT://127.0.0.1:65535", "127.0.0.1", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        (" PLAINTEXT://kafka-1.example_net:9092 , ", "kafka-1.example_net", 9092),
    ],
)
def test_one_listener(text: str, host: str, port: int) -> None:
    assert parse_listeners(text, NO_MAP) == (Listener("PLAINTEXT", host, port, "PLAINTEXT"),)


def test_named_listeners_take_their_protocol_from_the_map() -> None:
    protocols = parse_protocol_map("internal:PLAINTEXT, EXTERNAL:plaintext")
    assert parse_listeners("internal://0.0.0.0:9092,external://[::1]:19092", protocols) == (
        Listener("INTERNAL", "", 9092, "PLAINTEXT"),
        Listener("EXTERNAL", "::1", 19092, "PLAINTEXT"),
    )


def test_a_krafts_controller_listener_is_left_out() -> None:
    listeners = parse_listeners("PLAINTEXT://:9092,CONTROLLER://:9093", NO_MAP, ["CONTROLLER"])
    assert [one.name for one in listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no address"),
        (" , ", "no address"),
        ("9092", "must be NAME://host:port"),
        ("PLAINTEXT://localhost", "must be NAME://host:port"),
        ("PLAINTEXT://localhost:", "must be NAME://host:port"),
        ("PLAINTEXT://localhost:65536", "must be NAME://host:port"),
        ("PLAINTEXT://localhost:-1", "must be NAME://host:port"),
        ("PLAINTEXT://::1:9092", "must be NAME://host:port"),
        ("PLAINTEXT://a b:9092", "must be NAME://host:port"),
        ("PLAINTEXT:9092", "must be NAME://host:port"),
        ("INTERNAL://:9092", "add INTERNAL:PLAINTEXT to listener.security.protocol.map"),
        ("PLAINTEXT://:9092,PLAINTEXT://:9093", "PLAINTEXT twice"),
    ],
)
def test_bad_listeners_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_listeners(text, NO_MAP)


def test_a_listener_may_have_tls() -> None:
    first, second = parse_listeners("SSL://:9093,INTERNAL://:9092", parse_protocol_map("INTERNAL:PLAINTEXT"))
    assert (first.has_tls, second.has_tls) == (True, False)


def test_a_listener_may_ask_for_a_login() -> None:
    both = parse_listeners("SASL_SSL://:9093,SASL_PLAINTEXT://:9094,PLAINTEXT://:9092", NO_MAP)
    assert [(one.has_tls, one.has_sasl) for one in both] == [(True, True), (False, True), (False, False)]


def test_two_listeners_cannot_have_one_address() -> None:
    protocols = parse_protocol_map("A:PLAINTEXT,B:PLAINTEXT")
    for text in ("A://:1,B://:1", "A://h:1,B://h:1", "A://127.0.0.1:1,B://:1", "A://[::]:1,B://[::1]:1"):
        with pytest.raises(ConfigError, match="same address"):
            parse_listeners(text, protocols)
    for text in ("A://:0,B://:0", "A://h:1,B://h:2", "A://127.0.0.1:1,B://[::1]:1"):
        assert len(parse_listeners(text, protocols)) == 2


@pytest.mark.parametrize("text", ["A", "A:", ":PLAINTEXT", "A:TLS", "A:PLAINTEXT,A:SSL"])
def test_a_bad_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        parse_protocol_map(text)


def test_advertised_listeners() -> None:
    listeners = parse_listeners("A://:1,B://:2", parse_protocol_map("A:PLAINTEXT,B:PLAINTEXT"))
    assert parse_advertised("a://host:9,B://[2001:db8::1]:0", listeners) == {
        "A": ("host", 9),
        "B": ("2001:db8::1", 0),
    }
    assert parse_advertised("A://host:9", listeners) == {"A": ("host", 9)}
    for text, reason in (
        ("C://host:9", "no listener C"),
        ("A://:9", "no host"),
        ("A://0.0.0.0:9", "no host"),
        ("A://[::]:9", "no host"),
        ("A://h:9,A://h:10", "twice"),
        ("A//h:9", "must be NAME"),
    ):
        with pytest.raises(ConfigError, match=reason):
            parse_advertised(text, listeners)


def test_a_listeners_url_can_be_read_again() -> None:
    for text in ("PLAINTEXT://[::1]:9092", "PLAINTEXT://h:1", "PLAINTEXT://:0"):
        (listener,) = parse_listeners(text, NO_MAP)
        assert listener.url == text


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("fe80::1%eth0", False),
        ("localhost", False),
    ],
)
def test_loopback_is_told_by_the_address(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
