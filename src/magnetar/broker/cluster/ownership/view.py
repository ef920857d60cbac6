"""What one broker has heard of ownership.  It may be late, and it never runs ahead of the metadata store.

Nothing that it says is safe to act on alone: each commit that follows from it names the versions that it has seen.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable

from magnetar.broker.cluster.bundles import LAST, Bundle
from magnetar.broker.cluster.ownership.records import (
    BROKERS,
    LOADS,
    RECORDS,
    WISHES,
    Record,
    Wish,
    bundle_of,
    read_loads,
)
from magnetar.broker.cluster.place import Place
from magnetar.metadata.store import Versioned


class View:
    """See the module's text."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.places: dict[str, Place] = {}  # of those alive
        self.records: dict[Bundle, Record] = {}
        self.wishes: dict[Bundle, Wish] = {}
        self.loads: dict[Bundle, float] = {}  # what was last said of each, also by an owner before
        self._ranges: dict[str, list[Bundle]] = {}  # of each namespace, in order

    def replace(self, rows: Iterable[tuple[str, Versioned]]) -> None:
        """Take what a scan has found for all there is."""
        self.alive.clear()
        self.places.clear()
        self.records.clear()
        self.wishes.clear()
        self.loads.clear()
        self._ranges.clear()
        for path, stored in rows:
            self.learn(path, stored)

    def learn(self, path: str, stored: Versioned | None) -> Bundle | None:
        """Take one change, in the order in which the store reports them; returns the bundle that it is about."""
        if path.startswith(RECORDS):
            bundle = bundle_of(RECORDS, path)
            self._learn_record(bundle, None if stored is None else Record.read(path, stored))
            return bundle
        if path.startswith(WISHES):
            bundle = bundle_of(WISHES, path)
            if stored is None:
                self.wishes.pop(bundle, None)
            else:
                self.wishes[bundle] = Wish.read(path, stored)
            return bundle
        if path.startswith(LOADS) and stored is not None:
            self.loads |= read_loads(stored)
        if path.startswith(BROKERS):
            name = path[len(BROKERS) :]
            if stored is None:
                self.alive.discard(name)
                self.places.pop(name, None)
            else:
                self.alive.add(name)
                self.places[name] = Place.read(stored.value)
        return None

    def _learn_record(self, bundle: Bundle, record: Record | None) -> None:
        ranges = self._ranges.setdefault(bundle.namespace, [])
        if record is None:
            if self.records.pop(bundle, None) is not None:
                ranges.remove(bundle)
            self.loads.pop(bundle, None)
            return
        known = self.records.get(bundle)
        if known is None:
            insort(ranges, bundle)
        elif (known.generation, known.version) > (record.generation, record.version):
            return  # a read has overtaken this change
        self.records[bundle] = record

    def find(self, namespace: str, position: int) -> Record | None:
        """The record of the bundle that has this position; None if the broker knows of none now."""
        ranges = self._ranges.get(namespace, [])
        index = bisect_right(ranges, Bundle(namespace, position, LAST + 1)) - 1
        if index < 0 or not ranges[index].contains(position):
            return None
        return self.records[ranges[index]]

    def of(self, namespace: str) -> list[Record]:
        """The records of a namespace, in order of their ranges."""
        return [self.records[bundle] for bundle in self._ranges.get(namespace, [])]

    def wish_for(self, record: Record) -> Wish | None:
        """What is wished of the owner that the record names."""
        wish = self.wishes.get(record.bundle)
        return wish if wish is not None and wish.generation == record.generation else None

    @property
    def leader(self) -> str | None:
        """The broker that decides: of those alive, the first by name."""
        return min(self.alive, default=None)
