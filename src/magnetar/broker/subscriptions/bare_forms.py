"""Entries for consumers that can read either form themselves: Kafka's share consumers.

The broker does not convert a Kafka batch for them.  Pulsar consumers of the same subscription need it converted: if one
of these gets the batch, the subscription reads it again.  It looks at entries of Pulsar clients as always, and at
batches from which compaction may have taken records.
"""

from collections.abc import Awaitable, Sequence
from typing import Final

from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.forms import BARE, Cutting, Forms
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.kafka.records import read_header

_KAFKA: Final = EntryKind.KAFKA


def bare(
    partition: Partition, entries: Sequence[Entry], forms: Forms, *, shows_undecided: bool
) -> Sequence[Formed] | Awaitable[Sequence[Formed]]:
    """The entries; those that `forms` has to be asked about are asked about together."""
    cutting = Cutting(by_key=False, cleaned_below=partition.log.cleaned)
    others = [one for one in entries if one.kind is not _KAFKA or cutting.concerns(one)]
    formed = forms(partition, others) if others else []
    if isinstance(formed, Awaitable):
        return _bare_later(partition, entries, others, formed, shows_undecided)
    return _merged(partition, entries, others, formed, shows_undecided)


async def _bare_later(
    partition: Partition,
    entries: Sequence[Entry],
    others: Sequence[Entry],
    formed: Awaitable[Sequence[Formed]],
    shows_undecided: bool,
) -> Sequence[Formed]:
    return _merged(partition, entries, others, await formed, shows_undecided)


def _merged(
    partition: Partition,
    entries: Sequence[Entry],
    others: Sequence[Entry],
    formed: Sequence[Formed],
    shows_undecided: bool,
) -> list[Formed]:
    """In the order of `entries`, up to the first of `others` that `formed` has not got."""
    known = {one.entry.base_offset: one for one in formed}
    asked = {one.base_offset for one in others}
    found: list[Formed] = []
    for entry in entries:
        if entry.base_offset not in asked:
            shown = _is_shown(partition, entry, shows_undecided)
            found.append(Formed(entry, BARE if shown else None))
        elif entry.base_offset in known:
            found.append(known[entry.base_offset])
        else:
            break
    return found


def _is_shown(partition: Partition, entry: Entry, shows_undecided: bool) -> bool:
    header = read_header(entry.payload)
    if header.is_control:
        return False
    return (
        shows_undecided or not header.is_transactional or not partition.is_aborted(header.producer_id, entry)
    )


def has_undecided(partition: Partition, cursor: Cursor) -> bool:
    """Whether some of what is not acknowledged is of transactions that are not committed."""
    end = partition.log.high_watermark
    return partition.last_stable_offset < end or partition.transactions.any_aborted(cursor.mark_delete, end)
