"""Topics that were deleted, and what is left of them.

The metadata transaction that removes a topic's record writes `/deleted-topics/<topic id, 32 hex digits>`, JSON::

    {"v": 1, "name": "persistent://tenant/namespace/name"}

With that everything that is named by the id is given up: logs with their ledgers, producer snapshots, topic epochs.  It
is removed piece by piece afterwards, in the background, and the path itself last; a crash in between leaves the path,
and the next start goes on from there.  A topic of the same name has another id, so it never meets any of it.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Final

from magnetar.base.clock import TimerHandle
from magnetar.base.errors import BrokerError
from magnetar.broker.producers import EPOCHS_ROOT
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import Delete, Put

log = logging.getLogger(__name__)

ROOT: Final = "/deleted-topics/"
SNAPSHOTS_ROOT: Final = "/producer-snapshots/"
_AT_ONCE: Final = 64  # logs that are removed side by side, so that they share rounds and commits
_RETRY_S: Final = 10.0


class DeletedTopics:
    """See the module's text.  All methods run on the event loop."""

    def __init__(self, environment: LedgerEnvironment) -> None:
        self._environment = environment
        self._left: dict[bytes, list[ManagedLedger]] = {}  # by topic id: logs that may still be there
        self._is_working = False
        self._retry: TimerHandle | None = None
        self._closed = False

    def __contains__(self, topic_id: bytes) -> bool:
        return topic_id in self._left

    async def load(self) -> None:
        """Read what the last process has left; `erase` for each is the caller's."""
        for path, _ in await self._environment.metadata.scan(ROOT):
            self._left[bytes.fromhex(path[len(ROOT) :])] = []

    def ids(self) -> list[bytes]:
        """The topics of which something may be left."""
        return list(self._left)

    @staticmethod
    def tombstone(topic_id: bytes, full_name: str) -> Put:
        """What goes into the transaction that deletes the topic; `erase` is called once that is durable."""
        return Put(ROOT + topic_id.hex(), json.dumps({"v": 1, "name": full_name}).encode())

    def erase(self, topic_id: bytes, logs: Sequence[ManagedLedger]) -> None:
        """Remove what is left of a topic whose tombstone is durable, in the background."""
        self._left[topic_id] = list(logs)
        self._start()

    def close(self) -> None:
        """Stop after what is under way; the next start does the rest."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _start(self) -> None:
        self._retry = None
        if self._left and not self._is_working and not self._closed:
            self._is_working = True
            self._environment.spawn("remove deleted topics", self._work())

    async def _work(self) -> None:
        try:
            while self._left and not self._closed:
                topic_id, logs = next(iter(self._left.items()))
                while logs and not self._closed:
                    await self._erase(logs[:_AT_ONCE])
                    del logs[:_AT_ONCE]
                if not logs:
                    await self._environment.metadata.commit([Delete(ROOT + topic_id.hex())])
                    del self._left[topic_id]
        except BrokerError as error:
            log.warning("what deleted topics have left on the disk cannot be removed now: %s", error)
            if not self._closed:
                self._retry = self._environment.clock.call_later(_RETRY_S, self._start)
        finally:
            self._is_working = False

    async def _erase(self, logs: Sequence[ManagedLedger]) -> None:
        metadata = self._environment.metadata
        names = [one.name for one in logs]
        paths = [root + name for root in (SNAPSHOTS_ROOT, EPOCHS_ROOT) for name in names]
        for name in names:  # a snapshot has as many values as it needs
            paths += [path for path, _ in await metadata.scan(f"{SNAPSHOTS_ROOT}{name}/")]
        outcomes = await asyncio.gather(
            metadata.commit([Delete(path) for path in paths]),
            *(one.erase() for one in logs),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
