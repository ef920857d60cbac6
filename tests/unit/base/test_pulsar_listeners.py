"""Pulsar's keys for several listeners: what they say, and what contradicts itself."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.pulsar_listeners import PulsarBinding, parse_pulsar_listeners

TWO = "internal:pulsar://10.0.0.5:6650, internal:pulsar+ssl://10.0.0.5:6651, external:pulsar://[2001:db8::7]:6660"


def test_listeners_have_an_address_for_each_scheme() -> None:
    found = parse_pulsar_listeners(TWO, "", "")
    assert found.advertised == {
        "internal": {"pulsar": ("10.0.0.5", 6650), "pulsar+ssl": ("10.0.0.5", 6651)},
        "external": {"pulsar": ("2001:db8::7", 6660)},
    }
    assert found.hosts == ["10.0.0.5", "10.0.0.5", "2001:db8::7"]


def test_clients_that_ask_for_none_get_the_first_listener_or_the_one_that_is_named() -> None:
    assert parse_pulsar_listeners(TWO, "", "").default["pulsar"] == ("10.0.0.5", 6650)
    assert parse_pulsar_listeners(TWO, "external", "").default == {"pulsar": ("2001:db8::7", 6660)}
    assert parse_pulsar_listeners("", "", "").default == {}


def test_bindings_belong_to_a_listener() -> None:
    bound = "external:pulsar://0.0.0.0:6660,internal:pulsar+ssl://127.0.0.1:0"
    found = parse_pulsar_listeners(TWO, "", bound).bindings
    assert found == (
        PulsarBinding("external", "", 6660, has_tls=False),
        PulsarBinding("internal", "127.0.0.1", 0, has_tls=True),
    )
    assert [one.name for one in found] == ["pulsar:external:6660", "pulsar+ssl:internal:0"]


@pytest.mark.parametrize(
    ("advertised", "internal", "bound", "sentence"),
    [
        ("pulsar://h:1", "", "", "must be NAME:SCHEME"),
        ("a:kafka://h:1", "", "", "must be NAME:SCHEME"),
        (":pulsar://h:1", "", "", "must be NAME:SCHEME"),
        ("a:pulsar://h", "", "", "must be NAME:SCHEME"),
        ("a:pulsar://h:70000", "", "", "must be NAME:SCHEME"),
        ("a:pulsar://:6650", "", "", "name host and port"),
        ("a:pulsar://0.0.0.0:6650", "", "", "name host and port"),
        ("a:pulsar://h:0", "", "", "name host and port"),
        ("a:pulsar://h:1,a:pulsar://h:2", "", "", "two addresses for pulsar"),
        ("a:pulsar://h:1,b:pulsar://h:1", "", "", "listeners a and b the same address"),
        ("a:pulsar://h:1", "b", "", "no listener 'b'"),
        ("", "a", "", "no listener 'a'"),
        ("a:pulsar://h:1", "", "b:pulsar://h:1", "no b:pulsar://host:port"),
        ("a:pulsar://h:1", "", "a:pulsar+ssl://h:1", "no a:pulsar[+]ssl://host:port"),
        ("a:http://h:1", "", "a:http://h:1", "must be NAME:SCHEME"),
        ("a:pulsar://h:1", "", "a:pulsar://h:0,a:pulsar://g:0", "twice on one port"),
        (",".join(f"n{n}:pulsar://h:{n}" for n in range(1, 66)), "", "", "64 are allowed"),
    ],
)
def test_what_is_malformed_or_contradicts_itself_is_one_sentence(
    advertised: str, internal: str, bound: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_pulsar_listeners(advertised, internal, bound)
