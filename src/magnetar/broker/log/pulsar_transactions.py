"""Pulsar's transactions in the log: each is a producer of its own, which writes only this one transaction.

The least significant bits of a transaction's id are a producer id, from the same range as those of Kafka's producers.
The most significant bits name the coordinator, of which there is one.  So transactions of both protocols begin, end
by a marker, and hold readers back in the same way (`transaction_index.py`).  Entries name their transaction in their
own metadata, as clients write it.
"""

from typing import Final

from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.ledger.entry import Entry
from magnetar.wire.pulsar.entry import EntryView, read_entry

COORDINATOR: Final = 0


def transaction_of(view: EntryView) -> int | None:
    """The producer id of the transaction to which an entry belongs; None if it belongs to none, or to one of an
    unknown coordinator.
    """
    transaction = view.transaction
    return transaction[1] if transaction is not None and transaction[0] == COORDINATOR else None


def aborted_by(transactions: TransactionIndex, entry: Entry) -> int | None:
    """The producer id of the aborted transaction to which an entry of a Pulsar client belongs; None for any other
    entry.

    Raises:
        WireError: the entry's metadata cannot be read.
    """
    offsets = entry.base_offset, entry.last_offset + 1
    if not transactions.any_aborted(*offsets):
        return None  # as for nearly all entries, without reading the metadata
    producer_id = transaction_of(read_entry(entry.payload, verify=False))
    if producer_id is None or not transactions.is_aborted(producer_id, *offsets):
        return None
    return producer_id
