"""The flights of a year from New York as records, and whether a target has them as they were sent.

A replicator may send records again, in their order: a key may be seen as `1 2 3 1 2 3 4`, and never as `1 3`.  So what
is looked for, by key, is a record that was lost, one that came before an older one, and an older one at the end; and of
each record whether key, value and headers are as they were.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from demo.flights import encode, read
from tests.soak.mixed_history import Broken

COUNT = 336_776
SHOWN = 5
NUMBER = "number"


class Flight(NamedTuple):
    """`number` counts all flights from 0; `headers` are texts, so that they are properties for Pulsar."""

    number: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def flights(count: int = COUNT) -> list[Flight]:
    """The first `count` flights, in the order of their table.  The key is a flight's number: all flights have one."""
    frame = read().head(count)
    columns = zip(frame["carrier"], frame["flight"], frame["origin"], frame["dest"], strict=True)
    return [
        Flight(
            number,
            f"{carrier}{flight}".encode(),
            value,
            ((NUMBER, b"%d" % number), ("origin", origin.encode()), ("dest", dest.encode())),
        )
        for number, (value, (carrier, flight, origin, dest)) in enumerate(
            zip(encode(frame).values, columns, strict=True)
        )
    ]


Found = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Verdict:
    """What is wrong, in words; `again` counts records that came more than once, which is not wrong."""

    faults: list[str] = field(default_factory=list)
    again: int = 0

    def require(self, *, once: bool = False) -> None:
        """Raises Broken: something is wrong, or records came again although each must come `once`."""
        if self.faults:
            raise Broken(f"{len(self.faults)} faults: {'; '.join(self.faults[:SHOWN])}")
        if once and self.again:
            raise Broken(f"{self.again} records came again")


def judged(sent: Sequence[Flight], found: Iterable[Found]) -> Verdict:
    """Compare with what was sent; `found` has the records of each key in the order of the target."""
    verdict = Verdict()
    numbers_of: dict[bytes, list[int]] = defaultdict(list)
    rank: dict[int, int] = {}
    for flight in sent:
        rank[flight.number] = len(numbers_of[flight.key])
        numbers_of[flight.key].append(flight.number)
    seen: set[int] = set()
    highest: dict[bytes, int] = defaultdict(lambda: -1)
    last: dict[bytes, int] = {}
    for key, value, headers in found:
        number = _number(headers)
        if number is None or number not in rank:
            verdict.faults.append(f"a record that was never sent: {key!r} {headers!r}")
            continue
        flight = sent[number - sent[0].number]
        if (key, value, headers) != (flight.key, flight.value, flight.headers):
            verdict.faults.append(f"flight {number} is changed: {key!r} {headers!r}")
        if rank[number] > highest[flight.key] + 1:
            verdict.faults.append(f"flight {number} came before an older one of {flight.key.decode()}")
        verdict.again += number in seen
        seen.add(number)
        highest[flight.key] = max(highest[flight.key], rank[number])
        last[flight.key] = number
    verdict.faults += [f"flight {number} is lost" for number in rank if number not in seen]
    verdict.faults += [
        f"the last record of {key.decode()} is flight {last[key]} and not {numbers[-1]}"
        for key, numbers in numbers_of.items()
        if key in last and numbers[-1] in seen and last[key] != numbers[-1]
    ]
    return verdict


def _number(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    text = dict(headers).get(NUMBER)
    return int(text) if text is not None and text.isdigit() else None
