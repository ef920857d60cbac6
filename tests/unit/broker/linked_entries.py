"""Entries of another cluster of Pulsar's, as a link sends them."""

from typing import Any

from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.linked import framed
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

NOW_MS = 1_700_000_000_000


def entry(number: int, count: int = 1, **metadata: Any) -> bytes:
    """What a producer sends: `count` messages in a batch, or one alone, whose payload says the number."""
    made = MessageMetadata(producer_name="p", sequence_id=number, publish_time=NOW_MS + number, **metadata)
    payload = b"%d" % number
    if count > 1:
        made.num_messages_in_batch = count
        payload = payload.ljust(10 * count, b".")
    return frame_entry(made, payload)


def sent(*positions: tuple[int, int], count: int = 1) -> bytes:
    """Entries at these positions, whose numbers are their entry ids."""
    return b"".join(framed(*one, entry(one[1], count)) for one in positions)
