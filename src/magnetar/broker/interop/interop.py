"""Entries in the form in which clients of the other protocol read them: what is converted when, and what happens if
an entry cannot be converted.

An entry of a client's own protocol is passed on; only its kind is looked at.  Other entries are converted when a
client asks for them (`wire/convert`), and kept for the next client, up to a number of bytes.  Few small entries are
converted at once.  More entries, compressed ones and chunks are converted on a thread, each only once even if several
clients ask at the same time, within the budgets of `log/opening.py`.  These limit what all conversions together
expand, and what one conversion returns at a time.

Every offset stays covered.  For a Kafka client, an entry without a record becomes a batch that it skips.  Such an entry
is a chunk other than the last one of its message, a broker's marker, or an entry that cannot be decoded.  For a Pulsar
subscription, an entry without a message becomes a `Formed` without payload, which the broker acknowledges.  Such an
entry is a control batch, a batch of an aborted transaction, or an entry that cannot be decoded.  An entry that cannot
be decoded is counted, and logged once.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from magnetar.base.errors import EntryCorrupt, StorageError, WireError, kept
from magnetar.base.tasks import Tasks
from magnetar.broker.interop.chunks import earlier_chunks
from magnetar.broker.interop.convert import (
    Bad,
    Convert,
    Form,
    LastChunk,
    Outcome,
    Work,
    assembled,
    convert_one,
    convert_some,
    cover,
    is_simple_for_kafka,
    to_kafka,
)
from magnetar.broker.interop.model import Formed, is_marker
from magnetar.broker.interop.partition import ConvertedPartition
from magnetar.broker.log.opening import SMALL, Opener
from magnetar.broker.log.partition import Partition
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.convert import engine, kafka_to_pulsar
from magnetar.wire.kafka.record_scan import Budget
from magnetar.wire.kafka.records import COMPRESSION_MASK, in_transaction, read_header
from magnetar.wire.pulsar.entry import EntryView

log: Final = logging.getLogger(__name__)

AT_ONCE_BYTES_MAX: Final = 16 << 10  # converted on the event loop, in 0.1 to 0.2 ms
_AT_ONCE_CHARGE: Final = 1 << 10  # the least that an entry counts for
_GIVEN_BYTES_MAX: Final = 16 << 20  # converted at once: a reader asks for the rest when these are sent
_NOTED_MAX: Final = 10_000  # undecodable entries that were logged, so that they are not logged again
_FORM_OVERHEAD_BYTES: Final = 300

_CHECKSUMS: Final = slice(2, 21)  # contains the checksum of a Pulsar entry, and that of a record batch

_NOT_NOW: Final = "what clients of the other protocol wrote cannot be read now"
_KAFKA: Final = EntryKind.KAFKA
_PULSAR: Final = EntryKind.PULSAR


@dataclass(slots=True)
class Counters:
    """Counts of all conversions since the start.  `_to` names the protocol of the result."""

    entries_to_kafka: int = 0
    entries_to_pulsar: int = 0
    bytes_to_kafka: int = 0
    bytes_to_pulsar: int = 0
    undecodable_to_kafka: int = 0
    undecodable_to_pulsar: int = 0
    incomplete_chunked_messages: int = 0


_Key = tuple[str, int, bytes]


def _key(name: str, entry: Entry) -> _Key:
    """The key of an entry's form in the cache.  It has the entry's checksum, because compaction may remove a part of
    an entry.
    """
    return name, entry.base_offset, bytes(entry.payload[_CHECKSUMS])


class _Later(NamedTuple):
    """The result for an entry if enough entries before it were converted: it must be asked for again."""


_Settled = Form | StorageError | _Later


class _Forms:
    """The forms of one protocol: those kept, the last used last, and those that are being made."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.pending: dict[_Key, asyncio.Future[_Settled]] = {}
        self._kept: OrderedDict[_Key, Form] = OrderedDict()

    def get(self, key: _Key) -> Form | None:
        form = self._kept.get(key)
        if form is not None:
            self._kept.move_to_end(key)
        return form

    def keep(self, key: _Key, form: Form) -> None:
        if key in self._kept:
            return
        self._kept[key] = form
        self.bytes_used += _charge(form)
        while self.bytes_used > self.bytes_max:
            self.bytes_used -= _charge(self._kept.popitem(last=False)[1])


def _charge(form: Form) -> int:
    return _FORM_OVERHEAD_BYTES + (0 if form.payload is None else len(form.payload))


