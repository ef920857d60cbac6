"""Writes control markers (KIP-98) to every partition of a decided transaction, and tries again until each partition
has one.

A partition without an open transaction of the producer answers without a write, so writing all markers again after a
crash is safe.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from magnetar.base.clock import Clock, sleep
from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import COORDINATOR_EPOCH, TopicPartition
from magnetar.storage.store import Done

log: Final = logging.getLogger(__name__)

BACK_OFF_MIN_S: Final = 0.1
BACK_OFF_MAX_S: Final = 5.0
_AT_ONCE: Final = 100  # partitions in one turn of the event loop


class MarkedPartition(Protocol):
    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, done: Done
    ) -> None:
        """End the producer's open transaction here; `done` is called when the marker is durable or has failed.

        Raises:
            BrokerError: nothing can be written now.
        """
        ...


class Decided(Protocol):
    """A transaction whose end is decided."""

    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def partitions(self) -> Collection[TopicPartition]: ...


FindPartition = Callable[[str, int], MarkedPartition | None]  # None: deleted meanwhile


async def write_markers(record: Decided, commit: bool, find: FindPartition, clock: Clock) -> None:
    """Return when every partition of `record` that still exists has the marker."""
    left = sorted(record.partitions)
    back_off_s = BACK_OFF_MIN_S
    while True:
        left = await _write_once(left, record, commit, find)
        if not left:
            return
        log.warning("producer %d: %d partitions wait for a marker", record.producer_id, len(left))
        await sleep(clock, back_off_s)
        back_off_s = min(2 * back_off_s, BACK_OFF_MAX_S)


async def _write_once(
    partitions: list[TopicPartition], record: Decided, commit: bool, find: FindPartition
) -> list[TopicPartition]:
    """Write the markers; returns the partitions that must be tried again."""
    failed: list[TopicPartition] = []
    asked: list[tuple[TopicPartition, asyncio.Future[Exception | None]]] = []
    for number, key in enumerate(partitions, 1):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # one transaction may have twenty thousand partitions
        answer: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        try:
            partition = find(*key)
            if partition is None:
                continue
            partition.end_transaction(
                record.producer_id, record.epoch, commit, COORDINATOR_EPOCH, _resolver(answer)
            )
        except BrokerError as error:
            log.debug("marker for %s-%d waits: %s", *key, error)
            failed.append(key)
        else:
            asked.append((key, answer))
    for key, answer in asked:
        if (failure := await answer) is not None:
            log.debug("marker for %s-%d waits: %s", *key, failure)
            failed.append(key)
    return failed


def _resolver(answer: asyncio.Future[Exception | None]) -> Done:
    def done(error: Exception | None) -> None:
        if not answer.done():
            answer.set_result(error)

    return done
