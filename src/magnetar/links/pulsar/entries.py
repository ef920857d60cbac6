"""Entries as a broker delivers them, and as a link stores them."""

from typing import NamedTuple

from magnetar.client.links import Position
from magnetar.links.pulsar.positions import number_of
from magnetar.wire.pulsar.entry import (
    CHECKSUM_MAGIC,
    EntryView,
    frame_entry,
    read_entry,
    split_broker_metadata,
)


class SourceEntry(NamedTuple):
    """An entry: the messages that its producer has sent at once, `message_count` of them, at `position` in the source.

    `data` is what the producer has sent, from the checksum on.  `schema_version` is -1 if it names none.
    """

    topic: str
    partition: int
    position: Position
    data: memoryview
    message_count: int
    schema_version: int

    @property
    def offset(self) -> int:
        return number_of(self.position)


def view_of(delivered: memoryview) -> EntryView:
    """What a broker delivers, without what it has put in front.

    Raises:
        WireError: it is no entry, or fails its checksum.
    """
    _, entry = split_broker_metadata(delivered)
    return read_entry(entry, verify=True)


def stored_form(view: EntryView) -> memoryview:
    """The entry as it is stored: unchanged, but with a checksum, and without a transaction, which has been decided."""
    if view.transaction is None:
        if bytes(view.data[:2]) == CHECKSUM_MAGIC:
            return view.data
        return memoryview(frame_entry(view.metadata, view.payload))
    view.metadata.ClearField("txnid_least_bits")
    view.metadata.ClearField("txnid_most_bits")
    return memoryview(frame_entry(view.metadata, view.payload))


def schema_version_of(view: EntryView) -> int:
    """The version of its topic's schema that an entry names; -1 if it names none."""
    version = view.metadata.schema_version
    return int.from_bytes(version, "big") if len(version) == 8 else -1
