"""What must hold of a queue that share consumers and Pulsar's Shared consumers drain together, whatever was killed.

Each consumer says in lines what it has been given, what it is going to say of that, and what it has an answer to
(`queue_consumers.py`), with the time of the machine's clock.  `History` keeps the lines, and when clients and the
server were killed; `check` goes through them message by message, and raises `Broken`:

* **Nothing is lost.**  Somebody has accepted each message, or it has a dead letter.
* **What is done is done.**  A message that a share consumer has accepted or rejected, with an answer, is not accepted,
  rejected or released with an answer by anyone any more, nor given to a consumer of Pulsar's.  The same holds for what
  a consumer of Pulsar's has acknowledged, until the next kill of the server, as its position is stored a little later.
* **One at a time.**  A message comes again only after somebody has released it, its consumer or the server was killed,
  or its lock may have been over.
* **Counts.**  Deliveries are counted: one more than the releases that were answered, at least, and one more than those
  that were attempted, at most.  Nobody can release a message more often than the limit says.
* **Dead letters.**  There is one for each message that was rejected, or released at the limit, with an answer; there is
  none for any other; there are not more than attempts.

Clients keep what they were given before the server was killed, and may show it afterwards, though it is another one's
by then.  What a share consumer says of such a message must not be answered; of consumers of Pulsar's, which may
acknowledge any message, so many are let pass for each kill as their queues may have (`STALE_MAX`).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from tests.soak.mixed_history import Broken
from tests.soak.queue_consumers import BATCH, PARTITIONS, PLACES

# What is in its queue, where a batch comes whole though fewer places are free, and as much on its way.
STALE_MAX: Final = 2 * (PLACES + BATCH) * PARTITIONS
NEVER: Final = 1 << 62


class What(IntEnum):
    """What a consumer says of a message, in the order in which it may at one moment."""

    GOT = 0
    ACCEPTS = 1
    RELEASES = 2
    REJECTS = 3
    ANSWERED = 4  # what it has said last


LETTERS: Final = {"g": What.GOT, "a": What.ACCEPTS, "r": What.RELEASES, "x": What.REJECTS, "d": What.ANSWERED}
"""How lines begin."""


class Event(NamedTuple):
    """One consumer about one message; `deliveries` is the delivery count of what it got."""

    at: int
    who: int
    what: What
    deliveries: int = 0


class Life:
    """One process of a consumer.  `has_answers`: it says what was answered."""

    def __init__(
        self, history: "History", name: str, begun: int, *, is_pulsar: bool, has_answers: bool
    ) -> None:
        self.name = name
        self.begun = begun
        self.died = NEVER
        self.is_pulsar = is_pulsar
        self.has_answers = has_answers
        self._history = history
        self._number = len(history.lives)
        history.lives.append(self)

    def heard(self, line: str) -> None:
        """A line: its letter, nanoseconds, and messages, as `number` or `number:count`; or what a library prints."""
        letter, *words = line.split() or [""]
        if letter in LETTERS:
            self._history.add(self._number, LETTERS[letter], int(words[0]), words[1:])


class History:
    """See the module's text.  Times are nanoseconds of the machine's monotonic clock."""

    def __init__(self, *, limit: int, lock_ns: int) -> None:
        self.limit = limit
        self.lock_ns = lock_ns
        self.lives: list[Life] = []
        self.kills: list[int] = []  # of the server, ascending: from when on, at the earliest, it was gone
        self.kill_ends: list[int] = []  # ... and until when it may have been there
        self.letters: Counter[int] = Counter()
        self.accepted = 0  # said, for whoever waits
        self._rows: list[array[int]] = []

    def killed(self, before: int, after: int) -> None:
        """The server was killed between these times."""
        self.kills.append(before)
        self.kill_ends.append(after)

    def add(self, who: int, what: What, at: int, messages: Iterable[str]) -> None:
        row = array("q", (who, what, at))
        for message in messages:
            number, _, count = message.partition(":")
            row.append(int(number))
            row.append(int(count or 0))
        self.accepted += (len(row) - 3) // 2 if what is What.ACCEPTS else 0
        self._rows.append(row)  # from a thread for each consumer

    def kill_between(self, start: int, end: int) -> bool:
        """Whether the server may have been killed between these times."""
        at = bisect_left(self.kill_ends, start)
        return at < len(self.kills) and self.kills[at] <= end

    def last_kill(self, before: int) -> int:
        """When the server was last killed, at the latest; -1 for never."""
        at = bisect_right(self.kills, before)
        return self.kill_ends[at - 1] if at else -1

    def told(self, events: Sequence[Event]) -> str:
        """What was said of one message, and the kills of the server, in seconds since the first of them."""
        begin = min([event.at for event in events] + self.kills)
        lines = [
            (event.at, f"{self.lives[event.who].name} {event.what.name} {event.deliveries or ''}")
            for event in events
        ]
        lines += [
            (at, f"the server is killed, until {(end - begin) / 1e9:.3f}")
            for at, end in zip(self.kills, self.kill_ends, strict=True)
        ]
        return "\n".join(f"  {(at - begin) / 1e9:9.3f} s  {line}" for at, line in sorted(lines))

    def by_message(self) -> Iterator[tuple[int, list[Event]]]:
        """What was said of each message that was given to anyone, in the order of time."""
        sizes = np.array([(len(row) - 3) // 2 for row in self._rows], np.int64)
        heads = np.array([row[:3] for row in self._rows], np.int64).reshape(-1, 3)
        pairs = np.concatenate(
            [np.empty(0, np.int64), *(np.frombuffer(row, np.int64)[3:] for row in self._rows)]
        ).reshape(-1, 2)
        who, what, at = (np.repeat(heads[:, column], sizes) for column in range(3))
        order = np.lexsort((what, at, pairs[:, 0]))
        numbers = pairs[order, 0]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        columns = [one[order].tolist() for one in (at, who, what, pairs[:, 1])]
        for start, end in pairwise([*starts, len(numbers)]):
            rows = zip(*(column[start:end] for column in columns), strict=True)
            yield int(numbers[start]), [Event(at, who, What(what), count) for at, who, what, count in rows]


class Checked(NamedTuple):
    """What a history has come to."""

    accepted: int
    dead_letters: int
    redelivered: int
    stale: int

    def __str__(self) -> str:
        return (
            f"{self.accepted} messages accepted, {self.dead_letters} with dead letters, {self.redelivered} given again,"
            f" {self.stale} of them out of a queue from before a kill"
        )


def check(history: History, total: int) -> Checked:
    """Raises Broken; `total` messages were sent, numbered from 0."""
    accepted = redelivered = 0
    seen = 0
    stale: Counter[tuple[int, int]] = Counter()
    for number, events in history.by_message():
        if not 0 <= number < total:
            raise Broken(f"message {number} was never sent")
        seen += 1
        one = _Message(history, number, history.letters.get(number, 0))
        try:
            for event in events:
                one.take(event)
            one.end()
        except Broken as broken:
            raise Broken(f"{broken}\n{history.told(events)}") from None
        accepted += one.accepts > 0
        redelivered += one.gots - 1
        stale.update(one.stale)
    if seen < total:
        raise Broken(f"{total - seen} messages were given to nobody")
    for (who, kill), count in stale.items():
        if count > STALE_MAX:
            raise Broken(
                f"{history.lives[who].name} has been given {count} messages of others after the kill at {kill}"
            )
    return Checked(accepted, len(history.letters), redelivered, stale.total())


class _Message:
    """What has been said of one message so far."""

    def __init__(self, history: History, number: int, letters: int) -> None:
        self._history = history
        self._number = number
        self._letters = letters
        self._holder: Event | None = None  # what it was given by last, as far as known
        self._done: Event | None = None  # what has ended it for certain
        self._last: dict[int, Event] = {}  # of each consumer: what it has said of what it holds
        self._counts: dict[int, int] = {}  # ... and the delivery count that it was shown
        self._before: dict[int, tuple[int, int]] = {}  # ... and how many releases there had been by then
        self._strange: set[int] = set()  # consumers that were given what was not theirs
        self._doubtful: dict[
            int, tuple[Event, Event]
        ] = {}  # ... or what this one, who seemed to hold it, only showed
        self._released_at = -1
        self._releases = 0
        self._releases_answered = 0
        self._locks_over = 0
        self._attempts = 0  # to give it up
        self._given_up = 0  # ... that were answered
        self.accepts = 0
        self.gots = 0
        self.stale: list[tuple[int, int]] = []

    def take(self, event: Event) -> None:
        if event.what is What.GOT:
            self._got(event)
        elif event.what is What.ANSWERED:
            self._answered(event)
        else:
            self._said(event)

    # --- given -------------------------------------------------------------------------------------------------------

    def _got(self, event: Event) -> None:
        self.gots += 1
        life = self._history.lives[event.who]
        self._last.pop(event.who, None)
        self._counts[event.who] = event.deliveries
        self._before[event.who] = self._releases_answered, self._releases
        self._strange.discard(event.who)
        self._doubtful.pop(event.who, None)
        complaint = ""
        if self._done is not None and not self._may_be_undone(event):
            complaint = f"was done with by {self._name(self._done)}"
        elif self._holder is not None and not self._is_free(self._holder, event):
            complaint = f"is with {self._name(self._holder)}"
        if not complaint:
            self._done = None
            self._holder = event
            if life.is_pulsar:
                self._check_count(event)
            return
        kill = self._history.last_kill(event.at)
        if kill < life.begun:
            raise Broken(f"message {self._number} {complaint}, and was given to {self._name(event)}")
        self._strange.add(event.who)
        other = self._done or self._holder
        if other is not None and self._has_lived_through(other):
            self._doubtful[event.who] = event, other
        if life.is_pulsar:
            self.stale.append((event.who, kill))

    def _has_lived_through(self, event: Event) -> bool:
        """Whether its consumer was there before the last kill of the server."""
        return self._history.last_kill(event.at) >= self._history.lives[event.who].begun

    def _may_be_undone(self, event: Event) -> bool:
        """Whether the end of a message may have been forgotten by then."""
        assert self._done is not None
        life = self._history.lives[self._done.who]
        if not life.is_pulsar:
            return False
        if self._history.kill_between(self._done.at, event.at):
            return True
        return not life.has_answers and life.died <= event.at

    def _is_free(self, holder: Event, event: Event) -> bool:
        """Whether what was given to `holder` may be given again by then."""
        life = self._history.lives[holder.who]
        if self._released_at >= holder.at or life.died <= event.at:
            return True
        if self._history.kill_between(holder.at, event.at):
            return True
        if not life.is_pulsar and event.at - holder.at >= self._history.lock_ns:
            self._locks_over += 1
            return True
        return False

    # --- said and answered -------------------------------------------------------------------------------------------

    def _said(self, event: Event) -> None:
        self._last[event.who] = event
        life = self._history.lives[event.who]
        if event.what is What.ACCEPTS:
            self.accepts += life.is_pulsar or event.who not in self._strange
            if life.is_pulsar and not life.has_answers and event.who not in self._strange:
                self._done = event  # for as long as it lives
        elif event.what is What.RELEASES:
            self._released_at = event.at
            self._releases += 1
            self._attempts += self._is_spent(event.who)
        else:
            self._attempts += 1

    def _is_spent(self, who: int) -> bool:
        """Whether a release by this consumer gives it up."""
        return not self._history.lives[who].is_pulsar and self._counts[who] >= self._history.limit

    def _answered(self, event: Event) -> None:
        said = self._last.get(event.who)
        if said is None or said.what is What.ANSWERED:
            raise Broken(f"message {self._number}: {self._name(event)} has an answer to nothing")
        self._last[event.who] = event
        if event.who in self._strange:
            if self._history.lives[event.who].is_pulsar:
                return
            self._believe(event, said)
        if not self._history.lives[event.who].is_pulsar:
            self._check_count(event)
        if said.what is What.RELEASES:
            self._releases_answered += 1
            if not self._is_spent(event.who):
                return
        if said.what is not What.ACCEPTS:
            self._given_up += 1
        # A consumer of Pulsar's may hear, after a kill, the answer of a server that had not stored the position.
        self._done = event._replace(at=said.at) if self._history.lives[event.who].is_pulsar else event

    def _believe(self, event: Event, said: Event) -> None:
        """A share consumer has an answer: it did hold the message, and who seemed to showed what it once had."""
        if event.who not in self._doubtful:
            raise Broken(f"message {self._number} is another one's, and {self._name(event)} has an answer")
        given, other = self._doubtful.pop(event.who)
        before = self._last.get(other.who)
        if before is not None and before.what is What.ANSWERED:
            raise Broken(f"message {self._number} is another one's, and {self._name(event)} has an answer")
        self._strange.discard(event.who)
        self._strange.add(other.who)
        if self._done is other:
            self._done = None
        if self._holder is not None and self._holder.who == other.who:  # or it is with the next one by now
            self._holder = given
        self.accepts += said.what is What.ACCEPTS

    def _check_count(self, event: Event) -> None:
        count = self._counts[event.who]
        least, most = self._before[event.who]
        if count - 1 < least:
            raise Broken(
                f"message {self._number} was released {least} times, and {self._name(event)} was shown the delivery"
                f" count {count}"
            )
        if count - 1 > most + self._locks_over:
            raise Broken(
                f"message {self._number} was released {most} times at most, and {self._name(event)} was shown the"
                f" delivery count {count}"
            )

    # --- in the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        if not self.accepts and not self._letters:
            raise Broken(f"message {self._number} is lost: nobody has accepted it, and it has no dead letter")
        if self._given_up and not self._letters:
            raise Broken(f"message {self._number} was given up, and has no dead letter")
        if self._letters > self._attempts:
            raise Broken(
                f"message {self._number} has {self._letters} dead letters after {self._attempts} attempts"
            )
        if self._releases_answered > self._history.limit:
            raise Broken(f"message {self._number} was released {self._releases_answered} times")

    def _name(self, event: Event) -> str:
        return self._history.lives[event.who].name
