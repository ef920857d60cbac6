"""A cluster in one event loop: brokers that take each other's logs, over shared stores and a network that fails.

    python -m tests.models.cluster --seeds 10000 [--first 0] [--planted BUG]

Brokers are what is there of them: managed ledgers, and the ownership of each log.  A broker owns a log by the version
of `/owners/<log>`, which it gets by writing its name there; any broker may do that at any time, since an owner is
deposed early at worst.  Then it reads the chain, fences and recovers all of its ledgers, and appends under that version
as its leader epoch.

One seed is one walk: clients produce, read and trim wherever a broker believes that it owns a log; brokers pause, die,
lose their sessions or are cut off; messages are late or lost.  At the end everything heals, each log must take appends
again, and an independent reader compares what the stores have with what clients were told (`cluster_history.py`).
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from magnetar.base.errors import BrokerError, LogLost, MetadataError, StorageError
from magnetar.base.tasks import Tasks
from magnetar.ledger.chain_rows import METADATA_ROOT, ids_in
from magnetar.ledger.entry import Entry
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.ledger.stored_log import recover_log
from magnetar.ledger.tombstones import ROOT as TOMBSTONES_ROOT
from magnetar.metadata.store import MUST_NOT_EXIST, Change, Check
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

from .cluster_history import Broken, History, body_of, decode, require, row_of
from .cluster_stores import Bookies, Host, LedgerClient, Network, Session, at_once

BROKERS: Final = 3
LOGS: Final = ("a", "b")
STEPS: Final = 220
HEAL_S: Final = 30.0

# What a simulation must find if it is built in: see `BUGS`.
UNCHECKED: Final = "unchecked"
UNFENCED: Final = "unfenced"
SHARED_EPOCH: Final = "shared-epoch"
IGNORED_KEPT: Final = "ignored-kept"
KEEPS_TRYING: Final = "keeps-trying"
BLIND_DELETION: Final = "blind-deletion"
KEPT_TOMBSTONES: Final = "kept-tombstones"
BUGS: Final = {
    UNCHECKED: "commits do not check the ownership",
    UNFENCED: "recovery does not fence",
    SHARED_EPOCH: "the leader epoch follows from the chain alone",
    IGNORED_KEPT: "what a sealed ledger has kept of failed appends is ignored",
    KEEPS_TRYING: "a log that was taken over is not lost: its owner before tries again",
    BLIND_DELETION: "a new ledger is deleted when its commit failed",
    KEPT_TOMBSTONES: "tombstones of a commit that memory does not know of stay",
}


class IgnoresKept(ManagedLedger):
    """With a planted bug: it goes on at the high watermark, wherever its ledgers end."""

    async def _take_stock(self) -> None:
        for info in self._written():
            info.writer = None
        self._answer_failed()
        self._reset()


class KeepsTrying(ManagedLedger):
    """With a planted bug: it takes the version that it finds for its own."""

    def _learn(self, stored: Any, *, must_be_new: bool = False) -> None:
        self._metadata_version = MUST_NOT_EXIST if stored is None else stored.version
        self._unanswered = None
        if must_be_new:
            raise MetadataError("another version is stored")


class DeletesBlindly(ManagedLedger):
    """With a planted bug: whatever its commit has become, the ledger goes."""

    async def _stay(self, writer: Any, error: Exception) -> None:
        await super()._stay(writer, error)
        spare, self._spare = self._spare, None
        if spare is not None:
            await self._environment.store.delete(spare.stat.ledger_id)


class KeepsTombstones(ManagedLedger):
    """With a planted bug: ledgers that are in the chain once more keep their tombstones."""

    def _learn(self, stored: Any, *, must_be_new: bool = False) -> None:
        super()._learn(stored, must_be_new=must_be_new)
        self._to_undo = []


_KINDS: Final[dict[str, type[ManagedLedger]]] = {
    IGNORED_KEPT: IgnoresKept,
    KEEPS_TRYING: KeepsTrying,
    BLIND_DELETION: DeletesBlindly,
    KEPT_TOMBSTONES: KeepsTombstones,
}


class Broker:
    """One process: from its start to its death, or to the end of its session."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.host = Host(world.network)
        self.session = self._new_session()
        self.logs: dict[str, ManagedLedger] = {}
        self.tasks = Tasks(world.failures)
        self._taking: set[str] = set()

    def _new_session(self) -> Session:
        return Session(self.host, self.world.metadata, self.leave)

    @property
    def is_working(self) -> bool:
        return not self.host.is_dead and not self.host.is_paused

    def start(self) -> None:
        self.spawn("register", self._register)

    async def _register(self) -> None:
        await self.session.put(f"/brokers/{self.number}", b"", MUST_NOT_EXIST, ephemeral=True)

    def spawn(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        async def expecting() -> None:
            with suppress(BrokerError):  # a fault that the walk has made
                await work()

        self.tasks.spawn(name, expecting())

    def leave(self) -> None:
        """Its session is over: it gives its logs up, and another process begins."""
        for log in self.logs.values():
            log.close()
        self.logs.clear()
        self.world.replace(self)

    def die(self) -> None:
        self.host.is_dead = True
        self.logs.clear()
        self.tasks.cancel()
        self.session.expire()
        self.world.replace(self)

    def take(self, name: str) -> None:
        if name not in self._taking:
            self._taking.add(name)
            self.spawn(f"take {name}", partial(self._take, name))

    async def _take(self, name: str) -> None:
        try:
            before = self.logs.pop(name, None)
            if before is not None:
                before.close()
            log = await self._open(name)
            if self.session.is_over:
                log.close()
            else:
                self.logs[name] = log
        finally:
            self._taking.discard(name)

    async def _open(self, name: str) -> ManagedLedger:
        path = f"/owners/{name}"
        owner = await self.session.get(path)
        known = MUST_NOT_EXIST if owner is None else owner.version
        version = await self.session.put(path, b"%d" % self.number, known)
        return await self.open_as(name, version, [Check(path, version)])

    async def open_as(self, name: str, generation: int, checks: Sequence[Check]) -> ManagedLedger:
        """Take a log over, as the owner of this generation."""
        world, session = self.world, self.session
        environment = LedgerEnvironment(
            LedgerClient(self.host, world.bookies),
            session,
            EntryCache(4_000),
            world.clock,
            decode,
            tasks=Tasks(world.failures),
        )
        self.world.environments.append((self, environment))
        stored = await recover_log(environment, name)
        owned = [] if world.planted == UNCHECKED else checks
        kind = _KINDS.get(world.planted, ManagedLedger)
        log = kind(name, environment, LedgerLimits(entry_count_max=5), owned=owned)
        if world.planted != SHARED_EPOCH:
            log.take_over(stored, generation)
        elif stored is not None:
            log.restore(stored.chain.value, stored.chain.version, stored.stats)
        require(log.problem is None, name, "cannot be opened:", log.problem)
        return log


class World:
    """See the module's text."""

    def __init__(self, seed: int, planted: str = "") -> None:
        self.random = Random(seed)
        self.planted = planted
        self.clock = FakeClock()
        self.network = Network(self.clock, self.random)
        self.metadata = MemoryMetadataStore()
        self.bookies = Bookies(fences=planted != UNFENCED)
        self.histories = {name: History(name) for name in LOGS}
        self.environments: list[tuple[Broker, LedgerEnvironment]] = []
        self.unforeseen: list[str] = []
        self.failures = logging.Logger(f"cluster {seed}")  # of tasks
        self.failures.addHandler(_Keeping(self.unforeseen))
        self.brokers: list[Broker] = []
        self._numbers = 0
        self._entries = 0

    def begin(self) -> None:
        self.metadata.watch(METADATA_ROOT, self._chain_written)
        for _ in range(BROKERS):
            self.brokers.append(self._new_broker())

    def _chain_written(self, change: Change) -> None:
        name = change.path[len(METADATA_ROOT) :]
        owner = at_once(self.metadata.get(f"/owners/{name}"))
        assert owner is not None
        assert change.value is not None
        epoch = json.loads(change.value.value)["epoch"]
        require(
            epoch == owner.version, name, "was written by owner", epoch, "when it had owner", owner.version
        )
        for ledger_id in ids_in(change.value.value):
            tombstone = at_once(self.metadata.get(f"{TOMBSTONES_ROOT}{ledger_id:016x}"))
            require(tombstone is None, name, "names ledger", ledger_id, "which is to be deleted")

    def _new_broker(self) -> Broker:
        self._numbers += 1
        broker = Broker(self, self._numbers)
        broker.start()
        return broker

    def replace(self, gone: Broker) -> None:
        """Another process takes the place of one that has ended."""
        if gone in self.brokers:
            self.brokers[self.brokers.index(gone)] = self._new_broker()

    # --- clients -----------------------------------------------------------------------------------------------------

    def owners(self, name: str) -> list[tuple[Broker, ManagedLedger]]:
        """The brokers that believe to own a log, and work."""
        return [
            (broker, broker.logs[name])
            for broker in self.brokers
            if broker.is_working and name in broker.logs
        ]

    def produce(self, name: str, times: int) -> None:
        owners = self.owners(name)
        if not owners:
            return
        broker, log = self.random.choice(owners)
        for _ in range(times):
            self._append(name, broker, log)

    def _append(self, name: str, broker: Broker, log: ManagedLedger) -> None:
        self._entries += 1
        base = log.next_offset
        body = body_of(base, log.leader_epoch, broker.number, self._entries)
        last = base + self.random.randrange(3)
        entry = Entry(base, last, self.clock.now_ms(), memoryview(body))

        def done(error: Exception | None) -> None:
            if error is None:
                self.histories[name].acknowledge(row_of(entry))

        try:
            log.append(entry, [entry.payload], len(body), done)
        except LogLost:
            broker.logs.pop(name, None)  # its clients look for the leader
        except StorageError:
            pass

    def read(self, name: str) -> None:
        owners = self.owners(name)
        if not owners:
            return
        broker, log = self.random.choice(owners)
        if log.log_start < log.high_watermark:
            offset = self.random.randrange(log.log_start, log.high_watermark)
            cached = log.read_cached(offset, 500, log.high_watermark)
            if cached:
                self.histories[name].see(cached)
            broker.spawn("read", partial(self._read, name, log, offset))

    async def _read(self, name: str, log: ManagedLedger, offset: int) -> None:
        self.histories[name].see(await log.read(offset, 500))

    def trim(self, name: str) -> None:
        owners = self.owners(name)
        if owners:
            broker, log = self.random.choice(owners)
            start = self.random.randint(log.log_start, log.high_watermark)
            broker.spawn("trim", partial(self._trim, name, log, start))

    async def _trim(self, name: str, log: ManagedLedger, start: int) -> None:
        history = self.histories[name]
        history.trimmed = max(history.trimmed, await log.trim(start))

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        random = self.random
        name = random.choice(LOGS)
        broker = random.choice(self.brokers)
        chance = random.random()
        if chance < 0.55:
            self.produce(name, random.randint(1, 4))
        elif chance < 0.70:
            self.read(name)
        elif chance < 0.74:
            self.trim(name)
        elif chance < 0.84 or not self.owners(name):
            if broker.is_working:
                broker.take(name)
        elif chance < 0.89:
            if broker.host.is_paused:
                broker.host.resume()
            else:
                broker.host.pause()
        elif chance < 0.91:
            broker.session.expire()
        elif chance < 0.93:
            broker.die()
        else:
            self.network.loss = random.choice((0.0, 0.0, 0.02, 0.2))
            self.network.delay_s = random.choice((0.0, 0.005, 0.05))

    async def turn(self, seconds: float) -> None:
        """Let the processes run, and so much time pass."""
        for _ in range(4):
            await asyncio.sleep(0)
        self.clock.advance(seconds)
        if self.unforeseen:
            raise Broken(self.unforeseen[0])

    async def heal(self) -> None:
        """Everything works again: each log must take an append of a new owner."""
        self.network.loss = 0.0
        for broker in self.brokers:
            broker.host.resume()
        for name in LOGS:
            ends_s = self.clock.monotonic() + HEAL_S
            known = len(self.histories[name].acknowledged)
            while len(self.histories[name].acknowledged) == known:
                require(self.clock.monotonic() < ends_s, name, "takes no appends any more")
                owners = self.owners(name)
                if not owners:
                    self.random.choice(self.brokers).take(name)
                for broker, log in owners:
                    self._append(name, broker, log)
                for _ in range(20):
                    await self.turn(0.02)

    async def walk(self) -> None:
        self.begin()
        for _ in range(STEPS):
            self.step()
            await self.turn(self.random.choice((0.0, 0.002, 0.01, 0.05)))
        await self.heal()
        for history in self.histories.values():
            history.check(self.metadata, self.bookies)

    def end(self) -> None:
        for _, environment in self.environments:
            environment.tasks.cancel()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()


class _Keeping(logging.Handler):
    """Keeps what a logger gets."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__()
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._kept.append(f"{record.getMessage()}: {cause!r}")


def run(seed: int, planted: str = "") -> World:
    """Walk once.  Raises Broken if the cluster does not keep its promises."""
    return run_world(lambda: World(seed, planted))


def run_world(make: Callable[[], World]) -> World:
    async def whole() -> World:
        world = make()
        try:
            await world.walk()
        finally:
            world.end()
        return world

    quiet = logging.getLogger("magnetar.ledger")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        return asyncio.run(whole())
    finally:
        quiet.setLevel(level)


def main() -> int:
    return walk_all("tests.models.cluster", __doc__, BUGS, run)


def walk_all(module: str, text: str | None, bugs: Mapping[str, str], run: Callable[[int, str], World]) -> int:
    """Walk as often as the command line says."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--planted", choices=bugs, default="", help="a bug that the brokers have")
    options = parser.parse_args()
    acknowledged = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            world = run(seed, options.planted)
        except AssertionError as broken:
            print(f"FAILED python -m {module} --seeds 1 --first {seed}: {broken}")
            return 1
        acknowledged += sum(len(one.acknowledged) for one in world.histories.values())
    print(f"{options.seeds} seeds from {options.first} held: {acknowledged} appends were acknowledged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
