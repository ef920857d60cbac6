"""Pulsar's transactions as the log has them: each is a producer of its own, that writes one transaction and no more.

The least significant bits of a transaction's id are a producer id, of those that Kafka's producers get, too; the most
significant ones name the coordinator, and there is one.  So both protocols' transactions are open, end by a marker and
hold readers back alike (`transaction_index.py`).  Entries name their transaction in their own metadata, as clients
write it.
"""

from typing import Final

from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.ledger.entry import Entry
from magnetar.wire.pulsar.entry import EntryView, read_entry

COORDINATOR: Final = 0


def transaction_of(view: EntryView) -> int | None:
    """The producer id of the transaction that an entry is part of; None for none, or one of no coordinator here."""
    transaction = view.transaction
    return transaction[1] if transaction is not None and transaction[0] == COORDINATOR else None


def aborted_by(transactions: TransactionIndex, entry: Entry) -> int | None:
    """The producer id of the aborted transaction that an entry of Pulsar's is of; None for any other.

    Raises:
        WireError: its metadata cannot be read.
    """
    offsets = entry.base_offset, entry.last_offset + 1
    if not transactions.any_aborted(*offsets):
        return None  # nearly all: the metadata need not be read
    producer_id = transaction_of(read_entry(entry.payload, verify=False))
    if producer_id is None or not transactions.is_aborted(producer_id, *offsets):
        return None
    return producer_id
