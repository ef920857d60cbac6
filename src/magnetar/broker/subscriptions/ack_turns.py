"""Acknowledgements that are too many for one turn of the event loop, in pieces, in the order of their commands.

A command of a megabyte holds a hundred thousand message ids, or as many words of ack sets.  The loop does a command of
usual size at once, and one piece of a longer command in each turn.  Commands that come for the same subscription
meanwhile wait behind it, so commands take effect, and get their answers, in order.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.model import AckedId

WORDS_AT_ONCE: Final = 1024


class AckTurns(ABC):
    """The turns of one subscription, for the class that takes the pieces."""

    def __init__(self) -> None:
        self._waiting = 0  # commands at work here, and those behind them
        self._order = asyncio.Lock()

    @abstractmethod
    def _take(
        self, member: SubscribedConsumer, ids: Sequence[AckedId], cumulative: bool
    ) -> Awaitable[None] | None:
        """Take one piece; what is returned is awaited before the next one."""

    def take(
        self, member: SubscribedConsumer, ids: Sequence[AckedId], cumulative: bool
    ) -> Awaitable[None] | None:
        """Take up to `IDS_AT_ONCE` ids; the caller must await the result."""
        words = len(ids[0].ack_set) if len(ids) == 1 else sum([len(one.ack_set) for one in ids])
        if self._waiting or words > WORDS_AT_ONCE:
            return self.take_many(member, [ids], cumulative)
        return self._take(member, ids, cumulative)

    def take_many(
        self, member: SubscribedConsumer, pieces: Iterable[Sequence[AckedId]], cumulative: bool
    ) -> Awaitable[None]:
        """Take all pieces, of up to `IDS_AT_ONCE` ids each, with a turn for others after each of them."""
        self._waiting += 1
        return self._take_in_turn(member, pieces, cumulative)

    async def _take_in_turn(
        self, member: SubscribedConsumer, pieces: Iterable[Sequence[AckedId]], cumulative: bool
    ) -> None:
        try:
            async with self._order:
                for ids in chain.from_iterable(map(_by_words, pieces)):
                    later = self._take(member, ids, cumulative)
                    if later is not None:
                        await later
                    await asyncio.sleep(0)
        finally:
            self._waiting -= 1


def _by_words(ids: Sequence[AckedId]) -> Iterator[Sequence[AckedId]]:
    """The ids in pieces of `WORDS_AT_ONCE` words, and those that the last id of each has beyond that."""
    first = words = 0
    for number, one in enumerate(ids):
        words += len(one.ack_set)
        if words > WORDS_AT_ONCE:
            yield ids[first : number + 1]
            first, words = number + 1, 0
    if first < len(ids):
        yield ids[first:]
