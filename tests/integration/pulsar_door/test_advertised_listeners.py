"""Several advertised listeners (PIP-61): each client of pulsar-client reaches the server by the addresses of its own.

`internal` is an address where nothing listens: who gets it cannot go on.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess, free_ports

TOPIC = "persistent://public/default/listeners"


@pytest.fixture(scope="module")
def ports() -> tuple[int, int, int]:
    """Of nothing, of the binding, and of what else `external` may be."""
    nothing, bound, other = free_ports(3)
    return nothing, bound, other


@pytest.fixture(scope="module")
def server(ports: tuple[int, int, int]) -> Iterator[MagnetarProcess]:
    nothing, bound, _ = ports
    settings = {
        "advertisedListeners": f"internal:pulsar://127.0.0.1:{nothing},external:pulsar://127.0.0.1:{bound},"
        "external:http://pulsar.example.com:8080",
        "bindAddresses": f"external:pulsar://127.0.0.1:{bound}",
    }
    with MagnetarProcess(settings=settings) as started:
        yield started


def sends(url: str, **options: str) -> bool:
    client = pulsar.Client(url, operation_timeout_seconds=3, connection_timeout_ms=1000, **options)
    try:
        client.create_producer(TOPIC).send(b"here")
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
    return True


def test_who_connects_to_a_binding_gets_the_addresses_of_its_listener(
    server: MagnetarProcess, ports: tuple[int, int, int]
) -> None:
    assert sends(f"pulsar://127.0.0.1:{ports[1]}")


def test_who_asks_for_a_listener_gets_its_addresses(server: MagnetarProcess) -> None:
    assert sends(server.pulsar_url, listener_name="external")


def test_who_asks_for_none_gets_those_of_the_internal_one(server: MagnetarProcess) -> None:
    assert not sends(server.pulsar_url)


def test_who_asks_for_the_internal_one_at_a_binding_gets_that(
    server: MagnetarProcess, ports: tuple[int, int, int]
) -> None:
    assert not sends(f"pulsar://127.0.0.1:{ports[1]}", listener_name="internal")


def looked_up(server: MagnetarProcess, query: str = "", header: str | None = None) -> dict[str, str]:
    url = f"{server.http_url}/lookup/v2/topic/persistent/public/default/listeners{query}"
    request = urllib.request.Request(url, headers={} if header is None else {"X-Pulsar-ListenerName": header})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.load(answer))


def test_look_ups_over_http_know_listeners_too(server: MagnetarProcess, ports: tuple[int, int, int]) -> None:
    nothing, bound, _ = ports
    assert looked_up(server)["brokerUrl"] == f"pulsar://127.0.0.1:{nothing}"
    for found in (looked_up(server, "?listenerName=external"), looked_up(server, header="external")):
        assert found["brokerUrl"] == f"pulsar://127.0.0.1:{bound}"
        assert found["httpUrl"] == "http://pulsar.example.com:8080"
    with pytest.raises(urllib.error.HTTPError) as refused:
        looked_up(server, "?listenerName=unknown")
    refused.value.close()
    assert refused.value.code == 404
