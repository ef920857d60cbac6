"""A reader of one partition: what it lets a broker send ahead."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.links import Position
from magnetar.links.pulsar.positions import number_of
from magnetar.links.pulsar.reader import AHEAD_BYTES, PERMITS_FIRST, PERMITS_MAX, PartitionReader
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand


class Broker:
    """Counts permits as Pulsar's broker does: it sends whole entries as long as it has any, so it may go below 0."""

    def __init__(self) -> None:
        self.permits = 0
        self.requests = 0

    def send(self, command: BaseCommand) -> None:
        self.permits += command.flow.messagePermits  # 0 in any other command

    def request_id(self) -> int:
        self.requests += 1
        return self.requests


def reader_of(broker: Any) -> PartitionReader:
    made = PartitionReader(("t", 0), "t-partition-0", 1, 0, None)
    made.began(broker)
    return made


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 6 << 20)), max_size=300))
def test_a_broker_always_may_send_more(entries: list[tuple[int, int]]) -> None:
    broker = Broker()
    reader = reader_of(broker)
    for count, size_bytes in entries:
        assert broker.permits > 0, "nothing would come any more"
        assert broker.permits == reader.permits <= PERMITS_MAX
        broker.permits -= count
        reader.took(count, size_bytes)
        reader.permit()


@pytest.mark.parametrize(("size_bytes", "permits"), [(5 << 20, 1), (1000, PERMITS_MAX)])
def test_what_is_sent_ahead_follows_the_size_of_messages(size_bytes: int, permits: int) -> None:
    broker = Broker()
    reader = reader_of(broker)
    assert broker.permits == PERMITS_FIRST
    for _ in range(2000):
        broker.permits -= 1
        reader.took(1, size_bytes)
        reader.permit()
    assert permits / 2 <= broker.permits <= permits
    assert broker.permits * size_bytes <= max(AHEAD_BYTES, size_bytes)


def test_a_reader_goes_on_behind_the_last_entry_that_has_come() -> None:
    reader = PartitionReader(("t", 0), "t-partition-0", 3, 0, None)
    earliest = reader.subscribe(7, "s").subscribe
    assert earliest.start_message_id.ledgerId == earliest.start_message_id.entryId == (1 << 64) - 1
    assert not earliest.durable
    assert (earliest.topic, earliest.consumer_id, earliest.request_id) == ("t-partition-0", 3, 7)
    reader.next = (5 << 64) + 17 + 1
    start = reader.subscribe(8, "s").subscribe.start_message_id
    assert (start.ledgerId, start.entryId) == (5, 16)


def test_a_source_has_lost_messages_if_it_ends_before_what_was_read_when_it_was_asked() -> None:
    """Entries may come between the question and its answer, which can be older than they are."""
    broker = Broker()
    reader = reader_of(broker)
    for asked_behind, read_meanwhile, last, has_lost in (
        (Position(5, 6), 0, Position(5, 6), False),
        (Position(5, 6), 9, Position(5, 6), False),
        (Position(5, 6), 0, Position(7, 0), False),
        (Position(5, 6), 0, Position(5, 5), True),
        (Position(5, 6), 0, Position(4, 900), True),
        (Position(5, 6), 0, Position(-1, -1), False),
        (Position(5, 6), 0, Position(3, -1), False),
    ):
        reader.next = number_of(asked_behind) + 1
        reader.ask_for_end()
        reader.next += read_meanwhile
        reader.answered(last)
        assert reader.has_lost is has_lost, (asked_behind, last)
        assert reader.asked is None
