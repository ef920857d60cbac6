"""Copies topics until each copy has all that its source has, or until the user stops the program.

**Where it is.**  The server says where the copy of each partition ends (`declare`), and the program reads the source
from there on.  It remembers nothing else: after a kill it goes on where its last stored batch ended, and the server
drops a batch that it gets again.

**What it sends.**  The program sends what it has read before it reads on, so a `_Copy` knows for certain where its copy
ends.  At the end of a partition it also sends the source's end: then both have the same next offset, even if the last
offsets have no records.

**What changes.**  Every few seconds the program looks for new topics and partitions, and for settings that have
changed, and declares the links again.  If a copy does not end where this program has left it (another program copies,
too; the topic was deleted and is new), the program goes on from where the copy ends now.

**What goes wrong.**  A program that follows waits for a server or a source that does not answer, and reports the
source's trouble.  Any other program ends with one sentence.  Both leave a topic alone that a user has cut loose or
deleted here.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from magnetar.client.errors import ClientError, NotFound, Refused, Unavailable, Unreachable
from magnetar.client.links import CopiedPartition, GroupPosition, LinksClient
from magnetar.links.errors import LinkError, SourceUnavailable
from magnetar.links.mask import Mask, masked
from magnetar.links.record import Record, batches_of
from magnetar.links.source import End, Gone, KafkaSource, OutOfRange, Place, SourceTopic

BODY_BYTES: Final = 4 << 20  # of one request, more if a single batch is larger
READ_S: Final = 0.2
REFRESH_S: Final = 5.0
REPORT_S: Final = 5.0
SAY_S: Final = 10.0
SILENCE_S: Final = 60.0
PAUSE_S: Final = 1.0
POSITIONS_AT_ONCE: Final = 5000
_DIFFER: Final = "OFFSETS_DIFFER"  # another program copies the same topic, or it was deleted and is new


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to copy: the topics for whose names `means_topic` is true, from the time `since_ms` on (ms since the epoch;
    None: everything), with records as `mask` makes them.

    `pattern` is what the user wrote for the names.  `follows`: go on when everything is copied.
    """

    address: str
    means_topic: Callable[[str], bool]
    pattern: str
    since_ms: int | None = None
    mask: Mask | None = None
    follows: bool = False


@dataclass(slots=True)
class _Copy:
    """The copy of a partition.  It ends at `end`; `begin` says where it has to begin, and is 0 as soon as it has begun.

    The program reads the source on at `next_offset`.  It has read `records`, and has not sent them yet.  `source_end`
    is the end of the partition that the source has reported since the last request; -1: none.  `is_complete`: the copy
    once had all that the source had at that moment.
    """

    end: int
    next_offset: int
    begin: int
    records: list[Record] = field(default_factory=list)
    source_end: int = -1
    is_complete: bool = False


