"""`magnetar replicator-service` as brokers find it: pulsar-client in the part of a broker, a real server as the target.

A broker's geo-replication differs from a client by the name of its producers, and by what it does after a failure: it
sends again what has no receipt (`test_pulsar_replicates.py` has a real one).
"""

import itertools
import json
import logging
import os
import socket
import struct
import subprocess
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.certificates import Authority
from magnetar.testing.pulsar import framed
from magnetar.testing.server import MagnetarProcess, free_ports
from magnetar.wire.pulsar.commands import read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect, CommandLookupTopic
from tests.aws_peer import KEYS, REGION, Line, MotoServer, records_of
from tests.integration.sasl.guarded import Guarded
from tests.replicator_service import ReplicatorService, kafka_target
from tests.spark.replicated import copied, make_topic

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

NAMESPACE = "public/orders"
TOKEN = "a-token-of-a-broker-Zk3qPv9xT7wQ"
_names = itertools.count()


class Broker:
    """A client that sends as a broker's geo-replication does."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.client = pulsar.Client(
            url,
            authentication=None if token is None else pulsar.AuthenticationToken(token),
            operation_timeout_seconds=5,
            logger=_silent(),
        )

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def producer(self, topic: str, region: str = "west", **more: Any) -> pulsar.Producer:
        return self.client.create_producer(
            f"persistent://{NAMESPACE}/{topic}",
            producer_name=f"pulsar.repl.home-->{region}",
            **{"send_timeout_millis": 0, "batching_enabled": False, "block_if_queue_full": True, **more},
        )


def _silent() -> logging.Logger:
    logger = logging.getLogger("tests.replicator_service")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def new_topic() -> str:
    return f"orders-{os.getpid()}-{next(_names)}"


@pytest.fixture(scope="module")
def service(server: MagnetarProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatorService]:
    """With `west`, where all topics go to topics of their own names; `east`, which is dead; and a token."""
    folder = tmp_path_factory.mktemp("service")
    [dead] = free_ports(1)
    regions = {
        "west": kafka_target(server.bootstrap, {"orders-.+": "{topic}"}),
        "east": kafka_target(f"127.0.0.1:{dead}", {"orders-.+": "{topic}"}),
    }
    tokens = folder / "tokens"
    tokens.touch(0o600)
    tokens.write_text(f"{TOKEN}\n")
    letters = folder / "letters"
    arguments = ("--token-file", str(tokens), "--dead-letters", str(letters))
    with ReplicatorService(folder, {NAMESPACE: {"Kafka": regions}}, arguments) as made:
        yield made


def values(server: MagnetarProcess, topic: str) -> list[bytes | None]:
    return [value for _, value, _ in copied(server.bootstrap, topic)]


def test_messages_of_each_kind_arrive_in_order_with_key_and_properties(
    server: MagnetarProcess, service: ReplicatorService
) -> None:
    topic = new_topic()
    with Broker(service.url, TOKEN) as broker:
        single = broker.producer(topic, compression_type=pulsar.CompressionType.ZSTD)
        for number in range(10):
            single.send(b"%d" % number, partition_key=f"k{number % 3}", properties={"number": str(number)})
        single.close()
        batches = broker.producer(topic, batching_enabled=True, compression_type=pulsar.CompressionType.LZ4)
        for number in range(10, 1_000):
            batches.send_async(
                b"%d" % number, None, partition_key=f"k{number % 3}", properties={"number": str(number)}
            )
        batches.flush()
    assert copied(server.bootstrap, topic) == [
        (b"k%d" % (number % 3), b"%d" % number, (("number", b"%d" % number),)) for number in range(1_000)
    ]


def test_a_partition_goes_to_the_partition_of_its_number(
    server: MagnetarProcess, service: ReplicatorService
) -> None:
    topic = new_topic()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    with Broker(service.url, TOKEN) as broker:
        for partition in (2, 0, 1):
            producer = broker.producer(f"{topic}-partition-{partition}")
            for number in range(5):
                producer.send(b"%d" % (10 * partition + number))
    # `copied` gives partition by partition, each in its order.
    found = [int(value or b"-1") for value in values(server, topic)]
    for partition in range(3):
        assert [one for one in found if one // 10 == partition] == [10 * partition + n for n in range(5)]


def test_a_dead_target_holds_back_neither_another_one_nor_another_topic(
    server: MagnetarProcess, service: ReplicatorService
) -> None:
    topic = new_topic()
    with Broker(service.url, TOKEN) as broker:
        with pytest.raises(pulsar.PulsarException):
            broker.producer(topic, "east")
        producer = broker.producer(topic)
        for number in range(100):
            producer.send(b"%d" % number)
        with pytest.raises(pulsar.PulsarException):
            broker.producer(topic, "east")
        producer.send(b"100")  # on the same connection
    assert values(server, topic) == [b"%d" % number for number in range(101)]
    service.until_says(f"no broker of Kafka's for topic {topic} answers")


def test_what_has_no_receipt_comes_again_after_the_service_was_killed(
    server: MagnetarProcess, service: ReplicatorService
) -> None:
    topic = new_topic()
    receipts: list[pulsar.Result] = []
    with Broker(service.url, TOKEN) as broker:
        producer = broker.producer(topic)
        for number in range(3_000):
            producer.send_async(b"%d" % number, lambda result, _: receipts.append(result))
            if number in (1_000, 2_000):
                service.kill()
                service.start()
        producer.flush()
    assert receipts == [pulsar.Result.Ok] * 3_000
    found = [int(value or b"-1") for value in values(server, topic)]
    assert list(dict.fromkeys(found)) == list(range(3_000))


def test_a_topic_that_is_mapped_nowhere_and_a_client_that_is_no_broker_are_refused(
    service: ReplicatorService,
) -> None:
    with Broker(service.url, TOKEN) as broker:
        for topic, region in (("unmapped", "west"), (new_topic(), "north")):
            with pytest.raises(pulsar.PulsarException):
                broker.producer(topic, region)
            service.until_says(f"does not say where persistent://{NAMESPACE}/{topic} goes in {region}")
        with pytest.raises(pulsar.PulsarException):
            broker.client.create_producer(f"persistent://{NAMESPACE}/{new_topic()}")
        service.until_says("only brokers that replicate a persistent topic may send here")
        with pytest.raises(pulsar.PulsarException):
            broker.client.subscribe(f"persistent://{NAMESPACE}/{new_topic()}", "s")


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], TOKEN + "x"])
def test_a_broker_without_the_token_is_not_let_in(service: ReplicatorService, token: str | None) -> None:
    with Broker(service.url, token) as broker, pytest.raises(pulsar.PulsarException):
        broker.producer(new_topic())
    assert TOKEN not in service.log


def ask(service: ReplicatorService, *frames: bytes) -> bytes:
    """All that comes back until the service closes the connection."""
    host, _, port = service.url.partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as line:
        line.sendall(b"".join(frames))
        found = b""
        while piece := line.recv(1 << 16):
            found += piece
        return found


def connect(token: str = TOKEN) -> bytes:
    return framed(
        CommandConnect(
            client_version="t", protocol_version=21, auth_method_name="token", auth_data=token.encode()
        )
    )


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ((b"\xff\xff\xff\xff",), "a frame of 4294967295 bytes"),
        ((struct.pack(">I", 1 << 20),), "a frame of 1048576 bytes"),
        ((b"\0\0\0\x04\0\0\0\0",), "a command of an unknown type"),
        ((framed(CommandLookupTopic(topic="t", request_id=1)),), "LOOKUP before CONNECT"),
        ((connect(), connect()), "CONNECT is not served here"),
        ((connect(), struct.pack(">I", 1 << 30)), "a frame of 1073741824 bytes"),
    ],
)
def test_bytes_that_are_no_command_end_their_connection_alone(
    server: MagnetarProcess, service: ReplicatorService, frames: tuple[bytes, ...], why: str
) -> None:
    topic = new_topic()
    with Broker(service.url, TOKEN) as broker:
        producer = broker.producer(topic)
        producer.send(b"before")
        ask(service, *frames)
        producer.send(b"after")
    assert values(server, topic) == [b"before", b"after"]
    service.until_says(why)
    assert "Traceback" not in service.log


def test_a_refused_broker_hears_why_before_its_connection_ends(service: ReplicatorService) -> None:
    answer = ask(service, connect("wrong-token-of-a-broker"))
    (size,) = struct.unpack_from(">I", answer)
    kind, command, _ = read_command(memoryview(answer)[4 : 4 + size])
    assert (kind, command.message) == (BaseCommand.ERROR, "Failed to authenticate")


def test_a_record_that_the_target_never_takes_is_a_dead_letter(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    topic, to = new_topic(), make_topic(server.bootstrap, 1, max_message_bytes="2000")
    letters = tmp_path / "letters"
    namespaces = {NAMESPACE: {"Kafka": {"west": kafka_target(server.bootstrap, {topic: to})}}}
    large = os.urandom(5_000)
    arguments = ("--dead-letters", str(letters))
    with ReplicatorService(tmp_path, namespaces, arguments) as service, Broker(service.url) as broker:
        producer = broker.producer(topic)
        for content in (b"0", large, b"2"):
            producer.send(content, partition_key="k")
    assert values(server, to) == [b"0", b"2"]
    [file] = letters.iterdir()
    [letter] = [json.loads(line) for line in file.read_text().splitlines()]
    assert b64decode(letter["value"]) == large
    assert b64decode(letter["key"]) == b"k"
    assert "large" in letter["reason"].lower()


def test_messages_go_to_kinesis_while_the_line_to_it_is_cut(
    moto: MotoServer, line: Line, tmp_path: Path
) -> None:
    kinesis, stream = moto.client("kinesis"), new_topic()
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=stream)
    target = {
        "replicatorPolicies": {
            "replicationProperties": {
                "awsRegion": REGION,
                "awsEndpoint": line.url,
                "messageFormat": "FULL_MESSAGE_IN_JSON",
            },
            "topicNameMapping": {"orders": stream},
        },
        "authParamData": KEYS,
    }
    with ReplicatorService(tmp_path, {NAMESPACE: {"Kinesis": {"west": target}}}) as service:
        with Broker(service.url) as broker:
            producer = broker.producer("orders")
            for number in range(300):
                if number == 100:
                    line.cut()
                if number == 200:
                    line.mend()
                producer.send_async(
                    b"%d" % number, None, partition_key=f"k{number % 5}", properties={"n": str(number)}
                )
            producer.flush()
        assert KEYS["secretKey"] not in service.log
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, data in records_of(kinesis, stream):
        message = json.loads(data)
        value = int(b64decode(message["payloadBase64"]))
        assert message["properties"] == {"n": str(value)}
        by_key[key].append(value)
    assert {key: list(dict.fromkeys(found)) for key, found in by_key.items()} == {
        f"k{key}": list(range(key, 300, 5)) for key in range(5)
    }


def test_credentials_that_the_target_refuses_are_not_shown(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    secret = "not-hers-Zk3qPv9"
    guarded = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    with MagnetarProcess(settings=guarded.settings):
        target = kafka_target(
            f"localhost:{guarded.sasl}", {".+": "{topic}"}, sasl_username="alice", sasl_password=secret
        )
        properties = target["replicatorPolicies"]["replicationProperties"]
        properties |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        with ReplicatorService(tmp_path, {NAMESPACE: {"Kafka": {"west": target}}}) as service:
            with Broker(service.url) as broker, pytest.raises(pulsar.AuthorizationError):
                broker.producer(new_topic())
            service.until_says("Kafka refuses who writes to topic")
            assert secret not in service.log
            command_line = Path(f"/proc/{service.pid}/cmdline").read_bytes()
            assert secret.encode() not in command_line


def test_other_machines_need_a_token(tmp_path: Path, server: MagnetarProcess) -> None:
    namespaces = {NAMESPACE: {"Kafka": {"west": kafka_target(server.bootstrap, {".+": "{topic}"})}}}
    service = ReplicatorService(tmp_path, namespaces)
    command = [part.replace("127.0.0.1:", "192.0.2.1:") for part in service.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("magnetar: 192.0.2.1 can be reached from other machines: give --token-file")
