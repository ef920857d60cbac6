"""Spark's own Kafka connector against our Kafka door.

It needs Maven Central, once, and a second PySpark: opt in with MAGNETAR_SPARK_KAFKA=1 where the script `spark-kafka`
lies with those of the other peers (`MAGNETAR_PEERS`).
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.peers import INSTALL_S, PEERS, installed

SCRIPT = PEERS / "spark-kafka"
PROGRAM = Path(__file__).with_name("kafka_connector.py")
RUN_SECONDS_MAX = 900  # seconds of work; a machine that has other things to do takes minutes
COUNT = 500
AT_MS = 1_700_000_000_000
MARK = "ANSWER "

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(INSTALL_S + RUN_SECONDS_MAX),
    pytest.mark.skipif(
        not os.environ.get("MAGNETAR_SPARK_KAFKA") or not os.access(SCRIPT, os.X_OK),
        reason="opt in with MAGNETAR_SPARK_KAFKA=1; needs the peers' script spark-kafka",
    ),
]

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


@pytest.fixture(scope="module")
def door() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


def connector(door: MagnetarProcess, folder: Path, tasks: Sequence[dict[str, Any]]) -> list[Any]:
    """The answers of kafka_connector.py."""
    installed("spark-kafka")
    done = subprocess.run(
        [SCRIPT, "python", PROGRAM, door.bootstrap, folder],
        input=json.dumps(list(tasks)),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line.removeprefix(MARK)) for line in done.stdout.splitlines() if line.startswith(MARK)]


def create(door: MagnetarProcess, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": door.bootstrap})
    keep = {"retention.ms": "-1"}  # the records say that they are years old
    for made in admin.create_topics([NewTopic(topic, 2, 1, config=keep) for topic in topics]).values():
        made.result(20)


def rows(partition: int) -> list[Row]:
    """Keys and values that are null, empty and no UTF-8 among them."""
    keys = (None, b"", b"\xff\x00", b"k")
    values = (b"", b"\xfe", b"x" * 300)
    return [
        (keys[n % 4], values[n % 3] + b"%d" % n, [("h", b"%d" % n)] if n % 5 == 0 else [])
        for n in range(partition, COUNT, 2)
    ]


def by_kafka(door: MagnetarProcess, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": door.bootstrap, "compression.type": codec})
    for partition in range(2):
        for number, (key, value, headers) in enumerate(rows(partition)):
            producer.produce(
                topic, value, key, partition=partition, timestamp=AT_MS + number, headers=list(headers)
            )
    assert producer.flush(20) == 0


def expected(topic: str) -> dict[str, Any]:
    """What `Connector.read` says of a topic that `by_kafka` has filled."""
    found = {}
    for partition in range(2):
        held = [
            [
                None if key is None else key.decode("latin-1"),
                None if value is None else value.decode("latin-1"),
                offset,
                AT_MS + offset,
                [[name, header.decode("latin-1")] for name, header in headers],
            ]
            for offset, (key, value, headers) in enumerate(rows(partition))
        ]
        digest = hashlib.sha256(json.dumps(held).encode()).hexdigest()
        found[f"{topic}-{partition}"] = {"count": len(held), "offsets": [0, len(held) - 1], "digest": digest}
    return found


def counts(answer: dict[str, Any]) -> int:
    return sum(place["count"] for place in answer.values())


def test_the_connector_reads_writes_and_goes_on(door: MagnetarProcess, tmp_path: Path) -> None:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    create(door, *(f"by-{codec}" for codec in codecs), "aborted", "written", "copied")
    for codec in codecs:
        by_kafka(door, f"by-{codec}", codec)
    client = pulsar.Client(door.pulsar_url)
    producer = client.create_producer("by-pulsar", compression_type=pulsar.CompressionType.LZ4)
    for number in range(COUNT):
        producer.send_async(b"%d" % number, lambda _result, _message_id: None)
    producer.flush()
    client.close()
    transactional = confluent_kafka.Producer(
        {"bootstrap.servers": door.bootstrap, "transactional.id": "t", "transaction.timeout.ms": 60_000}
    )
    transactional.init_transactions(20)
    for number, end in enumerate((transactional.commit_transaction, transactional.abort_transaction)):
        transactional.begin_transaction()
        transactional.produce("aborted", b"%d" % number, partition=0)
        assert transactional.flush(20) == 0, "what was not sent cannot be aborted"
        end(20)

    earliest = {"startingOffsets": "earliest"}
    all_rows, some, pulsars, committed, uncommitted, written, first, second = connector(
        door,
        tmp_path,
        [
            {"do": "read", "subscribePattern": "by-(none|gzip|snappy|lz4|zstd)", "includeHeaders": "true"},
            {"do": "read", "subscribe": "by-lz4", "startingTimestamp": str(AT_MS + 200)},
            {"do": "read", "subscribe": "by-pulsar", **earliest},
            {"do": "read", "subscribe": "aborted", "kafka.isolation.level": "read_committed"},
            {"do": "read", "subscribe": "aborted"},
            {"do": "write", "topic": "written", "count": COUNT},
            {"do": "copy", "source": "by-zstd", "target": "copied", "maxOffsetsPerTrigger": "200", **earliest,
             "includeHeaders": "true"},
            {"do": "copy", "source": "by-zstd", "target": "copied", "maxOffsetsPerTrigger": "200", **earliest,
             "includeHeaders": "true"},
        ],
    )  # fmt: skip
    assert all_rows == {name: place for codec in codecs for name, place in expected(f"by-{codec}").items()}
    assert {name: place["offsets"] for name, place in some.items()} == {
        "by-lz4-0": [200, COUNT // 2 - 1],
        "by-lz4-1": [200, COUNT // 2 - 1],
    }
    assert counts(pulsars) == COUNT
    assert (counts(committed), counts(uncommitted)) == (1, 2)
    assert written == COUNT
    assert sum(first) == COUNT
    assert max(first) <= 200
    assert sum(second) == 0, "what was copied is not copied again"
    found = connector(
        door,
        tmp_path,
        [{"do": "read", "subscribe": topic, **earliest} for topic in ("written", "copied")],
    )
    assert [counts(each) for each in found] == [COUNT, COUNT]
