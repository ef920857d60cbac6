"""Rows know the version of the schema that their entry names, whatever else was in between."""

from typing import Any

from magnetar.wire.columns import Wanted, Window, decode
from tests.unit.wire.convert.records import Message, Sent, kafka_batch, pulsar_single

from .stored import Log


def test_each_row_has_the_version_that_its_entry_names() -> None:
    log = Log(first_offset=40)
    for version in (3, None, 1 << 40):
        encoded: dict[str, Any] = {} if version is None else {"schema_version": version.to_bytes(8, "big")}
        log.pulsar(pulsar_single(Message(b"x"), **encoded))
    log.kafka(kafka_batch([Sent(1, b"k", b"v")] * 2))
    log.pulsar(pulsar_single(Message(b"x"), schema_version=b"short"))
    wanted = Wanted(schema_version=True)
    found = decode(log.data, wanted).columns.schema_version
    assert found is not None
    assert found.tolist() == [3, -1, 1 << 40, -1, -1, -1]
    found = decode(log.data, wanted, Window(from_offset=42, to_offset=44)).columns.schema_version
    assert found is not None
    assert found.tolist() == [1 << 40, -1]
    assert decode(log.data).columns.schema_version is None