class Interop:
    """See the module's text.  All methods run on the event loop.

    `cache_bytes` is for each protocol.  Pulsar clients get `message_bytes_max` on CONNECT, and refuse larger
    messages.
    """

    def __init__(self, cache_bytes: int, message_bytes_max: int, opener: Opener) -> None:
        self.counters = Counters()
        self._message_bytes_max = message_bytes_max
        self._for_kafka = _Forms(cache_bytes)
        self._for_pulsar = _Forms(cache_bytes)
        self._noted: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._opener = opener
        self._assembling = asyncio.Lock()  # one message at a time, whose chunks are all in memory
        self._tasks = Tasks(log)
        self._is_closed = False
        self._connected: set[EntryKind] = set()

    def client_connected(self, protocol: EntryKind) -> None:
        """Note that a client has connected.  Once both protocols have clients, the code for conversions is loaded,
        because one may read what the other wrote.  A server with clients of one protocol never loads it.
        """
        if protocol not in self._connected:
            self._connected.add(protocol)
            if len(self._connected) == len(EntryKind):
                engine.prepare()

    @property
    def cache_bytes_used(self) -> int:
        return self._for_kafka.bytes_used + self._for_pulsar.bytes_used

    def close(self) -> None:
        """Convert no more; waiting readers get an error."""
        self._is_closed = True
        self._tasks.cancel()

    # --- for Kafka ---------------------------------------------------------------------------------------------------

    def kafka_form(self, partition: ConvertedPartition, entries: list[Entry]) -> list[Entry] | None:
        """The entries as record batches, without waiting; None if the caller must call `kafka_form_later`."""
        for entry in entries:
            if entry.kind is not _KAFKA:
                break
        else:
            return entries
        name = partition.log.name
        left = AT_ONCE_BYTES_MAX
        formed: list[Entry] = []
        for entry in entries:
            if entry.kind is _KAFKA:
                formed.append(entry)
                continue
            form = self._for_kafka.get(_key(name, entry))
            if form is None:
                left -= max(len(entry.payload), _AT_ONCE_CHARGE)
                if left < 0 or not engine.is_compiled() or not is_simple_for_kafka(entry):
                    return None
                form = self._settle_for_kafka(
                    partition, entry, convert_one((entry, _epoch(partition, entry)), to_kafka)
                )
            formed.append(_as_kafka(partition, entry, form))
        return formed

    async def kafka_form_later(self, partition: ConvertedPartition, entries: Sequence[Entry]) -> list[Entry]:
        """As `kafka_form`, but only for the first entries, at least one; it does not convert more than
        `_GIVEN_BYTES_MAX` at once.

        Raises:
            StorageError: the chunks of a message cannot be read now.
        """
        foreign = [entry for entry in entries if entry.kind is not _KAFKA]
        forms = await self._formed(self._for_kafka, partition, foreign, to_kafka)
        given = iter(forms)
        return [
            entry if entry.kind is _KAFKA else _as_kafka(partition, entry, next(given))
            for entry in _up_to(entries, foreign, len(forms))
        ]

    def _settle_for_kafka(self, partition: ConvertedPartition, entry: Entry, outcome: Outcome) -> Form:
        assert not isinstance(outcome, LastChunk)
        counters = self.counters
        if isinstance(outcome, Bad):
            if self._note(partition, entry, "Kafka", outcome.reason):
                counters.undecodable_to_kafka += 1
            outcome = Form(cover(entry, _epoch(partition, entry)))
        counters.entries_to_kafka += 1
        counters.bytes_to_kafka += len(outcome.payload or b"")
        self._for_kafka.keep(_key(partition.log.name, entry), outcome)
        return outcome

    async def _assemble(self, partition: ConvertedPartition, entry: Entry, view: EntryView) -> Form:
        """The message whose last chunk this is.  Raises StorageError."""
        async with self._assembling:
            return await self._assemble_alone(partition, entry, view)

    async def _assemble_alone(self, partition: ConvertedPartition, entry: Entry, view: EntryView) -> Form:
        try:
            earlier = await earlier_chunks(partition.log, entry, view)
        except EntryCorrupt as error:
            earlier, reason = None, str(error)
        else:
            reason = "there are chunks missing in front of it"
        epoch = _epoch(partition, entry)
        outcome: Outcome
        if earlier is None:
            if self._note(partition, entry, "Kafka", f"chunked message {view.metadata.uuid!r}: {reason}"):
                self.counters.incomplete_chunked_messages += 1
            outcome = Form(cover(entry, epoch))
        else:
            pieces = [*earlier, view.payload]
            outcome = await self._opener.run(
                partition.log.name,
                partial(assembled, view, pieces, entry.last_offset, epoch),
                is_large=view.metadata.total_chunk_msg_size > SMALL.bytes_max,
            )
        return self._settle_for_kafka(partition, entry, outcome)

    # --- for Pulsar --------------------------------------------------------------------------------------------------

    def pulsar_form(
        self, partition: Partition, entries: Sequence[Entry]
    ) -> "Sequence[Formed] | Awaitable[Sequence[Formed]]":
        """The entries as Pulsar entries; an awaitable if some must be converted first.  It may be only the first
        ones, at least one, because no more than `_GIVEN_BYTES_MAX` are converted at once.
        """
        name = partition.log.name
        left = AT_ONCE_BYTES_MAX
        formed: list[Formed] = []
        # Asked for all of them at once: it is so for nearly none.
        some_aborted = bool(entries) and partition.transactions.any_aborted(
            entries[0].base_offset, entries[-1].last_offset + 1
        )
        for entry in entries:
            if entry.kind is _PULSAR:
                formed.append(Formed(entry, self._own_payload(partition, entry, some_aborted=some_aborted)))
                continue
            form = self._for_pulsar.get(_key(name, entry))
            if form is None and not _has_messages(partition, entry):
                form = _NO_MESSAGE
            if form is None:
                left -= max(len(entry.payload), _AT_ONCE_CHARGE)
                if (
                    left < 0
                    or not engine.is_compiled()
                    or read_header(entry.payload).attributes & COMPRESSION_MASK
                ):
                    return self._pulsar_form_later(partition, entries)
                form = self._settle_for_pulsar(partition, entry, convert_one((entry, 0), self._to_pulsar))
            formed.append(Formed(entry, form.payload))
        return formed

    async def _pulsar_form_later(self, partition: Partition, entries: Sequence[Entry]) -> Sequence[Formed]:
        foreign = [entry for entry in entries if entry.kind is _KAFKA and _has_messages(partition, entry)]
        found = await self._formed(self._for_pulsar, partition, foreign, self._to_pulsar)
        forms = {entry.base_offset: form for entry, form in zip(foreign, found, strict=False)}
        return [
            Formed(
                entry,
                self._own_payload(partition, entry, some_aborted=True)
                if entry.kind is _PULSAR
                else forms.get(entry.base_offset, _NO_MESSAGE).payload,
            )
            for entry in _up_to(entries, foreign, len(found))
        ]

    def _own_payload(
        self, partition: ConvertedPartition, entry: Entry, *, some_aborted: bool
    ) -> memoryview | None:
        """A Pulsar client's entry, unchanged; None for an entry that no consumer sees.

        `some_aborted`: it may belong to a transaction that was aborted.
        """
        try:
            if is_marker(entry.payload) or (some_aborted and partition.aborted_by(entry) is not None):
                return None
            return entry.payload
        except WireError as error:
            if self._note(partition, entry, "Pulsar", str(error)):
                self.counters.undecodable_to_pulsar += 1
            return None

    def _to_pulsar(self, work: Work, budget: Budget) -> Outcome:
        """Convert an entry to Pulsar's form; runs on any thread."""
        payload = kafka_to_pulsar(work[0].payload, self._message_bytes_max, budget)
        if len(payload) > self._message_bytes_max:
            raise WireError(
                f"its {len(payload)} bytes are more than the {self._message_bytes_max} that clients take"
            )
        return Form(payload)

    def _settle_for_pulsar(self, partition: ConvertedPartition, entry: Entry, outcome: Outcome) -> Form:
        assert not isinstance(outcome, LastChunk)
        counters = self.counters
        if isinstance(outcome, Bad):
            if self._note(partition, entry, "Pulsar", outcome.reason):
                counters.undecodable_to_pulsar += 1
            outcome = _NO_MESSAGE
        counters.entries_to_pulsar += 1
        counters.bytes_to_pulsar += len(outcome.payload or b"")
        self._for_pulsar.keep(_key(partition.log.name, entry), outcome)
        return outcome

    # --- on threads --------------------------------------------------------------------------------------------------

    async def _formed(
        self, forms: _Forms, partition: ConvertedPartition, entries: Sequence[Entry], convert: Convert
    ) -> list[Form]:
        """The forms of the first entries, at least one: kept ones, ones that are being made, and new conversions."""
        found: list[Form] = []
        while entries and not found:
            for wait in self._begin(forms, partition, entries, convert):
                form = wait if isinstance(wait, Form) else await asyncio.shield(wait)
                if isinstance(form, StorageError):
                    try:
                        raise form
                    finally:
                        del form, wait  # its traceback has this frame (`base/errors.kept`)
                if isinstance(form, _Later):
                    break
                found.append(form)
        return found

    def _begin(
        self, forms: _Forms, partition: ConvertedPartition, entries: Sequence[Entry], convert: Convert
    ) -> "list[Form | asyncio.Future[_Settled]]":
        if self._is_closed:
            raise StorageError(_NOT_NOW)
        name = partition.log.name
        loop = asyncio.get_running_loop()
        waits: list[Form | asyncio.Future[_Settled]] = []
        fresh: list[Entry] = []
        for entry in entries:
            key = _key(name, entry)
            wait = forms.get(key) or forms.pending.get(key)
            if wait is None:
                wait = forms.pending[key] = loop.create_future()
                fresh.append(entry)
            waits.append(wait)
        if fresh:
            self._tasks.spawn(f"convert {name}", self._convert(forms, partition, fresh, convert))
        return waits

    async def _convert(
        self, forms: _Forms, partition: ConvertedPartition, entries: list[Entry], convert: Convert
    ) -> None:
        name = partition.log.name
        waiting = {key: forms.pending[key] for key in [_key(name, entry) for entry in entries]}
        rest: _Settled = StorageError(_NOT_NOW)  # closed, or a bug of ours, which the task reports
        given = 0
        try:
            while entries and given < _GIVEN_BYTES_MAX:
                work = [(entry, _epoch(partition, entry)) for entry in entries]
                outcomes = await self._opener.run(name, partial(convert_some, work, convert))
                for entry, outcome in zip(entries, outcomes, strict=False):
                    form: Form | StorageError
                    if isinstance(outcome, LastChunk):
                        try:
                            form = await self._assemble(partition, entry, outcome.view)
                        except StorageError as error:
                            form = kept(error)
                    elif forms is self._for_kafka:
                        form = self._settle_for_kafka(partition, entry, outcome)
                    else:
                        form = self._settle_for_pulsar(partition, entry, outcome)
                    if isinstance(form, Form):
                        given += len(form.payload or b"")
                    key = _key(name, entry)
                    del forms.pending[key]
                    waiting.pop(key).set_result(form)
                entries = entries[len(outcomes) :]
            rest = _Later()
        except StorageError:
            pass  # the server stops
        finally:
            for key, future in waiting.items():  # no reader may wait for ever
                del forms.pending[key]
                future.set_result(rest)

    def _note(self, partition: ConvertedPartition, entry: Entry, reader: str, reason: str) -> bool:
        """Log once that an entry cannot be read; returns whether this was the first time."""
        key = (partition.log.name, entry.base_offset)
        if key in self._noted:
            return False
        self._noted[key] = None
        if len(self._noted) > _NOTED_MAX:
            self._noted.popitem(last=False)
        log.warning(
            "%s: %s clients get nothing of offsets %d to %d: %s",
            partition, reader, entry.base_offset, entry.last_offset, reason,
        )  # fmt: skip
        return True


