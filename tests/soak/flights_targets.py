"""Systems to which replicators send flights: how each is configured, killed, started again, and read.

moto's server keeps all in memory, so Kinesis and DynamoDB are not killed: the line to them is cut.
"""

import json
import logging
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pulsar
from boto3.dynamodb.types import TypeDeserializer

from magnetar.testing.server import MagnetarProcess
from tests.aws_peer import KEYS, REGION, Line, MotoServer, records_of
from tests.kafka_peer import KafkaPeer
from tests.pulsar_peer import PulsarPeer, admin
from tests.soak.flights_history import Flight, Found
from tests.spark.replicated import copied, full, make_topic

PARTITIONS: Final = 2
REPLICATED_FROM: Final = "replicated_from"
_NAME: Final = "flights"


class Target(Protocol):
    """A system outside.  `is_once`: docs/reference/replicators.md says that a record is there once."""

    is_once: bool

    def configuration(self) -> dict[str, Any]:
        """The part of a replicator's configuration that is about the target."""
        ...

    def kill(self) -> None: ...

    def start(self) -> None:
        """Start it again with what it had."""
        ...

    def found(self) -> list[Found]:
        """What it has, of each key in order."""
        ...

    def as_found(self, flight: Flight) -> Flight:
        """The flight as it must be found: some targets keep no order of headers."""
        ...


class Kafka:
    """A real Apache Kafka."""

    def __init__(self, peer: KafkaPeer, *, is_once: bool) -> None:
        self.is_once = is_once
        self.kill = peer.kill
        self.start = peer.start
        self._bootstrap = peer.bootstrap
        self._topic = make_topic(peer.bootstrap, PARTITIONS)

    def configuration(self) -> dict[str, Any]:
        once = {"transactional.id": _NAME} if self.is_once else {}
        properties = {"bootstrap.servers": self._bootstrap, **once}
        return {"type": "Kafka", "target": self._topic, "properties": properties}

    def found(self) -> list[Found]:
        return copied(self._bootstrap, self._topic)

    def as_found(self, flight: Flight) -> Flight:
        return flight


class _ByPulsar:
    """A target by Pulsar's protocol, whose namespace deduplicates.  Properties are a map: their order is free."""

    is_once = True
    _url: str

    def configuration(self) -> dict[str, Any]:
        return {"type": "Pulsar", "target": full(_NAME), "properties": {"serviceUrl": self._url}}

    def as_found(self, flight: Flight) -> Flight:
        return flight._replace(headers=tuple(sorted((*flight.headers, (REPLICATED_FROM, b"magnetar")))))


class SecondMagnetar(_ByPulsar):
    def __init__(self, server: MagnetarProcess) -> None:
        self.kill = server.kill
        self.start = server.restart
        self._url = server.pulsar_url
        self._bootstrap = server.bootstrap
        _deduplicate(server.http_url)
        admin(server.http_url, f"persistent/public/default/{_NAME}/partitions", "PUT", PARTITIONS)

    def found(self) -> list[Found]:
        records = copied(self._bootstrap, _NAME)
        return [(key, value, tuple(sorted(headers))) for key, value, headers in records]


class Pulsar(_ByPulsar):
    """A real Apache Pulsar."""

    def __init__(self, peer: PulsarPeer) -> None:
        self.kill = peer.kill
        self.start = peer.start
        self._url = peer.url
        _deduplicate(peer.http_url)
        peer.ask(f"persistent/public/default/{_NAME}/partitions", "PUT", PARTITIONS)

    def found(self) -> list[Found]:
        silent = logging.getLogger("tests.soak.flights_targets")
        silent.setLevel(logging.CRITICAL + 1)
        client = pulsar.Client(self._url, logger=silent)
        try:
            return [one for number in range(PARTITIONS) for one in _messages(client, number)]
        finally:
            client.close()


