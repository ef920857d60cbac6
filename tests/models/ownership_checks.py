"""What must be true of ownership at each moment, whatever brokers believe: checked in the metadata store itself."""

import json
from typing import NamedTuple

from magnetar.broker.cluster.bundles import LAST, Bundle, position_of
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.cluster.ownership.records import BROKERS, NO_OWNER, RECORDS, WISHES, Record
from magnetar.broker.cluster.ownership.view import View
from magnetar.ledger.chain_rows import METADATA_ROOT, ids_in
from magnetar.ledger.tombstones import ROOT as TOMBSTONES
from magnetar.metadata.store import Change
from magnetar.testing.metadata import MemoryMetadataStore

from .cluster_history import require
from .cluster_stores import at_once


class Owned(NamedTuple):
    """That a broker had a range, or began to serve it."""

    bundle: Bundle
    generation: int
    broker: str

    def overlaps(self, other: Bundle) -> bool:
        return self.bundle.low < other.high and other.low < self.bundle.high


class OwnershipChecks:
    """Of one namespace.  `wrote` is called at each change, before any broker hears of it."""

    def __init__(self, metadata: MemoryMetadataStore, namespace: str) -> None:
        self.metadata = metadata
        self.namespace = namespace
        self._recorded: list[Owned] = []
        self._served: list[Owned] = []

    def wrote(self, change: Change, author: str, *, is_over: bool) -> None:
        """`author` is the broker whose commit has changed something, or empty."""
        if change.path.startswith(TOMBSTONES):
            self._check_given_up(change)
        else:
            require(not is_over, author, "has committed after the end of its session:", change.path)
        if change.path.startswith(METADATA_ROOT):
            self._chain_written(change, author)
        if change.path.startswith(RECORDS):
            self._check_whole()
            if change.value is not None:
                self._check_record(Record.read(change.path, change.value))

    def records(self) -> dict[Bundle, Record]:
        rows = at_once(self.metadata.scan(f"{RECORDS}{self.namespace}/"))
        return {record.bundle: record for record in (Record.read(*row) for row in rows)}

    def owner_of(self, log: str) -> Record:
        """As the store has it now."""
        position = position_of(log)
        return next(record for bundle, record in self.records().items() if bundle.contains(position))

    def _check_given_up(self, change: Change) -> None:
        """A broker may say of a ledger that it has made whether a chain has it, whenever that is true."""
        if change.value is not None:
            ledger_id = int(change.path[len(TOMBSTONES) :], 16)
            for path, chain in at_once(self.metadata.scan(METADATA_ROOT)):
                require(
                    ledger_id not in ids_in(chain.value), path, "names ledger", ledger_id, "to be deleted"
                )

    def _check_whole(self) -> None:
        end = 0
        for bundle in sorted(self.records()):
            require(bundle.low == end, "positions from", end, "are in no bundle, or in two:", bundle)
            end = bundle.high
        require(end == LAST, "positions from", end, "are in no bundle")

    def _check_record(self, record: Record) -> None:
        new = Owned(record.bundle, record.generation, record.owner)
        for old in self._recorded:
            if old.overlaps(record.bundle):
                require(new.generation >= old.generation, "a generation goes back from", old, "to", new)
                if new.generation == old.generation and NO_OWNER not in (new.broker, old.broker):
                    require(new.broker == old.broker, "two brokers have one generation:", old, new)
        if record.owner != NO_OWNER:
            alive = at_once(self.metadata.get(BROKERS + record.owner))
            require(alive is not None, new, "was given to a broker that is not there")
        self._recorded.append(new)

    def _chain_written(self, change: Change, author: str) -> None:
        if change.value is None:
            return
        log = change.path[len(METADATA_ROOT) :]
        epoch = json.loads(change.value.value)["epoch"]
        for ledger_id in ids_in(change.value.value):
            tombstone = at_once(self.metadata.get(f"{TOMBSTONES}{ledger_id:016x}"))
            require(tombstone is None, log, "names ledger", ledger_id, "which is to be deleted")
        owner = self.owner_of(log)
        require(
            (owner.owner, owner.generation) == (author, epoch),
            f"{log} was written by {author} in generation {epoch}, when it had",
            owner,
        )

    def serves(self, broker: str, hold: Hold) -> None:
        """A broker begins to serve what it holds."""
        new = Owned(hold.bundle, hold.generation, broker)
        for old in self._served:
            if old.overlaps(new.bundle) and old.generation == new.generation:
                require(False, "positions are served twice in one generation:", old, new)
        self._served.append(new)

    def unsettled(self, views: dict[str, View], held: dict[str, dict[Bundle, Hold]]) -> str:
        """What is not yet as it has to be when all works again: one sentence, or empty."""
        records = self.records()
        if wishes := at_once(self.metadata.scan(WISHES)):
            return f"wishes stay: {wishes}"
        for bundle, record in records.items():
            hold = held.get(record.owner, {}).get(bundle)
            if hold is None or hold.record != record:
                return f"nothing serves {record}"
        if sum(map(len, held.values())) > len(records):
            return f"brokers hold what they do not own: {held}"
        alive = {path[len(BROKERS) :] for path, _ in at_once(self.metadata.scan(BROKERS))}
        if alive != views.keys():
            return f"brokers are {views.keys()}, and have sessions: {alive}"
        for broker, view in views.items():
            if view.records != records or view.alive != alive:
                return f"{broker} does not see what is there: {view.records} {view.alive}"
        return ""
