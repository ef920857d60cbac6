"""Encrypted messages: Pulsar's compaction goes by their keys, Kafka's leaves them as they are."""

import pytest

from magnetar.broker.compaction.entries import Entries
from magnetar.ledger.entry_format import EntryPrefix
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.wire.compaction.plain import PlainLatest
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import EncryptionKeys, MessageMetadata

LEDGER = LedgerId(1)


def stored(offset: int, *, is_encrypted: bool = True) -> StoredEntry:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key="k")
    if is_encrypted:
        metadata.encryption_keys.append(EncryptionKeys(key="k", value=b"v"))
    body = EntryPrefix().pulsar(1, offset, 1) + frame_entry(metadata, b"%d" % offset)
    return StoredEntry(EntryId(offset), offset, 1, memoryview(body))


@pytest.mark.parametrize(("retain_ms", "left"), [(None, [False, True]), (0, [True, True])])
def test_an_encrypted_message_goes_by_its_key_only_where_it_is_pulsars(
    retain_ms: int | None, left: list[bool]
) -> None:
    entries = Entries(PlainLatest(10, bytes(16)), (), 1, retain_ms)
    both = [stored(0), stored(1, is_encrypted=retain_ms is None)]
    assert all(entries.note(LEDGER, one) for one in both)
    assert [entries.rewrite(LEDGER, one) is not None for one in both] == left