class Clone:
    """See the module's text.  `say` gets sentences for the user."""

    def __init__(
        self,
        source: KafkaSource,
        links: LinksClient,
        wanted: Wanted,
        say: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._links = links
        self._wanted = wanted
        self._say = say
        self._now = monotonic
        self._sleep = sleep
        self._copies: dict[Place, _Copy] = {}
        self._topics: set[str] = set()  # that were declared
        self._left: set[str] = set()  # that were cut loose, or deleted here
        self._error = ""  # what went wrong last, until something is copied again
        self.records = 0

    def run(self) -> None:
        """Copy.  Returns when everything is copied; a program that follows never returns.

        Raises:
            LinkError, ClientError, ConfigError
        """
        self._refresh(is_first=True)
        refresh_at = self._now() + REFRESH_S
        report_at = self._now()
        said_at = heard_at = self._now()
        while self._wanted.follows or not self._is_complete():
            try:
                if self._read():
                    heard_at = self._now()
                now = self._now()
                if now >= refresh_at:
                    self._refresh()
                    if self._wanted.follows:
                        self._copy_positions()
                    refresh_at = self._now() + REFRESH_S
                if now >= report_at:
                    self._report()
                    report_at = self._now() + REPORT_S
            except (Unreachable, Unavailable, SourceUnavailable) as error:
                if not self._wanted.follows:
                    raise
                self._wait(error)
                refresh_at = self._now()
                continue
            if now - said_at >= SAY_S:
                self._say(f"{self.records:,} records are copied, {self._lag():,} are to come")
                said_at = now
            if not self._wanted.follows and now - heard_at >= SILENCE_S:
                why = self._source.trouble or "try again"
                raise SourceUnavailable(
                    f"{self._wanted.address} has sent nothing for {SILENCE_S:.0f} s: {why}"
                )
        self._copy_positions()
        self._report()

    # --- what there is -----------------------------------------------------------------------------------------------

    def _refresh(self, *, is_first: bool = False) -> None:
        """Declare all topics as they are now, and read on where their copies end."""
        topics = [one for one in self._source.topics(self._wanted.means_topic) if one.name not in self._left]
        if is_first and not topics:
            raise LinkError(f"{self._wanted.address} has no topic whose name fits {self._wanted.pattern}")
        has_moved = False
        for topic in topics:
            try:
                declared = self._links.declare(
                    topic.name, self._wanted.address, topic.origin, topic.partition_count, topic.configs
                )
            except Refused as error:
                if topic.name not in self._topics or isinstance(error, Unavailable):
                    raise
                self._leave(topic.name, str(error))
                has_moved = True
                continue
            if topic.name not in self._topics:
                self._topics.add(topic.name)
                for name, reason in declared.left_out.items():
                    self._say(f"{topic.name} is copied without its setting {name}: {reason}")
            for partition in declared.partitions:
                has_moved = self._place(topic, partition) or has_moved
        if has_moved:
            self._source.assign({place: copy.next_offset for place, copy in self._copies.items()})

    def _place(self, topic: SourceTopic, found: CopiedPartition) -> bool:
        """Copy a partition from where its copy ends, and return True; False if this program does so already."""
        place = (topic.name, found.partition)
        known = self._copies.get(place)
        if found.partition >= topic.partition_count or (known is not None and known.end == found.end):
            return False
        first, end = self._source.bounds(place)
        if found.new:
            start = first
            if self._wanted.since_ms is not None:
                at = self._source.offset_at(place, self._wanted.since_ms)
                start = end if at is None else max(at, first)
            self._copies[place] = _Copy(found.end, start, start)
            return True
        if found.end > end:
            raise LinkError(
                f"{topic.name} partition {found.partition} ends at offset {end} in the source, and its copy at"
                f" {found.end}: the source has lost records, so the copy cannot go on"
            )
        self._copies[place] = _Copy(found.end, max(found.end, first), 0)
        return True

    def _leave(self, topic: str, reason: str) -> None:
        """Stop copying a topic."""
        self._say(f"{topic} is no longer copied: {reason}")
        self._left.add(topic)
        self._copies = {place: copy for place, copy in self._copies.items() if place[0] != topic}

    def _is_complete(self) -> bool:
        return all(copy.is_complete for copy in self._copies.values())

    # --- records -----------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Read what has come, and send it; returns whether something has come."""
        touched: dict[Place, None] = {}
        for one in self._source.read(READ_S):
            place = (one.topic, one.partition)
            copy = self._copies.get(place)
            if copy is None:
                continue
            match one:
                case Record():
                    if one.offset >= copy.next_offset:  # otherwise it also came before the last `assign`
                        copy.records.append(one)
                        copy.next_offset = one.offset + 1
                case End():
                    copy.next_offset = max(copy.next_offset, one.offset)
                    copy.source_end = one.offset
                case OutOfRange():
                    self._seek(place, copy)
                case Gone():
                    self._error = f"{one.topic} partition {one.partition} is not in the source any more"
                    if not self._wanted.follows:
                        raise LinkError(self._error)
            touched[place] = None
        for place in touched:
            if place in self._copies:
                self._send(place, self._copies[place])
        return bool(touched)

    def _seek(self, place: Place, copy: _Copy) -> None:
        """Read on at the source's first record, because the source has deleted what was to come next.

        Raises:
            LinkError: the source has lost records that it had.
        """
        first, end = self._source.bounds(place)
        if copy.next_offset > end:
            raise LinkError(
                f"{place[0]} partition {place[1]} ends at offset {end} in the source, which had records up to"
                f" {copy.next_offset}: the source has lost records, so the copy cannot go on"
            )
        copy.next_offset = max(copy.next_offset, first)
        self._source.assign({one: found.next_offset for one, found in self._copies.items()})

    def _send(self, place: Place, copy: _Copy) -> None:
        """Send the records of a partition, and its end if the source has reported it."""
        records, copy.records = copy.records, []
        source_end, copy.source_end = copy.source_end, -1
        chosen: Iterable[Record] = records
        if self._wanted.mask is not None:
            chosen = masked(self._wanted.mask, records)
        try:
            for body in _bodies(batches_of(chosen)):
                self._append(place, copy, body, 0)
            end = max(source_end, records[-1].offset + 1 if records else 0)
            if end > copy.end or (source_end >= 0 and copy.begin > copy.end):
                self._append(place, copy, b"", end)
        except NotFound as error:
            self._leave(place[0], str(error))
            self._source.assign({one: found.next_offset for one, found in self._copies.items()})
            return
        except Refused as error:
            if error.code != _DIFFER:
                raise
            self._copies.pop(place)  # the next look finds where the copy ends
            self._refresh()
            return
        self.records += len(records)
        if records or source_end >= 0:
            self._error = ""
        copy.is_complete = copy.is_complete or source_end >= 0

    def _append(self, place: Place, copy: _Copy, body: bytes, end: int) -> None:
        copy.end = self._links.append(place[0], place[1], body, after=copy.end, begin=copy.begin, end=end)
        copy.begin = 0

    # --- groups ------------------------------------------------------------------------------------------------------

    def _copy_positions(self) -> None:
        """Give the groups here the positions that they have in the source."""
        for topic, positions in self._source.group_positions().items():
            mine = [one for one in positions if (topic, one.partition) in self._copies]
            for start in range(0, len(mine), POSITIONS_AT_ONCE):
                self._set_positions(topic, mine[start : start + POSITIONS_AT_ONCE])

    def _set_positions(self, topic: str, positions: Sequence[GroupPosition]) -> None:
        try:
            errors = self._links.set_positions(topic, positions)
        except NotFound as error:
            self._leave(topic, str(error))
            self._source.assign({place: copy.next_offset for place, copy in self._copies.items()})
            return
        for one, code in zip(positions, errors, strict=True):
            if code is not None and code != _HAS_MEMBERS:
                self._error = f"group {one.group}: its position cannot be copied: {code}"

    # --- reports -----------------------------------------------------------------------------------------------------

    def _lag(self, topic: str | None = None) -> int:
        """How many offsets the copies are behind, of one topic or of all."""
        return sum(
            max((self._source.known_end(place) or 0) - max(copy.end, copy.begin), 0)
            for place, copy in self._copies.items()
            if topic in (None, place[0])
        )

    def _report(self) -> None:
        for topic in {place[0] for place in self._copies}:
            try:
                self._links.report(topic, self._lag(topic), self._source.trouble or self._error)
            except NotFound:
                continue  # the next append finds out what has become of it

    def _wait(self, error: ClientError | SourceUnavailable) -> None:
        """Give the server or the source some time, and begin again where the copies end then."""
        if str(error) != self._error:
            self._error = str(error)
            self._say(f"{error}; the program tries again")
            with suppress(ClientError):
                self._report()
        self._copies.clear()
        self._sleep(PAUSE_S)


_HAS_MEMBERS: Final = "UNKNOWN_MEMBER_ID"  # the group has members here, and so a position of its own


def _bodies(batches: Iterable[memoryview]) -> Iterable[bytes]:
    """The bodies of requests."""
    parts: list[memoryview] = []
    size = 0
    for batch in batches:
        if parts and size + len(batch) > BODY_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(batch)
        size += len(batch)
    if parts:
        yield b"".join(parts)
