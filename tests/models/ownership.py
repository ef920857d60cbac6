"""Brokers that own bundles in one event loop: over shared stores, and a network that fails.

    python -m tests.models.ownership --seeds 10000 [--first 0] [--planted BUG]

As in `cluster.py`, of which this is another walk, brokers have managed ledgers over shared ledgers and metadata.  Here
they take logs only as the owners of bundles: each has a `Membership` of `broker/cluster/ownership`, the code that a
cluster will run.  The handle of a broker's session goes on working when the session has ended, as that of a client
that connects anew by itself: only what a commit checks keeps such a broker from committing.

One seed is one walk: clients produce, read and trim wherever a broker says that it serves a log; operators unload,
move and split bundles, or take one from an owner that works; loads shift; brokers pause, die, leave, lose their
sessions, or are cut off from the metadata store alone; messages are late or lost, and commits are carried out twice.

At the end everything heals: then each bundle has an owner that serves it, all brokers see the same, no wish is left,
each log takes appends where any broker says that it is, and the logs are whole (`cluster_history.py`).  At each moment
the store is as `ownership_checks.py` demands.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from magnetar.base.clock import sleep
from magnetar.base.errors import BrokerError
from magnetar.broker.cluster.bundles import Bundle, position_of
from magnetar.broker.cluster.model import Node
from magnetar.broker.cluster.ownership.assignment import Snapshot, moves
from magnetar.broker.cluster.ownership.leader import PATIENCE_S, Leader
from magnetar.broker.cluster.ownership.membership import Membership, still_owns
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.cluster.ownership.records import BROKERS as BROKERS_ROOT
from magnetar.broker.cluster.ownership.records import RECORDS, ROOT, alive, first_records, put_record
from magnetar.broker.cluster.ownership.records import Record as OwnerRecord
from magnetar.broker.cluster.ownership.view import View
from magnetar.broker.cluster.place import Here, Place
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    Change,
    Check,
    CommitStep,
    Delete,
    Put,
    Versioned,
)

from .cluster import (
    BROKERS,
    HEAL_S,
    SHARED_EPOCH,
    UNCHECKED,
    UNFENCED,
    Broker,
    World,
    run_world,
    walk_all,
)
from .cluster_history import History, require
from .cluster_stores import Host, Session, at_once
from .ownership_checks import OwnershipChecks

T = TypeVar("T")

NAMESPACE: Final = "t/n"
BUNDLES: Final = 3
BUNDLES_MAX: Final = 7
LOGS: Final = tuple(f"persistent://t/n/{name}" for name in "abcdef")

# --- planted bugs ----------------------------------------------------------------------------------------------------


def _is_record(step: CommitStep) -> bool:
    return step.path.startswith(RECORDS)


def _changed(step: CommitStep, **fields: object) -> CommitStep:
    """A record that is put with other contents."""
    if not isinstance(step, Put) or not _is_record(step):
        return step
    record = OwnerRecord.read(step.path, Versioned(step.value, step.expected_version))
    values = {"owner": record.owner, "generation": record.generation, **fields}
    return put_record(record.bundle, str(values["owner"]), int(str(values["generation"])), record.version)


def _blind(steps: Iterable[CommitStep]) -> list[CommitStep]:
    return [
        replace(step, expected_version=ANY_VERSION)
        if step.path.startswith(ROOT) and not isinstance(step, Check)
        else step
        for step in steps
    ]


def _undead(steps: Iterable[CommitStep]) -> list[CommitStep]:
    return [step for step in steps if not (isinstance(step, Check) and step.path.startswith(BROKERS_ROOT))]


def _old_generation(steps: Iterable[CommitStep]) -> list[CommitStep]:
    found = []
    for step in steps:
        is_passed = isinstance(step, Put) and _is_record(step) and step.expected_version != MUST_NOT_EXIST
        generation = json.loads(step.value)["generation"] if is_passed and isinstance(step, Put) else 0
        found.append(_changed(step, generation=generation - 1) if generation > 1 else step)
    return found


def _young_parts(steps: Iterable[CommitStep]) -> list[CommitStep]:
    return [
        _changed(step, generation=1)
        if isinstance(step, Put) and step.expected_version == MUST_NOT_EXIST
        else step
        for step in steps
    ]


UNDEAD: Final = "undead"
BLIND: Final = "blind"
OLD_GENERATION: Final = "old-generation"
YOUNG_PARTS: Final = "young-parts"
TWO_STEPS: Final = "two-steps"
KEEPS_SERVING: Final = "keeps-serving"
IDLE_LEADER: Final = "idle-leader"
KEPT_WISHES: Final = "kept-wishes"
MISSED_CHANGES: Final = "missed-changes"
BUGS: Final = {
    UNCHECKED: "commits of logs do not check the ownership",
    UNFENCED: "recovery does not fence",
    SHARED_EPOCH: "the leader epoch follows from the chain alone, not from the generation",
    UNDEAD: "commits do not check that a broker is alive",
    BLIND: "records and wishes are written and deleted whatever is there",
    OLD_GENERATION: "a bundle that is passed on keeps its generation",
    YOUNG_PARTS: "the parts of a split bundle begin at the first generation",
    TWO_STEPS: "a bundle is split in two commits",
    KEEPS_SERVING: "an owner that was deposed goes on",
    IDLE_LEADER: "bundles of brokers that are gone are not given to others",
    KEPT_WISHES: "wishes whose generation is over stay",
    MISSED_CHANGES: "the store does not report all changes",
}
_REWRITES: Final[Mapping[str, Callable[[Iterable[CommitStep]], list[CommitStep]]]] = {
    UNDEAD: _undead,
    BLIND: _blind,
    OLD_GENERATION: _old_generation,
    YOUNG_PARTS: _young_parts,
}


class IdleLeader(Leader):
    """With a planted bug."""

    def _assign(self) -> list[Sequence[CommitStep]]:
        return []


class UntidyLeader(Leader):
    """With a planted bug."""

    def _tidy(self) -> list[Sequence[CommitStep]]:
        return []


_LEADERS: Final[Mapping[str, type[Leader]]] = {IDLE_LEADER: IdleLeader, KEPT_WISHES: UntidyLeader}

# --- brokers ---------------------------------------------------------------------------------------------------------


class Link(Host):
    """What a process hears of the metadata store, and says to it: a link that is cut holds it back."""

    def __init__(self, process: Host) -> None:
        super().__init__(process.network)
        self._process = process

    def run(self, work: Callable[[], None]) -> None:
        super().run(lambda: self._process.run(work))


class LastingSession(Session):
    """See the module's text.  It has no part in what the store does for a session: its path goes when it ends."""

    def __init__(self, broker: "Member", world: "OwnershipWorld") -> None:
        super().__init__(broker.link, world.metadata, broker.leave)
        self._name = broker.name
        self._world = world

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        planted = self._world.planted
        steps = _REWRITES.get(planted, list)(operations)
        if planted == TWO_STEPS and any(isinstance(step, Delete) and _is_record(step) for step in steps):
            parts = [
                step for step in steps if isinstance(step, Put) and step.expected_version == MUST_NOT_EXIST
            ]
            await super().commit([step for step in steps if step not in parts])
            steps = list(parts)
        await self._ask(partial(self._commit, steps))

    def _commit(self, steps: Sequence[CommitStep]) -> None:
        """At the store, which may have to carry it out twice: its client asks again when it has lost the answer."""
        at_once(self._world.metadata.commit(steps))
        if self._world.network.loses():
            at_once(self._world.metadata.commit(steps))

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        def changed(change: Change) -> None:
            if self._world.planted != MISSED_CHANGES or not self._world.network.loses():
                callback(change)

        return super().watch(prefix, changed)

    def _at_store(self, work: Callable[[], T]) -> T:
        self._world.author = self
        try:
            return work()
        finally:
            self._world.author = None

    @property
    def name(self) -> str:
        return self._name