_NO_MESSAGE: Final = Form(None)


def _up_to(entries: Sequence[Entry], foreign: Sequence[Entry], count: int) -> Sequence[Entry]:
    """The entries before `foreign[count]`; all if there is none."""
    if count == len(foreign):
        return entries
    end = foreign[count].base_offset
    return [entry for entry in entries if entry.base_offset < end]


def _epoch(partition: ConvertedPartition, entry: Entry) -> int:
    return partition.log.epoch_at(entry.base_offset)


def _as_kafka(partition: ConvertedPartition, entry: Entry, form: Form) -> Entry:
    """The entry with its form, and with the producer id of its transaction if that was aborted, by which readers of
    committed records skip it.

    The form itself does not have it, because it may have been made before the transaction was decided.
    """
    payload = form.payload
    assert payload is not None
    try:
        producer_id = partition.aborted_by(entry)
    except WireError:
        producer_id = None  # a batch without records covers it
    if producer_id is not None and not read_header(payload).is_control:
        payload = in_transaction(payload, producer_id)
    return Entry(
        entry.base_offset, entry.last_offset, entry.max_timestamp_ms, payload, _KAFKA,
        entry.ledger_id, entry.entry_id,
    )  # fmt: skip


def _has_messages(partition: Partition, entry: Entry) -> bool:
    """Whether a batch has records for readers of committed records."""
    header = read_header(entry.payload)
    if header.is_control:
        return False
    return not header.is_transactional or not partition.is_aborted(header.producer_id, entry)
