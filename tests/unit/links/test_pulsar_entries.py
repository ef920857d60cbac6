"""Entries of a cluster of Pulsar's, as a link stores them, and their positions as numbers and texts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.client.links import Position, SubscriptionPosition
from magnetar.links.pulsar.admin import is_behind
from magnetar.links.pulsar.entries import schema_version_of, stored_form, view_of
from magnetar.links.pulsar.positions import from_wire, number_of, position_in, position_of, ranges_in
from magnetar.wire.pulsar.entry import broker_metadata, frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import KeyValue, MessageMetadata

positions = st.builds(Position, st.integers(0, (1 << 63) - 1), st.integers(-1, (1 << 63) - 1))


@given(positions, positions)
def test_numbers_are_in_the_order_of_positions(one: Position, other: Position) -> None:
    assert position_of(number_of(one)) == one
    assert (number_of(one) < number_of(other)) is (one < other)
    assert number_of(Position(one.ledger_id, one.entry_id + 1)) == number_of(one) + 1


def test_positions_of_commands_and_of_the_admin_api() -> None:
    assert from_wire((1 << 64) - 1, (1 << 64) - 1) == Position(-1, -1)
    assert from_wire(5, 17) == Position(5, 17)
    assert number_of(Position(-1, -1)) < number_of(Position(0, -1)) < number_of(Position(0, 0))
    assert position_in("5:-1") == Position(5, -1)
    assert position_in("-1:-1") == Position(0, -1)
    for text in ("", "5", "5:x", None, 5, "5:1:1"):
        assert position_in(text) is None
    assert list(ranges_in("[(5:3..5:5],(5:7..8:0],(9:-1..9:4]]")) == [
        (Position(5, 3), Position(5, 5)),
        (Position(5, 7), Position(8, 0)),
        (Position(9, -1), Position(9, 4)),
    ]
    assert list(ranges_in("[]")) == list(ranges_in(None)) == []


def test_what_a_copy_has_not_yet_is_sent_again() -> None:
    holes = ((Position(5, 3), Position(5, 7)),)
    found = SubscriptionPosition("s", 0, Position(5, 1), holes, {})
    assert not is_behind(found, Position(5, 6))
    assert is_behind(found, Position(5, 7))
    assert not is_behind(SubscriptionPosition("s", 0, Position(6, 0), (), {}), Position(5, 9))


def metadata(**more: Any) -> MessageMetadata:
    properties = [KeyValue(key="k", value="v")]
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=9, properties=properties, **more)


def test_an_entry_stays_as_its_producer_has_sent_it() -> None:
    sent = frame_entry(metadata(), b"payload")
    for delivered in (sent, broker_metadata(5, 6) + sent):
        assert stored_form(view_of(memoryview(delivered))) == sent
    assert stored_form(view_of(memoryview(sent[6:]))) == sent, "an old client gives no checksum"
    with pytest.raises(WireError):
        view_of(memoryview(sent[:-1] + b"?"))


def test_an_entry_of_a_transaction_loses_it_and_nothing_else() -> None:
    delivered = frame_entry(metadata(txnid_most_bits=0, txnid_least_bits=0), b"payload")
    assert stored_form(view_of(memoryview(delivered))) == frame_entry(metadata(), b"payload")


def test_the_version_of_a_schema_is_in_the_entry() -> None:
    for version, number in ((b"", -1), ((3).to_bytes(8, "big"), 3), (b"other", -1)):
        made = metadata()
        if version:
            made.schema_version = version
        view = read_entry(memoryview(frame_entry(made, b"")), verify=True)
        assert schema_version_of(view) == number
