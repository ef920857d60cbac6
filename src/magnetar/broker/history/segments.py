"""The segment catalogue: for a range of a partition, which files hold it, where in them, and what only the broker has.

A reader outside of the server (a Spark job) takes what lies in files from there, and asks the server for the *tail*:
what was acknowledged but not written to its file yet, a few megabytes at most.  The two never overlap and leave no
hole: `tail_from` is the first offset that no named file has.

Answers are made from memory, but for the index of a finished segment that is read for the first time; between
any two segments the event loop gets a turn.
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
)
from magnetar.base.names import TopicName
from magnetar.broker.history.errors import NonPersistent
from magnetar.broker.history.model import Located, Range, Segment
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.chain import LedgerInfo
from magnetar.storage.store import HasSegmentFiles, LedgerStore, SegmentFiles, SegmentLeases

CUT_BYTES: Final = 4 << 20
CUTS_MAX: Final = 20_000  # of one partition's answer: longer ranges have them further apart
_TURN_EVERY: Final = 64  # segments between two turns of the event loop


class SegmentCatalogue:
    """See the module's text.  `find_topic` and `shown_name` lead from Kafka's names of topics and back to them."""

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
        self._files: SegmentFiles | None = store.segment_files if isinstance(store, HasSegmentFiles) else None

    @property
    def store_id(self) -> str | None:
        """None for a store without files: everything is tail then."""
        return None if self._files is None else self._files.store_id

    def partition(self, topic: str, index: int) -> Partition:
        """The partition that a reader means.

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
        """Of the store's files.  LeaseNotFound for a store without any."""
        if self._files is None:
            raise LeaseNotFound("this server keeps nothing in files, and so it gives no leases")
        return self._files.leases

    def lease_ids(self) -> frozenset[str]:
        """Of all leases that are held."""
        return frozenset() if self._files is None else self._files.leases.ids()

    def drop_lease(self, lease_id: str) -> None:
        """End a lease at once, if it has not ended."""
        if self._files is not None:
            self._files.leases.drop(lease_id)

    async def locate_all(
        self, wanted: Sequence[Range], lease_id: str | None = None, lease_s: int | None = None
    ) -> tuple[str | None, list[Located | BrokerError]]:
        """Where each range lies, or why that is not known; and the lease on all files of the answer.

        With `lease_id`, that lease is renewed and extended; else with `lease_s` a new one is given, if there are any
        files to keep.  It lasts when this returns.

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
            for one in wanted:
                try:
                    found.append(await self.locate(one, lease_id))
                except (LeaseNotFound, TooManyLeases):
                    raise
                except BrokerError as error:
                    found.append(error)
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
        """Where the range lies at this moment; its files are added to the lease.

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
        """The first offset at or after a time; None when there is none.  StorageError when it cannot be found."""
        try:
            found = await self._time_lookups.first_at(partition, timestamp_ms, self)
        except WireError as error:
            raise EntryCorrupt(f"the offset at {timestamp_ms} cannot be found: {error}") from error
        return None if found is None else found.offset

    async def _find_segments(
        self, files: SegmentFiles, partition: Partition, located: Located, lease_id: str | None
    ) -> None:
        infos = partition.log.ledgers_between(located.from_offset, located.to_offset)
        if lease_id is not None:  # before anything is waited for: what is named then stays
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
                return  # from here on it is tail, or retention was faster and the tail will say so
            located.segments.append(segment)
            located.tail_from = min(segment.last_offset + 1, located.to_offset)
            if not is_last and segment.last_offset + 1 < info.end_offset:
                return


async def _segment_of(
    files: SegmentFiles, info: LedgerInfo, located: Located, step_bytes: int, *, write_out: bool
) -> Segment | None:
    """The segment of one ledger; None when nothing of the range is in its file."""
    stat = files.stat(info.stored_id)
    if stat is not None and write_out and stat.last_offset + 1 < info.end_offset:
        # A ledger that has a successor: its rest would make everything behind it tail.
        await files.write_out(info.stored_id)
        stat = files.stat(info.stored_id)
    if stat is None or stat.last_offset < located.from_offset:
        return None
    cuts, end_position = await files.cuts(
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
