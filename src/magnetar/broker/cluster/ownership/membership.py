"""A broker's part in a cluster, from the beginning of its session with the metadata store to the end of it.

`Membership` watches what the store has of ownership, lets the state machines say what follows (`owner`, `leader`), and
carries that out: at once what concerns this process alone, and commits one after the other.  It repeats nothing of its
own accord: a commit that failed, or whose answer was lost, follows again from the view if it is still needed.

It needs of the store what the port promises of watches, as long as the session lasts: all changes, in order.  When the
session ends, its owner calls `end`; this object is of no use then, and the process begins another one under a new name.
Nothing depends on how early it is called, because each commit checks that its broker is alive.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from magnetar.base.clock import Clock, sleep
from magnetar.base.errors import BadVersion, MetadataError
from magnetar.base.tasks import Tasks
from magnetar.broker.cluster.ownership.leader import Leader, Loads, ask
from magnetar.broker.cluster.ownership.owner import Action, Drop, Hold, Owner, Serve, Stop
from magnetar.broker.cluster.ownership.records import BROKERS, ROOT, Record, alive
from magnetar.broker.cluster.ownership.view import View
from magnetar.broker.cluster.place import Here
from magnetar.metadata.store import MUST_NOT_EXIST, Change, MetadataStore

T = TypeVar("T")

LOOK_AGAIN_S: Final = 1.0  # for wishes that are not done in time
RETRY_S: Final = 0.1


async def still_owns(store: MetadataStore, hold: Hold) -> bool:
    """Ask the store.  A broker that opens logs asks first, because opening fences the logs of another owner.

    Raises:
        MetadataError
    """
    try:
        await store.commit(hold.checks)
    except BadVersion:
        return False
    return True


class BundleWork(Protocol):
    """What a broker does for the bundles that it owns."""

    def serve(self, hold: Hold) -> None:
        """Begin to open what belongs to the bundle."""
        ...

    async def stop(self, hold: Hold) -> None:
        """Take no more work for the bundle, and close what belongs to it when the work under way is done.  `drop` may
        come meanwhile.
        """
        ...

    def drop(self, hold: Hold) -> None:
        """Let go at once: the bundle may be another broker's already."""
        ...

    def brokers_changed(self) -> None:
        """The view has other brokers than before."""
        ...


class Membership:
    """See the module's text.  All methods run on the event loop."""

    def __init__(
        self,
        here: Here,
        view: View,
        store: MetadataStore,
        clock: Clock,
        work: BundleWork,
        loads: Loads,
        failures: logging.Logger,
    ) -> None:
        """`view` is empty, and this object alone changes it.  `loads` is what the leader balances by."""
        self.broker = broker = here.name
        self.view = view
        self._here = here
        self.is_over = False
        self._store = store
        self._clock = clock
        self._work = work
        self._owner = Owner(broker, view)
        self._leader = Leader(broker, view, loads)
        self._wake = asyncio.Event()
        self._is_reading = True
        self._touched: dict[str, None] = {}  # paths that have changed while it reads, in order
        self._stopping = Tasks(failures)

    @property
    def holds(self) -> list[Hold]:
        return self._owner.holds

    def serving(self, namespace: str, position: int) -> Hold | None:
        """Under which hold this broker takes work for a position; None: it does not, now."""
        return self._owner.serving(namespace, position)

    async def run(self) -> None:
        """Take part until `end`.  However it ends, the caller then ends the session.

        Raises:
            MetadataError: the session ended before it began to take part.
        """
        unwatch = self._store.watch(ROOT, self._changed)
        try:
            await self._patiently(self._register)
            await self._read()
            while not self.is_over:
                self._wake.clear()
                is_done = await self._commit_all()
                timer = self._clock.call_later(LOOK_AGAIN_S if is_done else RETRY_S, self._wake.set)
                await self._wake.wait()
                timer.cancel()
        finally:
            unwatch()
            self.end()

    async def ask(self, record: Record, to: str = "", boundary: int = 0) -> None:
        """Let the owner that a record names let the bundle go: to a broker, to any that the leader takes, or in two
        parts.

        Raises:
            BadVersion: the record has changed, or something else is wished of the owner.
            MetadataError
        """
        await self._store.commit([alive(self.broker), *ask(record, to, boundary)])

    async def leave(self) -> None:
        """Serve nothing more.  Afterwards the caller ends the session, and the leader gives the bundles to others."""
        self._carry_out(self._owner.leave())
        await self._stopping.ended()

    async def resign(self) -> None:
        """Leave, and let the others hear of it before the session ends."""
        await self.leave()
        with suppress(MetadataError):  # they hear of it when the session ends
            await self._store.delete(BROKERS + self.broker)
        self.end()

    def end(self) -> None:
        """The session has ended."""
        self.is_over = True
        self._stopping.cancel()
        self._carry_out(self._owner.end())
        self._wake.set()

    # --- the beginning -----------------------------------------------------------------------------------------------

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until it works."""
        while True:
            try:
                return await work()
            except MetadataError:
                if self.is_over:
                    raise
                await sleep(self._clock, RETRY_S)

    async def _register(self) -> None:
        with suppress(
            BadVersion
        ):  # the answer to an earlier try was lost; nothing was done under the name yet
            place = self._here.place.encode()
            await self._store.put(BROKERS + self.broker, place, MUST_NOT_EXIST, ephemeral=True)

    async def _read(self) -> None:
        """Read all there is, and again what changes meanwhile."""
        self.view.replace(await self._patiently(partial(self._store.scan, ROOT)))
        while self._touched:
            path = next(iter(self._touched))
            del self._touched[path]
            self.view.learn(path, await self._patiently(partial(self._store.get, path)))
        self._is_reading = False
        self._work.brokers_changed()
        if self.broker in self.view.alive:
            self._carry_out(self._owner.look_at(self.view.records))
        else:
            self.end()

    # --- changes and commits -----------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if self._is_reading:
            self._touched[change.path] = None
            return
        bundle = self.view.learn(change.path, change.value)
        if change.path.startswith(BROKERS):
            self._work.brokers_changed()
        if self.broker not in self.view.alive:
            self.end()
        elif bundle is not None:
            self._carry_out(self._owner.look_at([bundle]))
        self._wake.set()

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Serve(hold):
                    self._work.serve(hold)
                case Drop(hold):
                    self._work.drop(hold)
                case Stop(hold):
                    self._stopping.spawn(f"stop serving {hold.bundle.range}", self._stop(hold))

    async def _stop(self, hold: Hold) -> None:
        await self._work.stop(hold)
        self._owner.stopped(hold)
        self._wake.set()

    async def _commit_all(self) -> bool:
        """Try each commit that follows from the view; false if one failed."""
        is_done = True
        for steps in [*self._owner.handovers(), *self._leader.decide(self._clock.monotonic())]:
            try:
                await self._store.commit(steps)
            except MetadataError:
                is_done = False
        return is_done
