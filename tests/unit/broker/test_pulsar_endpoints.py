"""Where a look-up sends a client of Pulsar, by the listener that it names."""

import pytest

from magnetar.broker.cluster.model import Endpoint, PulsarEndpoints, url_of

OWN, OWN_TLS = Endpoint("", 6650), Endpoint("broker.example", 6651)
OUTSIDE = {"external": {"pulsar": ("far.example", 7650), "http": ("far.example", 80)}}


@pytest.mark.parametrize(
    ("listeners", "named", "urls"),
    [
        ({}, "", ["pulsar://[::1]:6650", "pulsar+ssl://broker.example:6651", None]),
        ({}, "pulsar", ["pulsar://[::1]:6650", "pulsar+ssl://broker.example:6651", None]),
        (OUTSIDE, "", ["pulsar://[::1]:6650", "pulsar+ssl://broker.example:6651", None]),
        (OUTSIDE, "external", ["pulsar://far.example:7650", None, "http://far.example:80"]),
    ],
)
def test_each_client_gets_the_addresses_of_the_listener_that_it_names(
    listeners: dict[str, dict[str, tuple[str, int]]], named: str, urls: list[str | None]
) -> None:
    found = PulsarEndpoints(OWN, OWN_TLS, listeners).of(named)
    assert found is not None
    assert [url_of(found, scheme, "::1") for scheme in ("pulsar", "pulsar+ssl", "http")] == urls


@pytest.mark.parametrize("named", ["internal", "pulsar", "EXTERNAL"])
def test_a_listener_that_is_not_advertised_is_none(named: str) -> None:
    assert PulsarEndpoints(OWN, OWN_TLS, OUTSIDE).of(named) is None
    assert (PulsarEndpoints(OWN).of(named) is None) is (named != "pulsar")


def test_a_server_without_tls_has_no_address_with_it() -> None:
    assert PulsarEndpoints(OWN).of("") == {"pulsar": OWN}
