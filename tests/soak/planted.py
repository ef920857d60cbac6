"""A server with one bug, for a check that has to find it: `python tests/soak/planted.py BUG standalone ...`."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from magnetar.broker.groups.offsets import GroupOffsets
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.cli.main import main as magnetar


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
        self.pending.take(transaction.producer_id)
        await forget(self, transaction, commit=commit)

    _put(PulsarTransactions, "_forget", without)


def _put(owner: type, name: str, wrong: Callable[..., Any]) -> None:
    setattr(owner, name, wrong)


BUGS: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        "aborted-visible": _aborted_visible,
        "torn": _torn,
        "offsets-lost": _offsets_lost,
        "acks-lost": _acks_lost,
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