class Member(Broker):
    """One process, whose logs are those of the bundles that it owns: implements `BundleWork`."""

    def __init__(self, world: "OwnershipWorld", number: int) -> None:
        self.name = f"b{number:03}"
        self.owning = world
        super().__init__(world, number)
        self.held: dict[Bundle, Hold] = {}
        self.is_leaving = False
        here = Here(self.name, Place(Node(number)))
        self.membership = Membership(
            here, View(), self.session, world.clock, self, lambda: world.loads, world.failures
        )
        if world.planted in _LEADERS:
            planted = _LEADERS[world.planted](self.name, self.membership.view, lambda: world.loads)
            self.membership._leader = planted

    def _new_session(self) -> Session:
        self.link = Link(self.host)
        return LastingSession(self, self.owning)

    def start(self) -> None:
        self.spawn("take part", self.membership.run)

    def leave(self) -> None:
        self.membership.end()
        self.world.replace(self)
        self.link.resume()  # nothing else will: what it had to say arrives late

    async def depart(self) -> None:
        """As an operator stops it."""
        self.is_leaving = True
        await self.membership.leave()
        self.session.expire()

    # --- what its membership asks for

    def serve(self, hold: Hold) -> None:
        self.owning.checks.serves(self.name, hold)
        self.held[hold.bundle] = hold
        for name in logs_of(hold.bundle):
            self.spawn(f"open {name}", partial(self._serve, name, hold))

    async def _serve(self, name: str, hold: Hold) -> None:
        while self.held.get(hold.bundle) is hold:
            with suppress(BrokerError):
                if not await still_owns(self.session, hold):
                    return
                log = await self.open_as(name, hold.generation, hold.checks)
                if self.held.get(hold.bundle) is hold:
                    self.logs[name] = log
                else:
                    log.close()
                return
            await sleep(self.world.clock, 0.1)

    async def stop(self, hold: Hold) -> None:
        while self.held.get(hold.bundle) is hold and self._is_writing(hold.bundle):
            await sleep(self.world.clock, 0.02)
        self._close(hold)

    def _is_writing(self, bundle: Bundle) -> bool:
        logs = [self.logs[name] for name in logs_of(bundle) if name in self.logs]
        return any(log.next_offset > log.high_watermark for log in logs)

    def drop(self, hold: Hold) -> None:
        if self.world.planted != KEEPS_SERVING:
            self._close(hold)

    def brokers_changed(self) -> None:
        """Clients of the simulation look at the view."""

    def _close(self, hold: Hold) -> None:
        if self.held.get(hold.bundle) is hold:
            del self.held[hold.bundle]
            for name in logs_of(hold.bundle):
                log = self.logs.pop(name, None)
                if log is not None:
                    log.close()