def _messages(client: pulsar.Client, partition: int) -> Iterator[Found]:
    reader = client.create_reader(f"{full(_NAME)}-partition-{partition}", pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(60_000)
        headers = tuple(sorted((name, value.encode()) for name, value in message.properties().items()))
        yield message.partition_key().encode(), message.data(), headers


def _deduplicate(http_url: str) -> None:
    admin(http_url, "namespaces/public/default/deduplication", "POST", True)


class _ByLine:
    def __init__(self, moto: MotoServer, line: Line) -> None:
        self.kill = line.cut
        self.start = line.mend
        self._moto = moto
        self._endpoint = {"awsRegion": REGION, "awsEndpoint": line.url}

    def as_found(self, flight: Flight) -> Flight:
        return flight


class Kinesis(_ByLine):
    is_once = False

    def __init__(self, moto: MotoServer, line: Line) -> None:
        super().__init__(moto, line)
        self._client = moto.client("kinesis")
        self._client.create_stream(StreamName=_NAME, ShardCount=2)
        self._client.get_waiter("stream_exists").wait(StreamName=_NAME)

    def configuration(self) -> dict[str, Any]:
        properties = {**self._endpoint, "messageFormat": "FULL_MESSAGE_IN_JSON"}
        return {"type": "Kinesis", "target": _NAME, "properties": properties, "credentials": KEYS}

    def found(self) -> list[Found]:
        return [_of_json(key, json.loads(data)) for key, data in records_of(self._client, _NAME)]


def _of_json(key: str, content: Mapping[str, Any]) -> Found:
    headers = tuple((name, value.encode()) for name, value in content["properties"].items())
    return key.encode(), b64decode(content["payloadBase64"]), headers


class DynamoDb(_ByLine):
    is_once = True

    def __init__(self, moto: MotoServer, line: Line) -> None:
        super().__init__(moto, line)
        self._client = moto.client("dynamodb")
        types = {"place": "S", "number": "N"}
        self._client.create_table(
            TableName=_NAME,
            KeySchema=[
                {"AttributeName": name, "KeyType": kind}
                for name, kind in zip(types, ("HASH", "RANGE"), strict=True)
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind} for name, kind in types.items()
            ],
            BillingMode="PAY_PER_REQUEST",
        )

    def configuration(self) -> dict[str, Any]:
        return {"type": "DynamoDB", "target": _NAME, "properties": self._endpoint, "credentials": KEYS}

    def found(self) -> list[Found]:
        read = TypeDeserializer()
        pages = self._client.get_paginator("scan").paginate(TableName=_NAME)
        items = [
            {name: read.deserialize(value) for name, value in item.items()}
            for page in pages
            for item in page["Items"]
        ]
        items.sort(key=lambda item: (item["place"], item["number"]))
        return [
            (
                bytes(item["__key"]),
                bytes(item["__value"]),
                tuple((one["name"], bytes(one["value"])) for one in item["__headers"]),
            )
            for item in items
        ]


@contextmanager
def _kafka(folder: Path, *, is_once: bool = False) -> Iterator[Target]:
    with KafkaPeer(folder / "kafka") as peer:
        yield Kafka(peer, is_once=is_once)


@contextmanager
def _kafka_once(folder: Path) -> Iterator[Target]:
    with _kafka(folder, is_once=True) as target:
        yield target


@contextmanager
def _magnetar(folder: Path) -> Iterator[Target]:
    with MagnetarProcess(data_dir=folder / "magnetar") as server:
        yield SecondMagnetar(server)


@contextmanager
def _pulsar(folder: Path) -> Iterator[Target]:
    with PulsarPeer(folder / "pulsar") as peer:
        yield Pulsar(peer)


@contextmanager
def _kinesis(folder: Path) -> Iterator[Target]:
    with MotoServer() as moto, Line(moto.url) as line:
        yield Kinesis(moto, line)


@contextmanager
def _dynamodb(folder: Path) -> Iterator[Target]:
    with MotoServer() as moto, Line(moto.url) as line:
        yield DynamoDb(moto, line)


TARGETS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Target]]]] = {
    "kafka": _kafka,
    "kafka-once": _kafka_once,
    "magnetar": _magnetar,
    "pulsar": _pulsar,
    "kinesis": _kinesis,
    "dynamodb": _dynamodb,
}
PEERS: Final[Mapping[str, str]] = {"kafka": "kafka", "kafka-once": "kafka", "pulsar": "pulsar"}
