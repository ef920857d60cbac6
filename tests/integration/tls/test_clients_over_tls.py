"""Clients that we did not write speak TLS with both doors."""

import asyncio
import json
import socket
import ssl
import subprocess
import urllib.request
from typing import Any

import confluent_kafka
import pulsar
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from magnetar.testing.certificates import Authority, Issued
from magnetar.testing.server import MagnetarProcess

from .secured import HOSTS, Secured

pytestmark = pytest.mark.clients
VALUES = [b"small", b"x" * 3_000_000, b"last"]  # the second one takes many records of TLS
BYTES_MAX = 8 << 20


def produce(settings: dict[str, str], topic: str) -> None:
    producer = confluent_kafka.Producer({**settings, "message.max.bytes": BYTES_MAX})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(settings: dict[str, str], topic: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": topic, "auto.offset.reset": "earliest", "fetch.message.max.bytes": BYTES_MAX}
    )
    try:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            message = consumer.poll(20)
            assert message is not None
            assert not message.error(), message.error()
            found.append(message.value())
        return found
    finally:
        consumer.close()


def refusal(settings: dict[str, str]) -> str:
    """What librdkafka says when it cannot connect."""
    said: list[str] = []
    told: dict[str, Any] = {**settings, "error_cb": lambda error: said.append(str(error))}
    client = AdminClient(told)
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=5)
    client.poll(1)
    return " ".join(said)


def test_librdkafka_produces_and_consumes(secured: Secured, topic: str) -> None:
    settings = secured.confluent(secured.ssl)
    produce(settings, topic)
    assert consume(settings, topic) == VALUES
    # Its clients are told of the listener that they came to.
    (broker,) = AdminClient({**settings}).list_topics(timeout=20).brokers.values()
    assert broker.port == secured.ssl


def test_what_came_over_tls_is_read_without_and_the_other_way_round(secured: Secured, topic: str) -> None:
    produce(secured.confluent(secured.ssl), topic)
    assert consume({"bootstrap.servers": f"127.0.0.1:{secured.plain}"}, topic) == VALUES


def test_librdkafka_looks_at_the_servers_name_and_authority(
    secured: Secured, other_authority: Authority
) -> None:
    wrong = secured.confluent(secured.ssl) | {"ssl.ca.location": str(other_authority.certificate)}
    assert "certificate verify failed" in refusal(wrong)
    assert AdminClient({**secured.confluent(secured.ssl)}).list_topics(timeout=20).brokers


def test_a_client_shows_the_certificate_that_is_required(
    secured: Secured, authority: Authority, topic: str
) -> None:
    settings = secured.confluent(secured.mutual, authority.issue("client"))
    produce(settings, topic)
    assert consume(settings, topic) == VALUES


@pytest.mark.parametrize("which", ["none", "of another authority"])
def test_a_client_without_the_certificate_that_is_required_is_refused(
    secured: Secured, other_authority: Authority, which: str
) -> None:
    issued: Issued | None = None if which == "none" else other_authority.issue("client")
    said = refusal(secured.confluent(secured.mutual, issued))
    assert ("certificate required" if issued is None else "unknown ca") in said


def test_kafka_python_produces_and_consumes(secured: Secured, authority: Authority, topic: str) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{secured.mutual}",
        "security_protocol": "SSL",
        "ssl_context": secured.context(authority.issue("client")),
    }
    producer = KafkaProducer(**common, max_request_size=BYTES_MAX)
    for value in VALUES:
        producer.send(topic, value).get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        **common,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=BYTES_MAX,
        consumer_timeout_ms=30_000,
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


