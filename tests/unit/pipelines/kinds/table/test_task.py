"""From slices to files and dead letters, and a configuration to what is done; without Spark and without a server."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from magnetar.base.errors import ConfigError
from magnetar.pipelines.connector.columns import KAFKA_TYPES, OTHER_TYPES
from magnetar.pipelines.kinds.table.config import TableConfig, checked
from magnetar.pipelines.kinds.table.errors import Undecodable
from magnetar.pipelines.kinds.table.task import TableTask
from magnetar.pipelines.targets.errors import SchemaConflict
from magnetar.pipelines.targets.iceberg.history import IcebergHistory
from magnetar.pipelines.targets.iceberg.target import IcebergTarget
from magnetar.pipelines.targets.target import Batch
from magnetar.pipelines.values.topic_schema import TopicSchema
from tests.unit.pipelines.targets.test_targets import rows_of

QUERY = "0f2e3d4c-aaaa-bbbb-cccc-000000000000"


@dataclass
class FakeSlice:
    """Values of a partition from an offset on; None for a null value."""

    values: Sequence[bytes | None]
    topic: str = "flights"
    partition: int = 0
    from_offset: int = 0
    version: int = -1
    asked: list[str] = field(default_factory=list)

    @property
    def to_offset(self) -> int:
        return self.from_offset + len(self.values)

    def record_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        self.asked = columns
        types = KAFKA_TYPES | OTHER_TYPES
        for at, value in enumerate(self.values):
            offset = self.from_offset + at
            row: dict[str, Any] = {
                "key": b"k%d" % offset,
                "value": value,
                "topic": self.topic,
                "partition": self.partition,
                "offset": offset,
                "timestamp": offset,
                "headers": [{"key": "own", "value": b"\xff"}],
                "__schemaVersion": self.version,
            }
            yield pa.RecordBatch.from_arrays(
                [pa.array([row[name]], types[name]) for name in columns], names=columns
            )


@dataclass
class FakeSchemas:
    versions: list[TopicSchema]

    def newest(self, topic: str) -> TopicSchema | None:
        return self.versions[-1] if self.versions else None

    def version(self, topic: str, version: int) -> TopicSchema | None:
        return self.versions[version]


def as_json(version: int = 0, **fields: Any) -> TopicSchema:
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    return TopicSchema("JSON", json.dumps(definition), version=version)


def config(root: Path, **more: Any) -> TableConfig:
    return TableConfig("pipe", checked({"topics": "flights", "path": str(root), **more}))


def run(
    config: TableConfig, schemas: list[TopicSchema], batch: int, *slices: FakeSlice
) -> list[dict[str, Any]]:
    """Read the slices, commit; the dead letters."""
    task = TableTask(config, FakeSchemas(schemas), QUERY, batch)
    letters = [row for found in task.run(slices) for row in found.to_pylist()]
    if task.schema is not None:
        config.target().commit(Batch(QUERY, batch, task.parts, task.schema))
    return letters


def rows(root: Path, *columns: str) -> list[tuple[Any, ...]]:
    table = DeltaTable(str(root)).to_pyarrow_table().select(["__offset", *columns])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_values_become_rows_and_nulls_stay(tmp_path: Path) -> None:
    values = [b'{"a": 1}', None, b'{"a": 3}']
    assert run(config(tmp_path), [as_json(a="int")], 0, FakeSlice(values, from_offset=7)) == []
    assert rows(tmp_path, "a", "__key", "__topic", "__partition") == [
        (7, 1, b"k7", "flights", 0),
        (8, None, b"k8", "flights", 0),
        (9, 3, b"k9", "flights", 0),
    ]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", '{"__offset":0,"a":1,"b":"x"}\n{"__offset":1,"a":null,"b":null}\n'),
        ("csv", '"__offset","a","b"\n0,1,"x"\n1,,\n'),
    ],
)
def test_a_table_may_be_files_of_text(tmp_path: Path, form: str, text: str) -> None:
    made = config(tmp_path, format=form, metadata_columns=["offset"], partition_by="none")
    part = FakeSlice([b'{"a": 1, "b": "x"}', None])
    assert run(made, [as_json(a="int", b="string")], 0, part) == []
    (file,) = [one for one in tmp_path.iterdir() if one.is_file()]
    assert (file.suffix, file.read_text()) == (f".{form}", text)


def test_an_iceberg_table_gets_the_columns_of_a_topic_once_in_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    original = IcebergTarget.file_schema

    def file_schema(target: IcebergTarget, rows: pa.Schema) -> pa.Schema:
        asked.append(rows.names)
        return original(target, rows)

    monkeypatch.setattr(IcebergTarget, "file_schema", file_schema)
    made = config(tmp_path, format="iceberg", metadata_columns=["offset"], topics=["flights", "others"])
    slices = [FakeSlice([b'{"a": 1}'], from_offset=at) for at in (0, 1)]
    run(made, [as_json(a="int")], 0, *slices, FakeSlice([b'{"a": 2}'], topic="others", from_offset=2))
    assert asked == [["__offset", "a"]] * 2, "once for each topic"
    found = rows_of(IcebergHistory(str(tmp_path))).to_pylist()
    assert sorted((row["__offset"], row["a"]) for row in found) == [(0, 1), (1, 1), (2, 2)]


def test_undecodable_records_become_dead_letters_that_say_where_they_lay(tmp_path: Path) -> None:
    values = [b'{"a": 1}', b"?", b'{"a": 3}', b'{"a": "x"}']
    letters = run(config(tmp_path), [as_json(a="int")], 0, FakeSlice(values, partition=2, from_offset=5))
    assert rows(tmp_path, "a") == [(5, 1), (7, 3)]
    assert [(row["key"], row["value"], row["topic"]) for row in letters] == [
        (b"k6", b"?", "flights-pipe-DLQ"),
        (b"k8", b'{"a": "x"}', "flights-pipe-DLQ"),
    ]
    headers = [(one["key"], one["value"]) for one in letters[1]["headers"]]
    assert headers == [
        ("own", b"\xff"),
        ("magnetar.topic", b"flights"),
        ("magnetar.partition", b"2"),
        ("magnetar.offset", b"8"),
        ("magnetar.reason", b'"a" is a text, not of the type int32'),
        ("magnetar.pipeline", b"pipe"),
    ]


def test_dead_letters_go_where_they_are_told(tmp_path: Path) -> None:
    letters = run(config(tmp_path, dead_letter="morgue"), [as_json(a="int")], 0, FakeSlice([b"?"]))
    assert [row["topic"] for row in letters] == ["morgue"]


def test_dropped_records_are_counted(tmp_path: Path) -> None:
    part = FakeSlice([b"?", b'{"a": 1}', b"!"])
    task = TableTask(config(tmp_path, dead_letter="drop"), FakeSchemas([as_json(a="int")]), QUERY, 0)
    assert list(task.run([part])) == []
    assert (task.dropped, task.rows) == (2, 1)
    assert "headers" not in part.asked


def test_fail_names_the_record_and_leaves_no_file(tmp_path: Path) -> None:
    slices = [FakeSlice([b'{"a": 1}']), FakeSlice([b'{"a": 1}', b"?"], partition=3, from_offset=9)]
    task = TableTask(config(tmp_path, dead_letter="fail"), FakeSchemas([as_json(a="int")]), QUERY, 0)
    with pytest.raises(
        Undecodable, match="topic flights partition 3 offset 10 cannot be read: Expecting value"
    ):
        list(task.run(slices))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_raw_keeps_values_whatever_the_schema_says(tmp_path: Path) -> None:
    more = {"schema": "raw", "metadata_columns": ["offset", "headers"]}
    assert run(config(tmp_path, **more), [as_json(a="int")], 0, FakeSlice([b"?", None])) == []
    header = [{"key": "own", "value": b"\xff"}]
    assert rows(tmp_path, "value", "__headers") == [(0, b"?", header), (1, None, header)]


def test_a_topic_without_a_schema_is_raw(tmp_path: Path) -> None:
    run(config(tmp_path), [], 0, FakeSlice([b"x"]))
    assert rows(tmp_path, "value") == [(0, b"x")]


def test_a_new_version_of_the_schema_adds_its_columns(tmp_path: Path) -> None:
    first = as_json(a="int")
    run(config(tmp_path), [first], 0, FakeSlice([b'{"a": 1}']))
    second = as_json(1, a="int", b="string")
    run(config(tmp_path), [first, second], 1, FakeSlice([b'{"a": 2, "b": "x"}'], from_offset=1))
    third = as_json(2, b="string", c="double")
    run(config(tmp_path), [first, second, third], 2, FakeSlice([b'{"b": "y", "c": 1.5}'], from_offset=2))
    assert rows(tmp_path, "a", "b", "c") == [(0, 1, None, None), (1, 2, "x", None), (2, None, "y", 1.5)]


def test_each_record_is_read_with_its_own_version(tmp_path: Path) -> None:
    versions = [TopicSchema("INT32", version=0), TopicSchema("INT64", version=1)]
    slices = [
        FakeSlice([b"\0\0\0\5"], version=0),
        FakeSlice([b"\0\0\0\0\0\0\0\6", b"\0\0\0\5"], from_offset=1, version=1),
        FakeSlice([b"\0\0\0\0\0\0\0\7"], from_offset=3),  # the newest one
    ]
    letters = run(config(tmp_path), versions, 0, *slices)
    assert rows(tmp_path, "value") == [(0, 5), (1, 6), (3, 7)]
    assert [row["key"] for row in letters] == [b"k2"]


def test_a_table_that_is_made_later_has_room_for_all_versions(tmp_path: Path) -> None:
    versions = [as_json(0, a="int"), as_json(1, a="long")]
    run(config(tmp_path), versions, 0, FakeSlice([b'{"a": 1099511627776}']))
    run(
        config(tmp_path), versions[:1], 1, FakeSlice([b'{"a": 5}'], from_offset=1)
    )  # its column is wider already
    assert rows(tmp_path, "a") == [(0, 1 << 40), (1, 5)]


def test_a_version_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    run(config(tmp_path), [as_json(a="int")], 0, FakeSlice([b'{"a": 1}']))
    wanted = (
        'column "a" is int32 in the table and string in version 0 of the schema of topic flights: write to'
    )
    with pytest.raises(SchemaConflict, match=wanted):
        run(config(tmp_path), [as_json(a="string")], 1, FakeSlice([b'{"a": "x"}'], from_offset=1))
    versions = [as_json(a="int"), TopicSchema("PROTOBUF", "", version=1)]
    with pytest.raises(
        SchemaConflict, match="version 1 of the schema of topic flights: a schema of the type PROTOBUF"
    ):
        run(config(tmp_path), versions, 1, FakeSlice([b"x"], from_offset=1))
    assert rows(tmp_path, "a") == [(0, 1)]


def test_two_topics_share_a_table(tmp_path: Path) -> None:
    both = config(tmp_path, topics=["flights", "others"])
    slices = [FakeSlice([b'{"a": 1}']), FakeSlice([b'{"a": 2}'], topic="others", from_offset=4)]
    run(both, [as_json(a="int")], 0, *slices)
    assert rows(tmp_path, "__topic", "a") == [(0, "flights", 1), (4, "others", 2)]


def test_slices_without_rows_make_no_files(tmp_path: Path) -> None:
    run(config(tmp_path), [as_json(a="int")], 0, FakeSlice([]))
    assert list(tmp_path.iterdir()) == []


# --- configuration ---


def test_defaults_are_written_out() -> None:
    values = checked({"topics": "flights", "path": "/data/flights"})
    assert values == {
        "topics": ["flights"],
        "path": "/data/flights",
        "format": "delta",
        "storage_options": {},
        "schema": "auto",
        "partition_by": "day",
        "metadata_columns": ["topic", "partition", "offset", "timestamp", "key"],
        "metadata_prefix": "__",
        "dead_letter": None,
        "trigger": "10 seconds",
        "starting": "earliest",
        "records_per_batch": 1_000_000,
        "file_bytes": 128 << 20,
        "compact_every": 0,
        "source": {},
    }
    assert checked(values) == values
    placed = checked({**values, "starting": {"flights": {"0": 3}}})
    assert placed["starting"] == '{"flights": {"0": 3}}'
    assert checked(placed) == placed
    again = TableConfig.of_json(TableConfig("pipe", values, bootstrap="host:9092").to_json())
    assert (again.name, again.bootstrap, again.values) == ("pipe", "host:9092", values)
    assert again.layout == TableConfig("pipe", values).layout


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topics": None}, "topics must be a topic's name or a list"),
        ({"topics": []}, "topics must be"),
        ({"topics": ["a,b"]}, "a list of names, not 'a,b'"),
        ({"path": ""}, "path"),
        ({"storage_options": {"AWS_BUCKET": "other"}}, "AWS_BUCKET of storage_options cannot be given"),
        (
            {"storage_options": {"azure_container_name": "x"}},
            "azure_container_name of storage_options cannot",
        ),
        ({"path": "nowhere://x/y"}, "path: nowhere://x/y cannot be opened"),
        ({"format": "hudi"}, "format must be one of delta, iceberg, parquet"),
        ({"schema": "avro"}, "schema must be one of auto, raw"),
        ({"partition_by": "week"}, "partition_by must be one of day, none, hour"),
        ({"metadata_columns": ["ofset"]}, "metadata_columns has 'ofset'"),
        ({"metadata_prefix": "a-b"}, "metadata_prefix must be"),
        ({"dead_letter": ""}, "dead_letter"),
        ({"trigger": "now"}, "trigger must be an interval"),
        ({"starting": "first"}, "starting must be"),
        ({"records_per_batch": 0}, "records_per_batch must be a number of at least 1"),
        ({"file_bytes": 5}, "file_bytes must be"),
        ({"compact_every": 4, "format": "parquet"}, "compact_every is for the format delta"),
        ({"compact_every": 4, "format": "iceberg"}, "compact_every is for the format delta"),
        *(
            ({"storage_options": {name: "/etc/passwd"}}, f"{name} of storage_options cannot be given")
            for name in (
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "aws_container_authorization_token_file",
                "azure_federated_token_file",
                "azure_use_azure_cli",
                "google_service_account",
                "service_account_path",
                "google_application_credentials",
            )
        ),
        ({"storage_options": ["x"]}, "storage_options must be an object"),
        ({"source": {"startingOffsets": "latest"}}, "use starting"),
        ({"sources": {}}, "config has no key 'sources': did you mean source"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_the_key(given: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        checked({"topics": "flights", "path": "/data/flights", **given})
    assert "\n" not in str(caught.value)


DATABASE: Mapping[str, Any] = {"topics": "t", "format": "jdbc", "database": "shop", "table": "orders"}


def test_a_table_of_a_database_has_no_files_of_its_own() -> None:
    values = checked({**DATABASE, "user": "u", "password": "p"})
    assert checked(values) == values
    assert (values["database"], values["table"], values["user"], values["password"]) == (
        "shop",
        "orders",
        "u",
        "p",
    )
    made = TableConfig("pipe", values)
    assert (made.layout.partition_by, made.file_format) == ("none", "parquet")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"table": None}, "table of config must be a text"),
        ({"table": "orders o"}, "table must be a name"),
        ({"database": ""}, "database of config must be a text"),
        ({"password": "p"}, "password needs a user"),
        ({"url": "jdbc:h2:/etc/x"}, "config has no key 'url'"),
        ({"path": "/data"}, "config has no key 'path'"),
        ({"partition_by": "day"}, "config has no key 'partition_by'"),
        ({"format": "delta", "path": "/data"}, "config has no key 'database'"),
    ],
)
def test_what_is_wrong_of_a_database_is_one_sentence(given: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        checked({**DATABASE, **given})
