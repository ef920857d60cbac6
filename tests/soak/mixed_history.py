"""What must hold of topics that transactions of both protocols have written to, whatever was killed meanwhile.

A record says which transaction it is of, its number among that transaction's records, how many there are, and what it
was made of, if it is a copy.  `History` is what the clients have said of their transactions; `check` compares it with
what readers of both doors see, and raises `Broken`:

* of a transaction all records are visible, each once, or none, whatever topics and partitions they are in;
* those of a committed one are visible, those of one that nobody has committed are not;
* of each visible record of the source there is one visible copy for each of those who copy it;
* readers of committed records see the same through both doors, in the same order, and only what is in the log.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

NOT_A_COPY = "-"
SEPARATOR = "|"

Place = tuple[str, int]
"""Topic and partition."""
Seen = Mapping[Place, Sequence[str]]
"""The values of records, in order."""


class Broken(Exception):
    """One line."""


class State(Enum):
    """What a client has said of a transaction, before it did so (`-ing`) or after it was answered."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Record(NamedTuple):
    """See the module's text."""

    transaction: str
    number: int
    size: int
    origin: str = NOT_A_COPY

    @property
    def name(self) -> str:
        """What a copy has as its origin."""
        return f"{self.transaction}/{self.number}"

    def encode(self) -> str:
        return SEPARATOR.join(map(str, self))

    @classmethod
    def decode(cls, value: str) -> "Record":
        try:
            transaction, number, count, origin = value.split(SEPARATOR)
            return cls(transaction, int(number), int(count), origin)
        except ValueError:
            raise Broken(f"a record was never sent: {value[:100]!r}") from None


class History:
    """The last that was said of each transaction."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}

    def heard(self, line: str) -> None:
        """A client's line."""
        words = line.split()
        if len(words) == 2:
            self.note(*words)

    def note(self, state: str, transaction: str) -> None:
        self.states[transaction] = State(state)

    def count(self, state: State) -> int:
        return sum(one is state for one in self.states.values())


def check(history: History, committed: Seen, everything: Seen, by_pulsar: Seen) -> int:
    """Raises Broken; how many records are visible."""
    records = {place: [Record.decode(value) for value in values] for place, values in committed.items()}
    for place, values in committed.items():
        missing = Counter(values) - Counter(everything[place])
        if missing:
            raise Broken(
                f"{_shown(place)}: readers of committed records see what is not there: {_first(missing)}"
            )
        if list(by_pulsar[place]) != list(values):
            raise Broken(f"{_shown(place)}: the doors differ: {_difference(values, by_pulsar[place])}")
    seen: defaultdict[str, list[Record]] = defaultdict(list)
    for found in records.values():
        for record in found:
            seen[record.transaction].append(record)
    for transaction, state in history.states.items():
        _check_transaction(transaction, state, seen.get(transaction, []))
    unknown = seen.keys() - history.states.keys()
    if unknown:
        raise Broken(f"transactions are visible that no client has begun: {sorted(unknown)[:3]}")
    return sum(map(len, records.values()))


def _check_transaction(transaction: str, state: State, found: Sequence[Record]) -> None:
    if not found:
        if state is State.COMMITTED:
            raise Broken(f"{transaction} is committed, and nothing of it is visible")
        return
    if state in (State.OPEN, State.ABORTED):
        raise Broken(f"{transaction} is {state.value}, and {len(found)} of its records are visible")
    numbers = sorted(record.number for record in found)
    if numbers != list(range(found[0].size)):
        raise Broken(
            f"{transaction} is {state.value}, and of its {found[0].size} records {numbers} are visible"
        )


def check_copies(source: Iterable[str], copies: Iterable[str], who: str) -> None:
    """Each record of the source has one copy.  Raises Broken."""
    wanted = Counter(Record.decode(value).name for value in source)
    made = list(map(Record.decode, copies))
    there = Counter(copy.origin for copy in made)
    if lost := wanted - there:
        raise Broken(f"{who} has not copied {sum(lost.values())} records: {_first(lost)}")
    if more := there - wanted:
        by = ", ".join(sorted({copy.transaction for copy in made if copy.origin == min(more)}))
        raise Broken(
            f"{who} has copied {sum(more.values())} records too often: {_first(more)}, the first one in {by}"
        )


def _shown(place: Place) -> str:
    return f"partition {place[1]} of {place[0]}"


def _first(found: Counter[str]) -> str:
    return ", ".join(sorted(found)[:3])


def _difference(kafka: Sequence[str], pulsar: Sequence[str]) -> str:
    for number, pair in enumerate(zip(kafka, pulsar, strict=False)):
        if pair[0] != pair[1]:
            return f"record {number} is {pair[0]!r} to Kafka's clients, {pair[1]!r} to Pulsar's"
    return f"{len(kafka)} records to Kafka's clients, {len(pulsar)} to Pulsar's"