def test_aiokafka_produces_and_consumes(secured: Secured, topic: str) -> None:
    async def scenario() -> list[bytes | None]:
        common: dict[str, Any] = {
            "bootstrap_servers": f"localhost:{secured.ssl}",
            "security_protocol": "SSL",
            "ssl_context": secured.context(),
        }
        async with AIOKafkaProducer(**common, max_request_size=BYTES_MAX) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(
            topic, **common, auto_offset_reset="earliest", max_partition_fetch_bytes=BYTES_MAX
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    assert asyncio.run(scenario()) == VALUES


def pulsar_client(secured: Secured, url: str = "", patience_s: int = 15, **more: Any) -> pulsar.Client:
    """A client that is refused tries again until its patience is over."""
    return pulsar.Client(
        url or secured.pulsar_url,
        tls_trust_certs_file_path=str(secured.authority.certificate),
        tls_validate_hostname=True,
        operation_timeout_seconds=patience_s,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **more,
    )


def send_and_receive(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    values = [b"small", b"x" * 1_000_000, b"last"]
    for value in values:
        producer.send(value)
    found = []
    for _ in values:
        message = consumer.receive(15_000)
        found.append(message.data())
        consumer.acknowledge(message)
    assert found == values


def test_pulsars_client_produces_and_consumes(secured: Secured, topic: str) -> None:
    client = pulsar_client(secured)
    send_and_receive(client, topic)
    client.close()


def test_pulsars_client_is_led_to_tls_by_http(secured: Secured, topic: str) -> None:
    looked_up = f"{secured.server.http_url}/lookup/v2/topic/persistent/public/default/{topic}"
    with urllib.request.urlopen(looked_up) as answer:
        told = json.load(answer)
    assert told["brokerUrlTls"] == told["brokerUrlSsl"] == f"pulsar+ssl://127.0.0.1:{secured.pulsar}"
    assert told["brokerUrl"] == secured.server.pulsar_url
    with urllib.request.urlopen(f"{secured.server.http_url}/admin/v2/clusters/standalone") as answer:
        assert json.load(answer)["brokerServiceUrlTls"] == told["brokerUrlTls"]


def test_pulsars_client_looks_at_the_servers_name(secured: Secured, authority: Authority, topic: str) -> None:
    elsewhere = Secured(authority)
    issued = authority.issue("elsewhere", hosts=["elsewhere.test"])
    elsewhere.settings |= {
        "tlsCertificateFilePath": str(issued.certificate),
        "tlsKeyFilePath": str(issued.key),
    }
    with MagnetarProcess(settings=elsewhere.settings):
        client = pulsar_client(elsewhere, patience_s=3)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(topic)
        client.close()


def test_pulsars_client_shows_a_certificate(
    secured: Secured, authority: Authority, other_authority: Authority, topic: str
) -> None:
    strict = Secured(authority, tlsRequireTrustedClientCertOnConnect="true")
    with MagnetarProcess(settings=strict.settings) as server:
        for issuer, is_good in ((authority, True), (other_authority, False), (None, False)):
            shown = {}
            if issuer is not None:
                issued = issuer.issue("client")
                shown = {"authentication": pulsar.AuthenticationTLS(str(issued.certificate), str(issued.key))}
            client = pulsar_client(strict, patience_s=15 if is_good else 3, **shown)
            if is_good:
                send_and_receive(client, topic)
            else:
                with pytest.raises(pulsar.PulsarException):
                    client.create_producer(topic)
            client.close()
        assert "Traceback" not in server.log


@pytest.mark.parametrize(("version", "speaks"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
@pytest.mark.parametrize("door", ["ssl", "pulsar"])
def test_versions_of_tls(secured: Secured, door: str, version: str, speaks: bool) -> None:
    address = f"127.0.0.1:{getattr(secured, door)}"
    trust = ["-CAfile", str(secured.authority.certificate), "-verify_return_error"]
    asked = subprocess.run(
        ["openssl", "s_client", "-connect", address, version, "-brief", *trust],
        input=b"",
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (b"Verification: OK" in asked.stderr) is speaks, asked.stderr


def test_one_version_alone(authority: Authority) -> None:
    one = Secured(authority, **{"ssl.enabled.protocols": "TLSv1.3"})
    with MagnetarProcess(settings=one.settings):
        with one.connect(one.ssl) as new:
            assert new.version() == "TLSv1.3"
        old = one.context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(("127.0.0.1", one.ssl)) as bare,
            pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
        ):
            old.wrap_socket(bare, server_hostname=HOSTS[0])


def test_suites_that_are_chosen_at_both_doors(authority: Authority) -> None:
    suites = {
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "tlsCiphers": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    }
    one = Secured(authority, **suites)
    with MagnetarProcess(settings=one.settings):
        offering = one.context()
        offering.set_ciphers("ALL")
        spoken = {}
        for port in (one.ssl, one.pulsar):
            with (
                socket.create_connection(("127.0.0.1", port)) as bare,
                offering.wrap_socket(bare, server_hostname=HOSTS[0]) as client,
            ):
                spoken[port] = (client.cipher() or ("", ""))[:2]
        assert spoken == {
            one.ssl: ("ECDHE-ECDSA-AES128-SHA256", "TLSv1.2"),
            one.pulsar: ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2"),
        }
        new = one.context()
        new.minimum_version = ssl.TLSVersion.TLSv1_3
        with (
            socket.create_connection(("127.0.0.1", one.ssl)) as bare,
            pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
        ):
            new.wrap_socket(bare, server_hostname=HOSTS[0])
