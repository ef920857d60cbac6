"""Chooses the ledgers of a log to compact, by Kafka's rules, from what the chain knows about them, without reading
entries.
"""

from itertools import takewhile
from typing import Final, NamedTuple

from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import TopicConfig
from magnetar.ledger.chain import LedgerInfo

_ENTRIES_MAX: Final = 10_000_000  # in one ledger


class Plan(NamedTuple):
    """`ledgers` are the ledgers to rewrite, from the log's first one on.  Keys are noted from the offset `begin` on.

    `dirty_bytes` were not compacted before, `clean_bytes` were.  `is_late`: a record has waited longer than
    `max.compaction.lag.ms` allows.
    """

    ledgers: list[LedgerInfo]
    begin: int
    dirty_bytes: int
    clean_bytes: int
    is_late: bool

    @property
    def end(self) -> int:
        return self.ledgers[-1].end_offset

    @property
    def dirty_share(self) -> float:
        return self.dirty_bytes / max(self.dirty_bytes + self.clean_bytes, 1)


def plan(partition: Partition, now_ms: int, end: int) -> Plan | None:
    """The ledgers that may be compacted now, up to the offset `end`; None if there are none.

    A ledger may be compacted if it is sealed, decided (below the last stable offset), and as a whole older than
    `min.compaction.lag.ms`.  All ledgers before it must fulfil the same.  Empty ledgers among them are included.
    """
    log, config = partition.log, partition.topic.config
    end = min(partition.last_stable_offset, end)
    newest_ms = now_ms - config.compaction_lag_min_ms

    def may_go(info: LedgerInfo) -> bool:
        is_old = info.is_empty or config.compaction_lag_min_ms == 0 or info.newest_ms <= newest_ms
        return info.writer is None and info.end_offset <= end and is_old

    ledgers = list(takewhile(may_go, log.ledgers))
    begin = max(log.cleaned, log.log_start)
    dirty = [info for info in ledgers if info.end_offset > begin]
    if not dirty:
        return None
    dirty_bytes = sum(_bytes_from(info, begin) for info in dirty)
    is_late = now_ms - min(info.created_ms for info in dirty) >= config.compaction_lag_max_ms
    return Plan(ledgers, begin, dirty_bytes, sum(info.size_bytes for info in ledgers) - dirty_bytes, is_late)


def is_due(plan: Plan, config: TopicConfig) -> bool:
    """Whether a log must be compacted now, by the rule of Kafka's cleaner
    (`LogCleanerManager.grabFilthiestCompactedLog`).
    """
    return plan.is_late or plan.dirty_share > config.dirty_share_min


def grouped(ledgers: list[LedgerInfo], bytes_max: int) -> list[list[LedgerInfo]]:
    """Groups of neighbours, each of at most `bytes_max` bytes together, or one larger ledger; no group is empty."""
    groups: list[list[LedgerInfo]] = []
    size = count = 0
    for info in ledgers:
        size += info.size_bytes
        count += info.entry_count
        has_entries = bool(groups) and any(not one.is_empty for one in groups[-1])
        if not groups or (has_entries and not info.is_empty and (size > bytes_max or count > _ENTRIES_MAX)):
            groups.append([])
            size, count = info.size_bytes, info.entry_count
        groups[-1].append(info)
    return groups


def _bytes_from(info: LedgerInfo, offset: int) -> int:
    """About how many bytes of a ledger are at or after `offset`."""
    if offset <= info.first_offset:
        return info.size_bytes
    return info.size_bytes * (info.end_offset - offset) // (info.end_offset - info.first_offset)
