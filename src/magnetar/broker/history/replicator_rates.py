"""How far replicators may read now, as the rates of their topics let them.

A replicator reads files and the tail by itself, in batches, so there is no delivery that the broker could slow down.
It asks here before each batch.  A grant counts at once, and entries count whole, as for consumers.  Records that a
replicator sends again after a failure do not count again.  Each replicator of each partition has a limit of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import Policies
from magnetar.broker.quotas.rate_limit import KeptLimits
from magnetar.broker.quotas.replicator_limit import ReplicatorLimit

_STEP_BYTES: Final = 1 << 20


class ReplicatorRates:
    """See the module's text."""

    def __init__(self, clock: Clock, policies_of: Callable[[TopicName], Policies]) -> None:
        self._policies_of = policies_of
        self._limits = KeptLimits(ReplicatorLimit, clock)

    async def admit(
        self, partition: Partition, subscription: str, begin: int, end: int, bytes_max: int
    ) -> int:
        """How far the replicator with this subscription may read now, of the offsets from `begin` (inclusive) to `end`
        (exclusive): `begin` if nothing may go, `end` if everything may.  That much counts as read.

        If there is a rate, the entries are looked at; after `bytes_max` of them a batch ends in any case.

        Raises StorageError: the log cannot be read.
        """
        log = partition.log
        rate = self._policies_of(partition.topic.name).replicator_dispatch_rate
        limit = self._limits.at((log.name, subscription), rate)
        if limit is None:
            return end
        granted = limit.granted_from(begin)
        if granted is not None:
            return min(granted, end)
        limit.begin()
        is_holding = False
        offset, last = max(begin, log.log_start), min(end, log.high_watermark)
        while offset < last and bytes_max > 0:
            entries = log.read_cached(offset, _STEP_BYTES, last) or await log.read(offset, _STEP_BYTES)
            wanted = [one for one in entries if one.base_offset < last]
            taken = limit.take(wanted)
            if not wanted:
                offset = last  # compaction has left nothing before it
            if taken:
                offset = taken[-1].last_offset + 1
            bytes_max -= sum(len(one.payload) for one in taken)
            if len(taken) < len(wanted):
                is_holding = True
                break
            await asyncio.sleep(0)  # others have a turn
        reached = end if offset >= last else max(begin, offset)
        limit.grant(begin, reached, is_behind=reached < end, is_holding=is_holding)
        return reached

    def holds(self, partition: Partition, subscription: str) -> bool:
        """Whether the rate made this replicator's last batch end before messages that were there."""
        rate = self._policies_of(partition.topic.name).replicator_dispatch_rate
        limit = self._limits.kept((partition.log.name, subscription))
        return limit is not None and limit.rate == rate and limit.is_holding
