"""Copies topics until each copy has all that its source has, or until the user stops the program.

**Where it is.**  The server says where the copy of each partition ends (`declare`), and the program reads the source
from there on.  It remembers nothing else: after a kill it continues where its last stored batch ended, and the server
drops a batch that it gets again.

**What is sent.**  The program sends what has come before it reads on, so a `Copy` knows for certain where its copy
ends.  At the end of a partition, the copy gets the source's end, too.

**What differs.**  `port.py` says what a source is, and what its copies are.

**What changes.**  Every few seconds the program looks for new topics and partitions, and for settings that have
changed, and declares the links again.  A copy may not end where this program has left it: another program copies, too,
or a client has deleted the topic and made it again.  Then the program continues where the copy ends now.

**What goes wrong.**  A program that follows waits for a server or a source that does not answer, and reports the
source's trouble.  Any other program ends with one sentence.  Both leave a topic alone that a user has cut loose or
deleted here.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from magnetar.client.errors import ClientError, NotFound, Refused, Unavailable, Unreachable
from magnetar.client.links import LinksClient
from magnetar.links.errors import LinkError, SourceUnavailable
from magnetar.links.port import Copies, Copy, End, FoundCopy, Gone, OutOfRange, Place, Source, SourceTopic

READ_S: Final = 0.2
REFRESH_S: Final = 5.0
REPORT_S: Final = 5.0
SAY_S: Final = 10.0
SILENCE_S: Final = 60.0
PAUSE_S: Final = 1.0
_DIFFER: Final = "OFFSETS_DIFFER"  # another program copies the same topic, or it was deleted and is new


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is copied: the topics that are meant by their names, from `since_ms` on (None: all that they have).
    `follows`: go on when both ends are the same.
    """

    address: str
    means_topic: Callable[[str], bool]
    pattern: str
    since_ms: int | None = None
    follows: bool = False


class Clone:
    """See the module's text.  `say` gets sentences for the user."""

    def __init__(
        self,
        source: Source[Any],
        copies: Copies[Any],
        links: LinksClient,
        wanted: Wanted,
        say: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._server = copies
        self._links = links
        self._wanted = wanted
        self._say = say
        self._now = monotonic
        self._sleep = sleep
        self._copies: dict[Place, Copy] = {}
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
        if self._server.are_held_first:
            self._copy_positions()
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
                        self._follow_positions()
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
                found = self._server.declare(topic)
            except Refused as error:
                if topic.name not in self._topics or isinstance(error, Unavailable):
                    raise
                self._leave(topic.name, str(error))
                has_moved = True
                continue
            if topic.name not in self._topics:
                self._topics.add(topic.name)
                for name, reason in found.left_out.items():
                    self._say(f"{topic.name} is copied without its setting {name}: {reason}")
            for partition in found.partitions:
                has_moved = self._place(topic, partition) or has_moved
        if has_moved:
            self._read_on()

    def _place(self, topic: SourceTopic, found: FoundCopy) -> bool:
        """Begin to copy a partition where its copy ends, if this is not done already; returns whether it was not."""
        place = (topic.name, found.partition)
        known = self._copies.get(place)
        if found.partition >= topic.partition_count or (known is not None and known.end == found.end):
            return False
        if found.is_new:
            start = self._source.begins_at(place, self._wanted.since_ms)
            self._copies[place] = Copy(found.end, start, start)
        else:
            self._copies[place] = Copy(found.end, self._source.goes_on_at(place, found.end), 0)
        return True

    def _read_on(self) -> None:
        """Have the source read each partition on where it is, and no others."""
        self._source.assign({place: copy.next_offset for place, copy in self._copies.items()})

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
                case End():
                    copy.next_offset = max(copy.next_offset, one.offset)
                    copy.source_end = one.offset
                case OutOfRange():
                    self._seek(place, copy)
                case Gone():
                    self._error = f"{one.topic} partition {one.partition} is not in the source any more"
                    if not self._wanted.follows:
                        raise LinkError(self._error)
                case _:
                    if one.offset >= copy.next_offset:  # otherwise it came before the last `assign`, too
                        copy.items.append(one)
                        copy.next_offset = one.offset + 1
            touched[place] = None
        for place in touched:
            if place in self._copies:
                self._send(place, self._copies[place])
        return bool(touched)

    def _seek(self, place: Place, copy: Copy) -> None:
        """Read on at the source's first record: it has deleted what was to come next.

        Raises:
            LinkError: the source has lost records that it had.
        """
        copy.next_offset = self._source.goes_on_at(place, copy.next_offset)
        self._read_on()

    def _send(self, place: Place, copy: Copy) -> None:
        """Send what has come of a partition, and its end if the source has said it."""
        items, copy.items = copy.items, []
        source_end, copy.source_end = copy.source_end, -1
        try:
            self.records += self._server.send(place, copy, items, source_end)
        except NotFound as error:
            self._leave(place[0], str(error))
            self._read_on()
            return
        except Refused as error:
            if error.code != _DIFFER:
                raise
            self._copies.pop(place)  # the next look finds where the copy ends
            self._refresh()
            return
        if items or source_end >= 0:
            self._error = ""
        copy.is_complete = copy.is_complete or source_end >= 0

    # --- groups ------------------------------------------------------------------------------------------------------

    def _follow_positions(self) -> None:
        """As `_copy_positions`, but records come on if the source does not say positions: Pulsar has a port of its own
        for them.
        """
        try:
            self._copy_positions()
        except SourceUnavailable as error:
            if str(error) != self._error:
                self._say(f"{error}; it is tried again")
            self._error = str(error)

    def _copy_positions(self) -> None:
        """Give the groups here the positions that they have in the source."""
        for topic, positions in self._server.positions(self._copies):
            try:
                self._error = self._server.set_positions(topic, positions) or self._error
            except NotFound as error:
                self._leave(topic, str(error))
                self._read_on()

    # --- reports -----------------------------------------------------------------------------------------------------

    def _lag(self, topic: str | None = None) -> int:
        """How many records the copies are behind, of one topic or of all."""
        return sum(
            self._source.lag(place, max(copy.end, copy.begin))
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
