"""The fields of values that a target gets, by the versions of a topic's schema; fastavro writes them."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa

from magnetar.pipelines.connector.columns import KAFKA_TYPES, OTHER_TYPES
from magnetar.pipelines.kinds.replicator.fields import VERSION, FieldReader
from magnetar.pipelines.kinds.replicator.records import chunks
from magnetar.pipelines.values.topic_schema import TopicSchema

FIRST = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
SECOND = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "b", "type": {"type": "map", "values": "long"}}, {"name": "a", "type": "string"}],
}
VERSIONS = [
    TopicSchema("AVRO", json.dumps(one), version=number) for number, one in enumerate((FIRST, SECOND))
]


@dataclass
class Known:
    """The schemas of a topic; `asked` has what was asked for."""

    versions: Sequence[TopicSchema] = ()
    asked: list[int | None] = field(default_factory=list)

    def newest(self, topic: str) -> TopicSchema | None:
        self.asked.append(None)
        return self.versions[-1] if self.versions else None

    def version(self, topic: str, version: int) -> TopicSchema | None:
        self.asked.append(version)
        return self.versions[version] if version < len(self.versions) else None


@dataclass
class Rows:
    values: Sequence[tuple[int, bytes | None]]  # with the version of each
    topic: str = "orders"
    partition: int = 0
    from_offset: int = 0

    @property
    def to_offset(self) -> int:
        return len(self.values)

    def record_batches(self, columns: list[str]) -> Any:
        content: dict[str, list[Any]] = {
            "key": [None] * len(self.values),
            "value": [value for _, value in self.values],
            "offset": list(range(len(self.values))),
            "timestamp": [0] * len(self.values),
            "headers": [None] * len(self.values),
            VERSION: [version for version, _ in self.values],
        }
        types = KAFKA_TYPES | OTHER_TYPES | {VERSION: pa.int64()}
        yield pa.RecordBatch.from_arrays(
            [pa.array(content[name], types[name]) for name in columns], names=columns
        )


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def fields(rows: Rows, known: Known) -> list[Mapping[str, Any] | None]:
    return [one.fields for chunk in chunks(rows, FieldReader(known)) for one in chunk]


def test_a_value_is_read_with_its_own_version_and_else_with_the_newest() -> None:
    first, second = {"a": 7}, {"a": "x", "b": {"k": 1 << 40}}
    known = Known(VERSIONS)
    rows = [
        (1, avro(SECOND, second)),
        (0, avro(FIRST, first)),
        (-1, avro(SECOND, second)),
        (0, avro(FIRST, first)),
    ]
    assert fields(Rows(rows), known) == [second, first, second, first]
    assert sorted(known.asked, key=str) == [0, 1, None]  # once each


def test_a_value_that_does_not_follow_the_schema_has_no_fields() -> None:
    rows = [(0, avro(FIRST, {"a": 7})), (0, b"no avro"), (0, None)]
    assert fields(Rows(rows), Known(VERSIONS)) == [{"a": 7}, None, None]


def test_without_a_schema_of_fields_there_are_none() -> None:
    for known in (Known(), Known([TopicSchema("BYTES")]), Known([TopicSchema("PROTOBUF", "x")])):
        assert fields(Rows([(-1, b"{}")]), known) == [None]


def test_a_target_that_does_not_want_fields_gets_none() -> None:
    assert [one.fields for chunk in chunks(Rows([(0, avro(FIRST, {"a": 7}))])) for one in chunk] == [None]
