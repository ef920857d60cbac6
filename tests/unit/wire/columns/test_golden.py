"""Bytes that were written once have the same rows for ever, and the same columns the same bytes.

`log-v1.bin` is a log of both protocols' clients, in all compressions; `log-v1.json` its rows; `batch-v1.bin` two of
them as a record batch.  `golden_log` and `golden_batch` made the files.  A change of what comes out has to make new
ones beside them, and to say what becomes of logs that exist.
"""

import json
from pathlib import Path
from typing import Any

from magnetar.wire.columns import Columns, Producer, Wanted, decode, encode
from magnetar.wire.columns.model import BinaryColumn
from tests.unit.wire.convert.records import Message, Sent, kafka_batch, pulsar_batch, pulsar_single

from .stored import NOW_MS, Log
from .test_decode import KAFKA_CODECS, PULSAR_CODECS, chunk
from .test_encode import columns_of

GOLDEN = Path(__file__).parent / "golden"
SENT = [
    Sent(NOW_MS, b"key", b"value", [("trace", b"\xfe\xff"), ("trace", None), ("ä", b"")]),
    Sent(NOW_MS + 5, None, b""),
    Sent(NOW_MS - 5, b"", None),
]
MESSAGES = [
    Message(b"value", key="key", properties=[("a", "b"), ("n;0;null", ""), ("x;0;base64", "/v8=")]),
    Message(b"", key="/v8=", key_is_base64=True, ordering_key=b"order", event_time_ms=NOW_MS - 9),
    Message(b"gone", compacted_out=True),
    Message(b"", is_null=True),
]


def golden_log() -> bytes:
    log = Log(1000)
    for codec in KAFKA_CODECS:
        log.kafka(kafka_batch(SENT, codec))
    for codec in PULSAR_CODECS:
        log.pulsar(pulsar_batch(MESSAGES, NOW_MS, codec))
        log.pulsar(pulsar_single(MESSAGES[0], NOW_MS, codec))
    for number, part in enumerate((b"one ", b"two ", b"three")):
        log.pulsar(chunk(number, part, 13), readable=False)
    return log.data


def golden_batch() -> memoryview:
    (batch,) = encode(columns_of(SENT[:2]), producer=Producer(7, 1, 12, transactional=True))
    return batch


def as_json(columns: Columns) -> Any:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    def texts(column: BinaryColumn | None) -> list[str | None]:
        assert column is not None
        return [text(column[at]) for at in range(columns.count)]

    assert columns.headers is not None
    assert columns.offset is not None
    assert columns.timestamp_us is not None
    return {
        "offset": columns.offset.tolist(),
        "timestamp_us": columns.timestamp_us.tolist(),
        "key": texts(columns.key),
        "value": texts(columns.value),
        "headers": [
            [[name, text(value)] for name, value in columns.headers[at]] for at in range(columns.count)
        ],
    }


def test_a_log_has_the_rows_that_it_always_had() -> None:
    decoded = decode((GOLDEN / "log-v1.bin").read_bytes(), Wanted(headers=True))
    assert decoded.undecodable == []
    assert decoded.needs_assembly == []
    assert as_json(decoded.columns) == json.loads((GOLDEN / "log-v1.json").read_text())


def test_columns_become_the_bytes_that_they_always_became() -> None:
    assert bytes(golden_batch()) == (GOLDEN / "batch-v1.bin").read_bytes()
