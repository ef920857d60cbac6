"""A server with one bug, for a check that has to find it: `python tests/soak/planted.py BUG standalone ...`."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from magnetar.broker.compaction.entries import Entries, Written
from magnetar.broker.groups.offsets import GroupOffsets
from magnetar.broker.log.deduplication import Deduplication
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.broker.subscriptions.delivery_counts import DeliveryCounts
from magnetar.broker.subscriptions.dispatch.model import Actions, Consumer, Unit
from magnetar.broker.subscriptions.dispatch.multi import MultiConsumerDispatcher
from magnetar.broker.subscriptions.share.consumer import ShareConsumer, left
from magnetar.broker.subscriptions.share.dead_letters import DeadLetters
from magnetar.broker.subscriptions.stored_positions import StoredPositions
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.cli.main import main as magnetar
from magnetar.server import function_instances
from magnetar.storage.store import LedgerId, StoredEntry

INSTANCE: Final = "tests.soak.planted_instance"  # what runs a function that has a bug


def _aborted_visible() -> None:
    """What was aborted counts as committed."""
    ended = TransactionIndex.ended

    def all_committed(self: TransactionIndex, producer_id: int, marker: int, *, committed: bool) -> None:
        ended(self, producer_id, marker, committed=True)

    _put(TransactionIndex, "ended", all_committed)


def _torn() -> None:
    """One partition of two takes each third commit for an abort."""
    end = Partition.end_transaction

    def often_wrong(self: Partition, producer_id: int, epoch: int, commit: bool, *rest: Any) -> None:
        end(self, producer_id, epoch, commit and not (self.index and (producer_id + epoch) % 3 == 0), *rest)

    _put(Partition, "end_transaction", often_wrong)


def _offsets_lost() -> None:
    """A transaction of Kafka's commits without its group's offsets."""
    _put(GroupOffsets, "moved", lambda *_: {})


def _acks_lost() -> None:
    """A transaction of Pulsar's commits without its acknowledgements."""
    forget = PulsarTransactions._forget

    async def without(self: PulsarTransactions, transaction: Any, *, commit: bool) -> None:
        self.pending.end(transaction.producer_id)
        await forget(self, transaction, commit=commit)

    _put(PulsarTransactions, "_forget", without)


def _release_lost() -> None:
    """Each fifth of what a share consumer releases is acknowledged instead."""
    give_back = ShareConsumer._give_back

    def some_lost(self: ShareConsumer, units: Sequence[Unit], *, counts: bool) -> Any:
        for unit in [unit for unit in units if counts and unit.base_offset % 5 == 0]:
            self._subscription.advance(left(unit))
        return give_back(self, [unit for unit in units if unit.holder is self.state], counts=counts)

    _put(ShareConsumer, "_give_back", some_lost)


def _accept_not_stored() -> None:
    """What a share consumer says is answered before it is stored."""

    async def at_once(self: StoredPositions, subscription: Subscription) -> None:
        self.changed(subscription)

    _put(StoredPositions, "store", at_once)


def _given_to_two() -> None:
    """What a consumer holds goes to the others whenever one of them leaves."""
    remove = MultiConsumerDispatcher.remove_consumer

    def all_taken_back(self: MultiConsumerDispatcher, consumer: Consumer) -> Actions:
        actions = remove(self, consumer)
        held = [unit for one in self.consumers for unit in one.held]
        return [*actions, *self.give_back(sorted(held, key=lambda unit: unit.order), counts=False)]

    _put(MultiConsumerDispatcher, "remove_consumer", all_taken_back)


def _counts_lost() -> None:
    """Delivery counts begin anew after a restart."""
    _put(DeliveryCounts, "note", lambda _: None)


def _letters_lost() -> None:
    """What a share group gives up has no dead letters."""

    async def nothing(*_: object) -> None: ...

    _put(DeadLetters, "write", nothing)


def _entry_lost() -> None:
    """Compaction takes out each fifth entry whole: with fewer, those that are left may have all last records."""
    rewrite = Entries.rewrite

    def some_lost(self: Entries, ledger_id: LedgerId, stored: StoredEntry) -> Written | None:
        written = rewrite(self, ledger_id, stored)
        return None if stored.last_offset % 5 == 0 else written

    _put(Entries, "rewrite", some_lost)


def _duplicates_stored() -> None:
    """What a producer sends again is stored again, although deduplication is on."""
    _put(Deduplication, "is_duplicate", lambda *_: False)


def _acked_early() -> None:
    """A function acknowledges a message when it was called, before the output is stored."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])  # an instance inherits it
    _put(function_instances, "_MODULE", INSTANCE)


def _put(owner: object, name: str, wrong: object) -> None:
    setattr(owner, name, wrong)


BUGS: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        "aborted-visible": _aborted_visible,
        "torn": _torn,
        "offsets-lost": _offsets_lost,
        "acks-lost": _acks_lost,
        "release-lost": _release_lost,
        "accept-not-stored": _accept_not_stored,
        "given-to-two": _given_to_two,
        "counts-lost": _counts_lost,
        "letters-lost": _letters_lost,
        "entry-lost": _entry_lost,
        "duplicates-stored": _duplicates_stored,
        "acked-early": _acked_early,
    }
)


def command(bug: str) -> list[str]:
    """What runs such a server, in place of `magnetar`."""
    return [sys.executable, str(Path(__file__).resolve()), bug]


def main() -> None:
    BUGS[sys.argv.pop(1)]()
    magnetar()


if __name__ == "__main__":
    main()
