"""The segment catalogue: for a range of a partition, the files that hold it, the places in them, and the part that
only the broker has.

A reader in another process (a Spark job) reads the files, and asks the server for the *tail*.  These are records that
were acknowledged but are not in a file yet, a few megabytes at most.  The two never overlap and leave no gap:
`tail_from` is the first offset that no named file has.

Answers come from memory, except for the index of a finished segment that is read for the first time.  After every few
segments or partitions the event loop gets a turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from magnetar.base.errors import (
    BrokerError,
    EntryCorrupt,
    LeaseNotFound,
    LedgerNotFound,
    TooManyLeases,
    WireError,
    kept,
)
from magnetar.base.lane import Lane
from magnetar.base.names import TopicName
from magnetar.broker.history.errors import NonPersistent
from magnetar.broker.history.model import Located, Range, Segment
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.chain import LedgerInfo
from magnetar.storage.store import HasSegmentFiles, LedgerStore, SegmentFiles, SegmentLeases

CUT_BYTES: Final = 4 << 20
CUTS_MAX: Final = 20_000  # in one partition's answer: in longer ranges they are further apart
_TURN_EVERY: Final = 64  # segments between two turns of the event loop
AT_ONCE: Final = 100  # partitions, and others have a turn


class SegmentCatalogue:
    """See the module's text.  `find_topic` finds a topic by the name that Kafka's clients use, and `shown_name`
    returns that.
    """

    def __init__(
        self,
        store: LedgerStore,
        find_topic: Callable[[str], Topic],
        shown_name: Callable[[TopicName], str],
        time_lookups: TimeLookups,
    ) -> None:
        self._find_topic = find_topic
        self._shown_name = shown_name
        self._time_lookups = time_lookups
        self._lane = Lane()
        self._files: SegmentFiles | None = store.segment_files if isinstance(store, HasSegmentFiles) else None

    @property
    def store_id(self) -> str | None:
        """The store's id; None for a store without files, where everything is tail."""
        return None if self._files is None else self._files.store_id

    def partition(self, topic: str, index: int) -> Partition:
        """The partition that a reader names.

        Raises:
            InvalidTopicName, UnknownTopic, NonPersistent
        """
        partition = self._find_topic(topic).partition(index)
        if not partition.topic.name.persistent:
            raise NonPersistent(
                f"{topic} is not persistent: nothing of it is stored, so there is nothing to read"
            )
        return partition

    @property
    def leases(self) -> SegmentLeases:
        """The leases on the store's files.  Raises LeaseNotFound for a store without files."""
        if self._files is None:
            raise LeaseNotFound("this server keeps nothing in files, and so it gives no leases")
        return self._files.leases

    def lease_ids(self) -> frozenset[str]:
        """The ids of all leases that are held."""
        return frozenset() if self._files is None else self._files.leases.ids()

    def drop_lease(self, lease_id: str) -> None:
        """End a lease at once, if it has not ended."""
        if self._files is not None:
            self._files.leases.drop(lease_id)

    async def locate_all(
        self, wanted: Sequence[Range], lease_id: str | None = None, lease_s: int | None = None
    ) -> tuple[str | None, list[Located | BrokerError]]:
        """The place of each range, or the error of finding it; and the lease on all files of the answer.

        With `lease_id`, that lease is renewed and extended; otherwise with `lease_s` (seconds) there is a new one, if
        there are files to keep.  The lease is stored when this returns.

        Raises:
            LeaseNotFound, TooManyLeases
        """
        is_new = lease_id is None
        if lease_id is not None:
            await self.leases.renew(lease_id, lease_s)
        elif lease_s is not None and self._files is not None:
            lease_id = self.leases.open(lease_s)
        try:
            found: list[Located | BrokerError] = []
            for number, one in enumerate(wanted, 1):
                if number % AT_ONCE == 0:
                    await self._lane.rest()
                try:
                    found.append(await self.locate(one, lease_id))
                except (LeaseNotFound, TooManyLeases):
                    raise
                except BrokerError as error:
                    found.append(kept(error))
            has_files = any(isinstance(one, Located) and one.segments for one in found)
            if lease_id is not None and (has_files or not is_new):
                await self.leases.save(lease_id)
                return lease_id, found
        except BaseException:
            if lease_id is not None and is_new:
                with suppress(LeaseNotFound):
                    await self.leases.end(lease_id)
            raise
        if lease_id is not None:
            with suppress(LeaseNotFound):
                await self.leases.end(lease_id)
        return None, found

    async def locate(self, wanted: Range, lease_id: str | None = None) -> Located:
        """The present place of the range; its files are added to the lease.

        Raises:
            InvalidTopicName, UnknownTopic, NonPersistent
            LeaseNotFound, TooManyLeases
            StorageError: an index cannot be read.
        """
        partition = self.partition(wanted.topic, wanted.partition)
        log = partition.log
        begin = wanted.from_offset
        if begin is None and wanted.from_timestamp_ms is not None:
            begin = await self.offset_at(partition, wanted.from_timestamp_ms)
            begin = log.high_watermark if begin is None else begin
        end = wanted.to_offset
        if end is None and wanted.to_timestamp_ms is not None:
            end = await self.offset_at(partition, wanted.to_timestamp_ms)
        high_watermark = log.high_watermark
        to_offset = high_watermark if end is None else min(end, high_watermark)
        if to_offset > partition.last_stable_offset:
            partition.check_committed(to_offset)
        from_offset = min(max(begin or 0, log.log_start), high_watermark)
        located = Located(
            topic=self._shown_name(partition.topic.name),
            full=partition.topic.name.full,
            partition=partition.index,
            earliest=log.log_start,
            high_watermark=high_watermark,
            last_stable=partition.last_stable_offset,
            from_offset=from_offset,
            to_offset=max(to_offset, from_offset),
            tail_from=from_offset,
        )
        if located.from_offset < located.to_offset:
            located.aborted = partition.transactions.aborted_between(located.from_offset, located.to_offset)
            if self._files is not None:
                await self._find_segments(self._files, partition, located, lease_id)
        return located

    async def offset_at(self, partition: Partition, timestamp_ms: int) -> int | None:
        """The first offset at or after a time; None if there is none.  Raises StorageError if it cannot be found."""
        try:
            found = await self._time_lookups.first_at(partition, timestamp_ms, self)
        except WireError as error:
            raise EntryCorrupt(f"the offset at {timestamp_ms} cannot be found: {error}") from error
        return None if found is None else found.offset

    async def _find_segments(
        self, files: SegmentFiles, partition: Partition, located: Located, lease_id: str | None
    ) -> None:
        infos = partition.log.ledgers_between(located.from_offset, located.to_offset)
        if lease_id is not None:  # before any wait, so that the named files stay
            files.leases.add(lease_id, [info.stored_id for info in infos])
        step_bytes = max(CUT_BYTES, sum(info.size_bytes for info in infos) // CUTS_MAX)
        for number, info in enumerate(infos):
            if number % _TURN_EVERY == _TURN_EVERY - 1:
                await asyncio.sleep(0)
            is_last = number == len(infos) - 1
            try:
                segment = await _segment_of(files, info, located, step_bytes, write_out=not is_last)
            except LedgerNotFound:
                segment = None
            if segment is None:
                return  # the rest is tail, or retention has deleted it and the tail reports that
            located.segments.append(segment)
            located.tail_from = min(segment.last_offset + 1, located.to_offset)
            if not is_last and segment.last_offset + 1 < info.end_offset:
                return


async def _segment_of(
    files: SegmentFiles, info: LedgerInfo, located: Located, step_bytes: int, *, write_out: bool
) -> Segment | None:
    """The segment of one ledger; None if its file has no part of the range."""
    stat = files.stat(info.stored_id)
    if stat is not None and write_out and stat.last_offset + 1 < info.end_offset:
        # The ledger has a successor: if its rest were not in the file, everything after it would be tail.
        await files.write_out(info.stored_id)
        stat = files.stat(info.stored_id)
    if stat is None or stat.last_offset < located.from_offset:
        return None
    cuts, end_position = await files.find_cuts(
        info.stored_id,
        -1 if located.from_offset <= info.first_offset else located.from_offset,
        min(located.to_offset, stat.last_offset + 1),
        step_bytes,
    )
    return Segment(
        ledger_id=info.stored_id,
        path=stat.path,
        is_sealed=stat.is_finished,
        first_offset=info.first_offset,
        last_offset=stat.last_offset,
        max_timestamp_ms=stat.max_timestamp_ms,
        data_bytes=stat.end_position,
        cuts=[(info.first_offset if offset < 0 else offset, position) for offset, position in cuts],
        end_position=end_position,
    )
