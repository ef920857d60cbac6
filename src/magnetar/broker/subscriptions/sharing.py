"""Batches that go out in parts: those of mixed keys to Key_Shared consumers, and what compaction has left of one.

A Kafka batch holds whatever keys a producer had; in Pulsar an entry has one key, and goes to one consumer.  So an entry
that came from Kafka is cut into parts, one for each slot that its keys hash to.  Each part goes out as an entry of its
own with just its own messages.  (An ack set that hides the others would not do: clients that acknowledge whole
batches wait for the hidden messages, too, and would never acknowledge any.)

Parts have message ids of their own.  Otherwise a consumer that is done with one of them would acknowledge all that it
has of the entry.  The number of the part stands above the entry id's lowest 40 bits.  The number follows the index of
the part's first message.  So an id means the same slot after a restart, and also when compaction has taken messages or
whole parts out of the entry.  Everywhere else such an id leads to the entry.

Of a batch of which compaction has left some messages, consumers that acknowledge get those alone, in a batch that is
shorter.  (With `compacted_out` in their place, as Pulsar's compactor has them, C++ clients show each as an empty
message, and Java's consumers wait for them before they acknowledge the batch.)

What share consumers have left of a batch (`broker/subscriptions/share/`) goes out in the same way.

Message i of a part is the i-th of its offsets; by this rule the broker turns acknowledgements of a part into offsets.
"""

from base64 import b64decode
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.base.errors import WireError
from magnetar.broker.interop.model import NO_SLOT, Part
from magnetar.broker.subscriptions.ack_sets import Range, acknowledged_ranges
from magnetar.broker.subscriptions.dispatch.hashing import slot_of
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.convert.plain import COMPACTED_OUT
from magnetar.wire.pulsar.entry import EntryView, frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

_U32: Final = Struct(">I")


_ENTRY_BITS: Final = 40  # no ledger has that many entries
# Numbers below it are of versions that counted parts: compaction would change what they mean.
_FIRST: Final = 1 << 21
_ENTRY_MASK: Final = (1 << _ENTRY_BITS) - 1


def part_entry_id(entry_id: int, first: int) -> int:
    """The entry id of the part of an entry that begins with the message of this index."""
    return entry_id | (_FIRST + first) << _ENTRY_BITS


def rest_entry_id(entry_id: int, first: int) -> int:
    """The entry id of what share consumers have left of an entry, which begins with the message of this index.

    The broker knows what it stands for only as long as it remembers the part; later it belongs to no existing part.
    """
    return part_entry_id(entry_id, _FIRST + first)


def is_rest(entry_id: int) -> bool:
    return entry_id >> _ENTRY_BITS >= 2 * _FIRST


def rest_of(view: EntryView, indexes: Sequence[int]) -> bytes | None:
    """An entry of these messages of a batch; None where they cannot be taken out of it."""
    if not view.is_batch or view.is_encrypted:
        return None
    try:
        data = _expanded(view)
        return _part(view, data, _messages(data, view), NO_SLOT, indexes).payload
    except WireError:
        return None


def of_entry_id(entry_id: int) -> tuple[int, int | None]:
    """The entry's own id, and with which message the part begins that is meant; None for the whole entry.

    A negative index belongs to no existing part.
    """
    if entry_id >> _ENTRY_BITS <= 0:
        return entry_id, None
    return entry_id & _ENTRY_MASK, (entry_id >> _ENTRY_BITS) - _FIRST


class _Message(NamedTuple):
    key: bytes
    start: int
    end: int
    is_compacted_out: bool


def split_by_key(view: EntryView) -> list[Part]:
    """The parts of a batch, in the order of their first messages; none of what is compacted out.

    Raises:
        WireError: the batch is malformed.
    """
    data = _expanded(view)
    slots: dict[int, list[int]] = {}
    messages = _messages(data, view)
    for index, message in enumerate(messages):
        if not message.is_compacted_out:
            slots.setdefault(slot_of(message.key), []).append(index)
    return [_part(view, data, messages, slot, indexes) for slot, indexes in slots.items()]


