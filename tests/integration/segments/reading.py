"""Reads a partition as a job outside of the server does: files by path, the rest from the server."""

from collections.abc import Iterator

from magnetar.client.rest import Located, Range, RestClient
from magnetar.ledger.entry import EntryKind
from magnetar.ledger.entry_format import decode_entry
from magnetar.storage.segment_file import SegmentFile
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.wire.convert import pulsar_to_kafka
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import read_header
from magnetar.wire.pulsar.entry import read_entry
from magnetar.wire.stored import RECORD, RECORD_BYTES


def whole_records(data: memoryview) -> Iterator[tuple[int, StoredEntry]]:
    """Each with its ledger; a last one that is cut off is left."""
    at = 0
    while at + RECORD_BYTES <= len(data):
        length, _, ledger, entry_id, last_offset, timestamp = RECORD.unpack_from(data, at)
        stop = at + RECORD_BYTES + length
        if stop > len(data):
            return
        yield ledger, StoredEntry(EntryId(entry_id), last_offset, timestamp, data[at + RECORD_BYTES : stop])
        at = stop


def values(data: memoryview) -> tuple[dict[int, bytes | None], int]:
    """By offset, of the whole records in `data`; and how many bytes those are."""
    found: dict[int, bytes | None] = {}
    consumed = 0
    for ledger, stored in whole_records(data):
        entry = decode_entry(LedgerId(ledger), stored)
        payload = entry.payload
        if entry.kind is EntryKind.PULSAR:
            payload = pulsar_to_kafka(read_entry(payload, verify=True), entry.base_offset, 0)
        header = read_header(payload)
        if not header.is_control:
            for record in read_records(payload, header):
                found[record.offset] = None if record.value is None else bytes(record.value)
        consumed += RECORD_BYTES + len(stored.body)
    return found, consumed


def from_files(located: Located, store: str, piece_bytes: int = 1 << 20) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for segment in located.segments:
        with SegmentFile.open(segment.path, store, segment.ledger) as file:
            pieces = file.pieces(segment.cuts[0][1], segment.end_position, piece_bytes)
            while (data := pieces.next()) is not None:
                some, consumed = values(data)
                found |= some
                pieces.consumed(consumed)
    return found


def from_server(client: RestClient, located: Located) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = located.tail_from
    while offset < located.to_offset:
        answer = client.entries(
            located.topic, located.partition, offset, bytes_max=100_000, end_offset=located.to_offset
        )
        last = -1
        for _, stored in whole_records(memoryview(answer.data)):
            last = stored.last_offset
        assert last >= offset, (offset, last)
        some, consumed = values(memoryview(answer.data))
        assert consumed == len(answer.data)
        found |= some
        offset = last + 1
    return found


def read_range(
    client: RestClient, wanted: Range
) -> tuple[Located, dict[int, bytes | None], dict[int, bytes | None]]:
    """What lies in files and what the server has of a range; either may begin before it, the tail also end behind it.

    A file may have grown since its end was looked up: what it holds from `tail_from` on is the server's to give.
    """
    answer = client.segments([wanted])
    located = answer.partitions[0]
    assert located.error is None, located
    assert answer.store is not None
    in_files = from_files(located, answer.store)
    filed = {offset: value for offset, value in in_files.items() if offset < located.tail_from}
    return located, filed, from_server(client, located)
