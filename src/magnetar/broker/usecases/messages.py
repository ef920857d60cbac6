"""Single messages, for doors whose protocol has no batches: published by value, read by offset.

A published message is a Kafka record, as a Kafka producer would send it, so clients of both protocols can read it.  A
reader gets what readers of committed records may see, whichever protocol wrote it.  Both cost more for each message
than a protocol that passes batches on.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import WireError
from magnetar.base.tasks import settle
from magnetar.broker.errors import CorruptMessage, InvalidRecord
from magnetar.broker.history.stored_records import StoredRecords
from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.errors import NeedsOpening
from magnetar.broker.log.model import AbortedRange
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.model import Caller, Operation
from magnetar.broker.usecases.publishing import PublishCases
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.ledger.entry import Entry
from magnetar.wire.kafka.record_reader import Record, read_records
from magnetar.wire.kafka.record_scan import Budget
from magnetar.wire.kafka.record_writer import single_record
from magnetar.wire.kafka.records import read_header

READ_BYTES_MAX: Final = 1 << 20  # of entries that are looked at in one read


class MessageCases:
    """See the module's text.  Topics have the names that Kafka's clients use."""

    def __init__(
        self,
        clock: Clock,
        topic_access: TopicAccess,
        publishing: PublishCases,
        interop: Interop,
        stored_records: StoredRecords,
        opener: Opener,
    ) -> None:
        self._clock = clock
        self._topic_access = topic_access
        self._publishing = publishing
        self._interop = interop
        self._stored_records = stored_records
        self._opener = opener

    async def publish(
        self,
        caller: Caller,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int = 0,
    ) -> int:
        """Append a message; returns its offset, once it is durable.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic, TopicTerminated, RecordTooLarge,
            StorageError, ProducersHeld
            InvalidRecord: the topic is compacted, and the message has no key.
        """
        found = self._publishing.to_write(caller, topic).partition(partition)
        now_ms = self._clock.now_ms()
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            appended = found.append(
                single_record(key, value, headers, now_ms),
                now_ms,
                partial(settle, durable),
                keys_known=key is not None,
            )
        except NeedsOpening:
            raise InvalidRecord("the topic is compacted: its messages need a key") from None
        await durable
        return appended.base_offset

    async def read(
        self,
        caller: Caller,
        topic: str,
        partition: int,
        offset: int,
        *,
        messages_max: int = 100,
        wait_s: float = 0.0,
    ) -> list[Record]:
        """At most `messages_max` committed messages from `offset` on; none if none has come after `wait_s`.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, OffsetOutOfRange, StorageError
            EntryCorrupt, CorruptMessage: what is stored at `offset` cannot be read.
        """
        found = self._topic_access.get(caller, Operation.READ, topic).partition(partition)
        self._stored_records.check(found, offset)
        await self._stored_records.wait(found, offset, wait_s)
        self._topic_access.get(caller, Operation.READ, topic)  # the right may be gone
        while offset < found.last_stable_offset:
            entries = await self._entries(found, offset)
            if not entries:
                break
            end_offset = entries[-1].last_offset + 1
            aborted = found.transactions.aborted_between(offset, end_offset)
            job = partial(_messages, [one.payload for one in entries], offset, messages_max, aborted)
            try:
                messages = await self._opener.run(caller, job)
            except WireError as error:
                raise CorruptMessage(f"{found.log.name} at {offset}: {error}") from error
            if messages:
                return messages
            offset = end_offset  # markers, and what was aborted
        found.check_committed(offset)
        return []

    async def _entries(self, partition: Partition, offset: int) -> Sequence[Entry]:
        """The entries that readers of committed records may see, as Kafka batches."""
        end_offset = partition.last_stable_offset
        entries = partition.log.read_cached(offset, READ_BYTES_MAX, end_offset)
        if entries is None:
            read = await partition.log.read(offset, READ_BYTES_MAX)
            entries = [entry for entry in read if entry.last_offset < end_offset]
        formed = self._interop.kafka_form(partition, entries)
        return await self._interop.kafka_form_later(partition, entries) if formed is None else formed


def _messages(
    batches: Sequence[memoryview], offset: int, most: int, aborted: Sequence[AbortedRange], budget: Budget
) -> list[Record]:
    """The records from `offset` on, `most` at most, without those of aborted transactions."""
    found: list[Record] = []
    for batch in batches:
        header = read_header(batch)
        if header.is_control or (
            header.is_transactional and _is_aborted(header.producer_id, header.base_offset, aborted)
        ):
            continue
        records = (one for one in read_records(batch, header, budget.bytes_max) if one.offset >= offset)
        found += islice(records, most - len(found))
        if len(found) == most:
            break
    return found


def _is_aborted(producer_id: int, base_offset: int, aborted: Sequence[AbortedRange]) -> bool:
    return any(
        one.producer_id == producer_id and one.first_offset <= base_offset <= one.last_offset
        for one in aborted
    )
