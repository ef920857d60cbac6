"""What Pulsar's and Kafka's clients write, by every type of schema, read back from a Delta table; without Spark."""

import enum
import json
import struct
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pulsar
import pytest
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pulsar.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    BytesSchema,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    ProtobufNativeSchema,
    Record,
    Schema,
    String,
    StringSchema,
)

from magnetar.client.rest import RestClient
from magnetar.pipelines.connector.read.filters import Restriction
from magnetar.pipelines.connector.read.options import parse
from magnetar.pipelines.connector.read.reader import plan_batch
from magnetar.pipelines.kinds.table.config import TableConfig, checked
from magnetar.pipelines.kinds.table.task import TableTask
from magnetar.pipelines.kinds.topic_schemas import ServerSchemas
from magnetar.pipelines.targets.target import Batch
from magnetar.testing.server import MagnetarProcess

QUERY = "0f2e3d4c-aaaa-bbbb-cccc-000000000000"
pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"num.partitions": "1"}) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


Table = Callable[..., tuple[list[dict[str, Any]], list[dict[str, Any]]]]


@pytest.fixture
def table(server: MagnetarProcess, tmp_path: Path) -> Table:
    """`table("topic")`: the rows of a table made of all that is in the topic, in order, and the dead letters."""

    def _table(topic: str, **more: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        config = TableConfig("pipe", checked({"topics": topic, "path": str(tmp_path / "table"), **more}))
        options = {"subscribe": topic, "admin.url": server.http_url, "descriptors": "true"}
        tasks = plan_batch(parse(options, streaming=False), Restriction())
        with RestClient(server.http_url) as rest:
            work = TableTask(config, ServerSchemas(rest), QUERY, 0)
            slices = (part for task in tasks for part in task.slices())
            dead = [row for found in work.run(slices) for row in found.to_pylist()]
        assert work.schema is not None
        config.target().commit(Batch(QUERY, 0, work.parts, work.schema))
        found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().sort_by("__offset")
        own = [name for name in found.column_names if name.startswith("__") or name == "record_date"]
        return found.drop_columns(own).to_pylist(), dead

    return _table


def send(client: pulsar.Client, topic: str, schema: Schema, *values: Any, **options: Any) -> None:
    producer = client.create_producer(topic, schema=schema, **options)
    for value in values:
        producer.send(value)
    producer.close()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Inner(Record):  # type: ignore[misc]
    n = Integer()


class Everything(Record):  # type: ignore[misc]
    flag = Boolean()
    small = Integer()
    large = Long()
    single = Float()
    real = Double()
    text = String()
    data = Bytes()
    items = Array(Integer())
    words = Map(String())
    inner = Inner()


ROW = {
    "flag": True,
    "small": -1,
    "large": 1 << 40,
    "single": 0.5,
    "real": 0.1,
    "text": "né",
    "data": b"bytes",
    "items": [1, 2],
    "words": {"k": "v"},
    "inner": Inner(n=5),
}
SEEN = {**ROW, "words": [("k", "v")], "inner": {"n": 5}}
EMPTY = {
    **dict.fromkeys(ROW),
    "flag": False,
    "inner": {"n": None},
}  # what the client makes of a record without values


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_records(client: pulsar.Client, table: Table, schema: type) -> None:
    topic = f"records-{schema.__name__}"
    send(client, topic, schema(Everything), Everything(**ROW), Everything())
    wanted = {**SEEN, "data": "bytes"} if schema is JsonSchema else SEEN
    assert table(topic) == ([wanted, EMPTY], [])


def test_compressed_batches_of_records(client: pulsar.Client, table: Table) -> None:
    producer = client.create_producer(
        "batched",
        schema=AvroSchema(Inner),
        compression_type=pulsar.CompressionType.ZSTD,
        batching_enabled=True,
    )
    for n in range(1_000):
        producer.send_async(Inner(n=n), None)
    producer.flush()
    producer.close()
    assert table("batched") == ([{"n": n} for n in range(1_000)], [])


def test_protobuf(client: pulsar.Client, table: Table) -> None:
    F = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="place.proto", package="p", syntax="proto3")
    place = file.message_type.add(name="Place")
    place.field.add(name="name", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    place.field.add(name="heights", number=2, type=F.TYPE_DOUBLE, label=F.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    Place: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Place"))
    send(client, "places", ProtobufNativeSchema(Place), Place(name="here", heights=[1.5, 2]), Place())
    assert table("places") == ([{"name": "here", "heights": [1.5, 2.0]}, {"name": "", "heights": []}], [])


@pytest.mark.parametrize(
    ("kind", "layout", "value"),
    [
        ("BOOLEAN", ">?", True),
        ("INT8", ">b", -5),
        ("INT16", ">h", -500),
        ("INT32", ">i", 1 << 30),
        ("INT64", ">q", 1 << 60),
        ("FLOAT", ">f", 0.5),
        ("DOUBLE", ">d", 0.1),
    ],
)
def test_numbers(
    client: pulsar.Client, server: MagnetarProcess, table: Table, kind: str, layout: str, value: Any
) -> None:
    """The client has no schemas of these types, so they are declared as an administrator does."""
    declare(server, f"numbers-{kind}", kind, "", {})
    send(client, f"numbers-{kind}", BytesSchema(), struct.pack(layout, value))
    assert table(f"numbers-{kind}") == ([{"value": value}], [])


def test_texts(client: pulsar.Client, table: Table) -> None:
    send(client, "texts", StringSchema(), "né", "")
    assert table("texts") == ([{"value": "né"}, {"value": ""}], [])


def test_bytes(client: pulsar.Client, table: Table) -> None:
    send(client, "octets", BytesSchema(), b"\xff\x00")
    assert table("octets") == ([{"value": b"\xff\x00"}], [])


def declare(server: MagnetarProcess, topic: str, kind: str, schema: str, properties: dict[str, str]) -> None:
    request = urllib.request.Request(
        f"{server.http_url}/admin/v2/schemas/public/default/{topic}/schema",
        json.dumps({"type": kind, "schema": schema, "properties": properties}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


PAIR = {"type": "record", "name": "V", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_pairs(client: pulsar.Client, server: MagnetarProcess, table: Table, encoding: str) -> None:
    topic = f"pairs-{encoding.lower()}"
    properties = {"key.schema.type": "STRING", "value.schema.type": "JSON", "kv.encoding.type": encoding}
    declare(server, topic, "KEY_VALUE", json.dumps({"key": "", "value": PAIR}), properties)
    value = b'{"a":7}'
    producer = client.create_producer(topic)
    if encoding == "INLINE":
        producer.send(struct.pack(">i", 1) + b"k" + struct.pack(">i", len(value)) + value)
    else:
        producer.send(value, partition_key="k")
    producer.close()
    assert table(topic) == ([{"key": "k", "value": {"a": 7}}], [])


def test_what_a_schema_does_not_describe_becomes_dead_letters(
    client: pulsar.Client, server: MagnetarProcess, table: Table
) -> None:
    send(client, "mixed", JsonSchema(Inner), Inner(n=1))
    producer = client.create_producer("mixed")
    producer.send(b"no json", properties={"why": "test"}, partition_key="k")
    producer.close()
    kafka = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    kafka.produce("mixed", b'{"n": 2}', b"key")
    kafka.produce("mixed", None, b"key")
    assert kafka.flush(30) == 0
    rows, dead = table("mixed")
    assert rows == [{"n": 1}, {"n": 2}, {"n": None}]
    assert [(row["key"], row["value"], row["topic"]) for row in dead] == [
        (b"k", b"no json", "mixed-pipe-DLQ")
    ]
    headers = {one["key"]: one["value"] for one in dead[0]["headers"]}
    assert headers["why"] == b"test"
    assert headers["magnetar.offset"] == b"1"
    assert headers["magnetar.reason"].startswith(b"Expecting value")


def test_each_value_is_read_with_the_version_it_was_written_with(client: pulsar.Client, table: Table) -> None:
    class V1(Record):  # type: ignore[misc]
        _avro_namespace = "x"
        a = Integer(required=True)

    class V2(Record):  # type: ignore[misc]
        _avro_namespace = "x"
        b = String(required=True, default="", required_default=True)
        a = Integer(required=True)

    definition = V2.schema()
    definition["name"] = "V1"  # one record, two versions
    second = AvroSchema(V2, definition)
    send(client, "versions", AvroSchema(V1), V1(a=1))
    old = client.create_producer("versions", schema=AvroSchema(V1))
    send(client, "versions", second, V2(a=2, b="two"))
    old.send(V1(a=3))
    old.close()
    assert table("versions") == ([{"a": 1, "b": None}, {"a": 2, "b": "two"}, {"a": 3, "b": None}], [])