def logs_of(bundle: Bundle) -> list[str]:
    return [name for name in LOGS if bundle.contains(position_of(name))]


class OwnershipWorld(World):
    """See the module's text."""

    def __init__(self, seed: int, planted: str = "") -> None:
        super().__init__(seed, planted)
        self.histories = {name: History(name) for name in LOGS}
        self.checks = OwnershipChecks(self.metadata, NAMESPACE)
        self.loads: dict[Bundle, float] = {}
        self.author: LastingSession | None = None  # of the commit that the store carries out
        self._rest_s = 0.0  # in which nothing but time goes wrong
        self._processes: list[Member] = []  # also those that have ended, whose tasks wait for answers

    def begin(self) -> None:
        at_once(self.metadata.commit(first_records(NAMESPACE, BUNDLES)))
        self.metadata.watch("/", self._written)
        for _ in range(BROKERS):
            self.brokers.append(self._new_broker())

    def _written(self, change: Change) -> None:
        author = self.author
        name = "" if author is None else author.name
        self.checks.wrote(change, name, is_over=author is not None and author.is_over)

    async def turn(self, seconds: float) -> None:
        await super().turn(seconds)
        while self._rest_s > 0:
            self._rest_s -= 0.1
            await super().turn(0.1)

    def _new_broker(self) -> Broker:
        self._numbers += 1
        member = Member(self, self._numbers)
        self._processes.append(member)
        member.start()
        return member

    @property
    def members(self) -> list[Member]:
        return [broker for broker in self.brokers if isinstance(broker, Member)]

    # --- clients and operators ---------------------------------------------------------------------------------------

    def owners(self, name: str) -> list[tuple[Broker, ManagedLedger]]:
        """The brokers that say that they serve a log, and work."""
        position = position_of(name)
        return [
            (member, member.logs[name])
            for member in self.members
            if member.is_working and name in member.logs and member.membership.serving(NAMESPACE, position)
        ]

    def found_by(self, asked: Member, name: str) -> list[tuple[Broker, ManagedLedger]]:
        """Where a client gets that asks one broker for the owner of a log."""
        record = asked.membership.view.find(NAMESPACE, position_of(name))
        return (
            []
            if record is None
            else [one for one in self.owners(name) if one[0].number == int(record.owner[1:] or 0)]
        )

    def produce(self, name: str, times: int) -> None:
        """Send to a broker that has the log, which takes it if it then serves that: a paused one, when it goes on."""
        members = [member for member in self.members if name in member.logs]
        if members:
            member = self.random.choice(members)
            for _ in range(times):
                member.host.run(partial(self._arrive, name, member))

    def _arrive(self, name: str, member: Member) -> None:
        log = member.logs.get(name)
        if log is not None and member.membership.serving(NAMESPACE, position_of(name)):
            self._append(name, member, log)

    def _append(self, name: str, broker: Broker, log: ManagedLedger) -> None:
        assert isinstance(broker, Member)
        hold = broker.membership.serving(NAMESPACE, position_of(name))
        assert hold is not None
        if self.planted != SHARED_EPOCH:
            require(log.leader_epoch == hold.generation, name, "has epoch", log.leader_epoch, "under", hold)
        super()._append(name, broker, log)

    def operate(self) -> None:
        """Ask an owner to let a bundle go, or take it away, by any broker."""
        asked = self.random.choice(self.members)
        records = list(asked.membership.view.records.values())
        if not records:
            return
        record = self.random.choice(records)
        if self.random.random() < 0.3:
            asked.spawn("depose", partial(asked.session.commit, [alive(asked.name), record.let_go()]))
            return
        to, boundary = self.random.choice(("", *sorted(asked.membership.view.alive))), 0
        if self.random.random() < 0.4 and len(records) < BUNDLES_MAX:
            to, boundary = "", record.bundle.middle
        asked.spawn("ask", partial(asked.membership.ask, record, to, boundary))

    def shift_load(self) -> None:
        records = self.checks.records()
        self.loads = {bundle: self.random.choice((0.0, 0.0, 1.0, 4.0)) for bundle in records}

    # --- the walk ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        random = self.random
        name = random.choice(LOGS)
        member = random.choice(self.members)
        chance = random.random()
        if chance < 0.52:
            self.produce(name, random.randint(1, 4))
        elif chance < 0.60:
            self.read(name)
        elif chance < 0.63:
            self.trim(name)
        elif chance < 0.73:
            self.operate()
        elif chance < 0.75:
            self.shift_load()
        elif chance < 0.77:
            self._rest_s = random.choice((1.0, PATIENCE_S + 1.0))
        elif chance < 0.84:
            self._pause_or_resume(random.choice((member.host, member.link)))
        elif chance < 0.88:
            member.session.expire()
        elif chance < 0.90:
            member.die()
        elif chance < 0.92:
            member.spawn("depart", member.depart)
        else:
            self.network.loss = random.choice((0.0, 0.0, 0.02, 0.2))
            self.network.delay_s = random.choice((0.0, 0.005, 0.05))

    def _pause_or_resume(self, host: Host) -> None:
        (host.resume if host.is_paused else host.pause)()

    async def heal(self) -> None:
        """Everything works again: see the module's text."""
        self.network.loss = 0.0
        for member in self.members:
            member.host.resume()
            member.link.resume()
        await self._until(self._unsettled)
        for name in LOGS:
            for asked in self.members:
                await self._append_by(asked, name)

    async def _until(self, missing: Callable[[], str]) -> None:
        ends_s = self.clock.monotonic() + HEAL_S
        while problem := missing():
            require(self.clock.monotonic() < ends_s, "it does not heal:", problem)
            for _ in range(10):
                await self.turn(0.02)

    def _unsettled(self) -> str:
        members = self.members
        if any(member.is_leaving for member in members):
            return "a broker is on its way out"
        views = {member.name: member.membership.view for member in members}
        problem = self.checks.unsettled(views, {member.name: member.held for member in members})
        if problem:
            return problem
        owners = {bundle: record.owner for bundle, record in self.checks.records().items()}
        left = moves(Snapshot(views, owners, self.loads), 1)
        return f"loads are not balanced: {left}" if left else ""

    async def _append_by(self, asked: Member, name: str) -> None:
        acknowledged = self.histories[name].acknowledged
        known = len(acknowledged)

        def missing() -> str:
            if len(acknowledged) > known:
                return ""
            for broker, log in self.found_by(asked, name):
                self._append(name, broker, log)
            return f"{name} takes no appends where {asked.name} says that it is"

        await self._until(missing)


def run(seed: int, planted: str = "") -> World:
    """Walk once.  Raises Broken if the cluster does not keep its promises."""
    return run_world(lambda: OwnershipWorld(seed, planted))


def main() -> int:
    return walk_all("tests.models.ownership", __doc__, BUGS, run)


if __name__ == "__main__":
    sys.exit(main())
