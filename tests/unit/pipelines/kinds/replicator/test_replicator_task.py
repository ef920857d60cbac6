"""What a task does when its target takes records, takes them later, or never; without Spark and without a server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.connector.columns import KAFKA_TYPES, OTHER_TYPES
from magnetar.pipelines.kinds.replicator import records
from magnetar.pipelines.kinds.replicator.config import ReplicatorConfig, checked
from magnetar.pipelines.kinds.replicator.task import ReplicatorTask
from magnetar.replicators.delivery import PAUSES_S
from magnetar.replicators.errors import CredentialsRefused, PoisonRecords, TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer

CONFIG: dict[str, Any] = {
    "topic": "persistent://public/default/orders",
    "type": "Kafka",
    "region": "us-west1",
    "target": "copy",
    "properties": {"bootstrap.servers": "kafka:9092"},
    "auth_plugin": None,
    "credentials": None,
}


@dataclass
class Rows:
    """A slice with one record for each value, in Arrow batches of three."""

    values: Sequence[bytes | None]
    topic: str = "orders"
    partition: int = 1
    from_offset: int = 10
    headers: Sequence[tuple[str, bytes | None]] = (("h", b"\xff"), ("h", None))

    @property
    def to_offset(self) -> int:
        return self.from_offset + len(self.values)

    def record_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        types = KAFKA_TYPES | OTHER_TYPES
        for first in range(0, len(self.values), 3):
            rows: list[dict[str, Any]] = [
                {
                    "key": b"k" if at % 2 else None,
                    "value": self.values[at],
                    "offset": self.from_offset + at,
                    "timestamp": 1_700_000_000_000_999 + at * 1000,
                    "headers": [{"key": name, "value": value} for name, value in self.headers] or None,
                }
                for at in range(first, min(first + 3, len(self.values)))
            ]
            yield pa.RecordBatch.from_arrays(
                [pa.array([row[name] for row in rows], types[name]) for name in columns], names=columns
            )


@dataclass
class Target:
    """What has arrived, and what becomes of each flush: an error, or None.  Producers come from here, too."""

    answers: list[Exception | None] = field(default_factory=list)
    arrived: list[ReplicatedRecord] = field(default_factory=list)
    opened: int = 0
    open: bool = False

    def get(self) -> ReplicatorProducer:
        self.opened += not self.open
        self.open = True
        return self

    def drop(self) -> None:
        self.open = False

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        self.arrived += records

    def flush(self) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer

    def close(self) -> None: ...

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.arrived]


@dataclass
class Run:
    target: Target
    letters: list[dict[str, Any]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.task = ReplicatorTask(
            ReplicatorConfig("pipe", "1", checked(CONFIG), "", "", "", "pulsar.repl.Kafka.us-west1"),
            self.target,
            lambda rows: self.letters.extend(rows.to_pylist()),
            self.pauses.append,
        )


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CHUNK_RECORDS", 2)


def test_a_record_is_carried_with_key_headers_and_time() -> None:
    run = Run(Target())
    assert run.task.run([Rows([b"a", None])]) is None
    headers = [("h", b"\xff"), ("h", None)]
    assert run.target.arrived == [
        ReplicatedRecord(1, 10, 1_700_000_000_000, None, b"a", headers),
        ReplicatedRecord(1, 11, 1_700_000_000_001, b"k", None, headers),
    ]
    assert run.task.sent == 2


def test_records_without_headers_have_none() -> None:
    run = Run(Target())
    assert run.task.run([Rows([b"a"], headers=())]) is None
    assert [record.headers for record in run.target.arrived] == [()]


@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_that_failed_is_sent_again_in_order_before_the_next_one() -> None:
    run = Run(Target([None, TargetUnavailable("away"), TargetUnavailable("away")]))
    assert run.task.run([Rows([b"%d" % n for n in range(5)])]) is None
    assert run.target.offsets == [10, 11, 12, 12, 12, 13, 14]
    assert run.pauses == list(PAUSES_S[:2])
    assert run.pauses[0] == 0.1
    assert run.target.opened == 3


@pytest.mark.usefixtures("small_chunks")
def test_a_target_that_stays_away_ends_the_task_with_nothing_sent_behind_the_gap() -> None:
    run = Run(Target([None] + [TargetUnavailable("away")] * 10))
    failure = run.task.run([Rows([b"%d" % n for n in range(5)]), Rows([b"next"], partition=2)])
    assert isinstance(failure, TargetUnavailable)
    assert set(run.target.offsets) == {10, 11, 12}
    assert run.pauses == list(PAUSES_S)


def test_refused_credentials_end_the_task_at_once() -> None:
    run = Run(Target([CredentialsRefused("wrong password")]))
    failure = run.task.run([Rows([b"a"])])
    assert isinstance(failure, CredentialsRefused)
    assert (run.target.opened, run.target.open, run.pauses) == (1, False, [])


def test_poison_goes_to_the_dead_letter_topic_with_its_reason_and_the_rest_goes_on() -> None:
    poison = ReplicatedRecord(1, 11, 1_700_000_000_001, b"k", b"b" * 9, [("h", None)])
    run = Run(Target([PoisonRecords([(poison, "too large")])]))
    assert run.task.run([Rows([b"a", b"b"]), Rows([b"c"], from_offset=12)]) is None
    assert run.target.offsets == [10, 11, 12]
    assert (run.task.sent, run.task.dead) == (2, 1)
    [letter] = run.letters
    assert letter["topic"] == "orders-pulsar.repl.Kafka.us-west1-DLQ"
    assert (letter["key"], letter["value"]) == (b"k", b"b" * 9)
    assert [(one["key"], one["value"]) for one in letter["headers"]] == [
        ("h", None),
        ("magnetar.topic", b"orders"),
        ("magnetar.partition", b"1"),
        ("magnetar.offset", b"11"),
        ("magnetar.reason", b"too large"),
        ("magnetar.pipeline", b"pipe"),
    ]


def test_a_large_slice_is_sent_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CHUNK_BYTES", 1000)
    sizes = [len(chunk) for chunk in records.chunks(Rows([b"x" * 200] * 9))]
    assert sizes == [3, 3, 3]


def test_secrets_are_in_a_file_of_this_account_alone(tmp_path: Path) -> None:
    values = checked({**CONFIG, "credentials": {"sasl.username": "u", "sasl.password": "p"}})
    config = ReplicatorConfig("pipe", "1", values, "http://a:1", "b:1", "", "s")
    config.write(tmp_path / "private")
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert ReplicatorConfig.read(str(tmp_path / "private")) == config


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topic": "orders"}, "topic must be a full name"),
        ({"topic": "non-persistent://public/default/orders"}, "topic must be a full name"),
        ({"type": "Kafak"}, "did you mean Kafka?"),
        ({"target": "a/b"}, "cannot be a topic of Kafka"),
        ({"properties": {}}, "needs the property bootstrap.servers"),
        ({"properties": "x"}, "properties must be an object"),
        ({"credentials": {"x": "y"}}, "credentials of a replicator to Kafka"),
        ({"records_per_batch": 0}, "records_per_batch must be a number"),
        ({"zone": "x"}, "config has no key 'zone'"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked({**CONFIG, **change})
    assert said in str(caught.value)