def without_compacted(view: EntryView) -> Part | None:
    """What compaction has left of a batch; None when that is all of it.

    Raises:
        WireError: the batch is malformed.
    """
    data = _expanded(view)
    if COMPACTED_OUT not in bytes(data):
        return None
    messages = _messages(data, view)
    indexes = [index for index, message in enumerate(messages) if not message.is_compacted_out]
    return None if len(indexes) == len(messages) else _part(view, data, messages, NO_SLOT, indexes)


def _part(
    view: EntryView, data: memoryview, messages: Sequence[_Message], slot: int, indexes: Sequence[int]
) -> Part:
    content = b"".join([data[messages[index].start : messages[index].end] for index in indexes])
    metadata = MessageMetadata()
    metadata.CopyFrom(view.metadata)
    metadata.num_messages_in_batch = len(indexes)
    metadata.compression = CompressionType.NONE
    metadata.uncompressed_size = len(content)
    return Part(slot, tuple(_runs(indexes)), frame_entry(metadata, content))


def _expanded(view: EntryView) -> memoryview:
    if view.metadata.compression == CompressionType.NONE:
        return view.payload
    return expand_pulsar(view.payload, view.metadata.compression, view.metadata.uncompressed_size)


def acknowledged_of_part(ranges: Sequence[Range], ack_set: Sequence[int]) -> list[Range]:
    """The offsets that an acknowledgement of a part stands for; `ranges` are the part's offsets."""
    if not ack_set:
        return list(ranges)
    found = acknowledged_ranges(ack_set, 0, sum([end - start for start, end in ranges]))
    acknowledged: list[Range] = []
    before = at = 0  # messages in front of `ranges[at]`
    for start, end in found:
        while start < end:
            low, high = ranges[at]
            if start >= before + high - low:
                before += high - low
                at += 1
                continue
            stop = min(end, before + high - low)
            acknowledged.append((low + start - before, low + stop - before))
            start = stop
    return acknowledged


def key_of(metadata: "MessageMetadata | SingleMessageMetadata") -> bytes | None:
    """The key by which Key_Shared consumers share: the ordering key, else the partition key."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if not metadata.HasField("partition_key"):
        return None
    key: str | bytes = metadata.partition_key
    raw = key.encode() if isinstance(key, str) else key  # bytes: what is not UTF-8
    if metadata.partition_key_b64_encoded:
        try:
            return b64decode(raw, validate=True)
        except ValueError:
            return raw
    return raw


def entry_slot(view: EntryView) -> int:
    """The slot of an entry as a whole; one without a key goes by who sent it and when."""
    key = key_of(view.metadata)
    return slot_of(f"{view.producer_name}-{view.sequence_id}".encode() if key is None else key)


def _messages(data: memoryview, view: EntryView) -> list[_Message]:
    keyless = f"{view.producer_name}-{view.sequence_id}".encode()
    messages = []
    at = 0
    for index in range(view.num_messages):
        start = at
        try:
            body_at = at + 4 + _U32.unpack_from(data, at)[0]
            metadata = SingleMessageMetadata.FromString(data[at + 4 : body_at])  # type: ignore[arg-type]
        except (StructError, DecodeError) as error:
            raise WireError(f"a batch whose message {index} is malformed") from error
        at = body_at + max(metadata.payload_size, 0)
        if at > len(data):
            raise WireError(f"a batch that ends in its message {index}")
        key = key_of(metadata)
        messages.append(_Message(keyless if key is None else key, start, at, metadata.compacted_out))
    return messages


def _runs(indexes: Sequence[int]) -> list[Range]:
    """Ascending numbers as half-open ranges."""
    runs: list[Range] = []
    for index in indexes:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs
