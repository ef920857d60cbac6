"""Topics that were deleted, and the data that is left of them.

The metadata transaction that removes a topic's record writes `/deleted-topics/<topic id, 32 hex digits>`, JSON::

    {"v": 1, "name": "persistent://tenant/namespace/name"}

This gives up everything that the id names: logs with their ledgers, producer snapshots, topic epochs, cursors.  The
server removes it piece by piece afterwards, in the background, and the path itself last.  A crash in between leaves the
path, and the next start continues from there.  A topic of the same name has another id, so it never meets any of these
data.  Policies and schemas are one path each, and go with the topic's record.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from magnetar.base.clock import TimerHandle
from magnetar.base.errors import BrokerError
from magnetar.broker.topics.roots import DELETED_ROOT, EPOCHS_ROOT, SNAPSHOTS_ROOT
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import Delete, Put

log = logging.getLogger(__name__)

# What is removed at once: it shares rounds and commits, and holds up the event loop for 10 ms or so.
_AT_ONCE: Final = 32  # logs
_PATHS_AT_ONCE: Final = 500
_RETRY_S: Final = 10.0


@dataclass(slots=True)
class _Remains:
    """What may be left of a topic."""

    logs: list[ManagedLedger] = field(default_factory=list)
    paths: Iterator[str] = field(default_factory=lambda: iter(()))  # in the metadata store
    taken: list[str] = field(default_factory=list)  # of `paths`, and not known to be removed


class DeletedTopics:
    """See the module's text.  All methods run on the event loop."""

    def __init__(self, environment: LedgerEnvironment) -> None:
        self._environment = environment
        self._left: dict[bytes, _Remains] = {}  # by topic id
        self._is_working = False
        self._retry: TimerHandle | None = None
        self._closed = False

    def __contains__(self, topic_id: bytes) -> bool:
        return topic_id in self._left

    async def load(self) -> None:
        """Read what the last process has left; the caller then calls `erase` for each."""
        for path, _ in await self._environment.metadata.scan(DELETED_ROOT):
            self._left[bytes.fromhex(path[len(DELETED_ROOT) :])] = _Remains()

    def ids(self) -> list[bytes]:
        """The topics of which something may be left."""
        return list(self._left)

    @staticmethod
    def tombstone(topic_id: bytes, full_name: str) -> Put:
        """The part of the transaction that deletes the topic; call `erase` once that is durable."""
        return Put(DELETED_ROOT + topic_id.hex(), json.dumps({"v": 1, "name": full_name}).encode())

    def erase(self, topic_id: bytes, logs: Sequence[ManagedLedger], paths: Iterable[str] = ()) -> None:
        """In the background, remove what is left of a topic whose tombstone is durable: `logs`, with everything that
        has their names, and `paths` of the metadata store.
        """
        self._left[topic_id] = _Remains(list(logs), iter(paths))
        self._start()

    def close(self) -> None:
        """Stop after the current step; the next start does the rest."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _start(self) -> None:
        self._retry = None
        if self._left and not self._is_working and not self._closed:
            self._is_working = True
            self._environment.tasks.spawn("remove deleted topics", self._work())

    async def _work(self) -> None:
        try:
            while self._left and not self._closed:
                topic_id, remains = next(iter(self._left.items()))
                if await self._has_erased(remains):
                    await self._environment.metadata.commit([Delete(DELETED_ROOT + topic_id.hex())])
                    del self._left[topic_id]
        except BrokerError as error:
            log.warning("the server cannot remove the data of deleted topics now: %s", error)
            if not self._closed:
                self._retry = self._environment.clock.call_later(_RETRY_S, self._start)
        finally:
            self._is_working = False

    async def _has_erased(self, remains: _Remains) -> bool:
        """Continue until everything is removed, or the server stops."""
        metadata = self._environment.metadata
        while not self._closed:
            if not remains.taken:
                remains.taken = list(islice(remains.paths, _PATHS_AT_ONCE))
            if not remains.taken:
                break
            await metadata.commit([Delete(path) for path in remains.taken])
            remains.taken = []
        while remains.logs and not self._closed:
            logs = remains.logs[:_AT_ONCE]
            paths = [root + one.name for root in (SNAPSHOTS_ROOT, EPOCHS_ROOT) for one in logs]
            for one in logs:  # a snapshot has as many values as it needs
                paths += [path for path, _ in await metadata.scan(f"{SNAPSHOTS_ROOT}{one.name}/")]
            outcomes = await asyncio.gather(
                metadata.commit([Delete(path) for path in paths]),
                *(one.erase() for one in logs),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            del remains.logs[:_AT_ONCE]
        return not self._closed
