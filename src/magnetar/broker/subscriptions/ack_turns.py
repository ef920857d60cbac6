"""Acknowledgements that are too many for one turn of the event loop, in pieces, in the order of their commands.

A command of a megabyte holds a hundred thousand message ids, or as many words of ack sets.  The loop does a command of
usual size at once, and one piece of a longer command in each turn.  Commands that come for the same subscription
meanwhile wait behind it, so commands take effect, and get their answers, in order.

A client may close its consumer, or seek, directly after a long command.  What it has acknowledged before counts: the
subscription waits until all of it is `taken`, though not without end, because ids may have to be looked up on a disk.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from magnetar.base.clock import Clock, wait_at_most
from magnetar.base.errors import StorageError
from magnetar.base.tasks import Tasks
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.errors import SubscriptionClosed
from magnetar.broker.subscriptions.model import AckedId

log: Final = logging.getLogger(__name__)

WORDS_AT_ONCE: Final = 1024
TAKING_S_MAX: Final = 3.0  # in a cluster the leader waits five for an owner that is to let a bundle go


class AckTurns(ABC):
    """The turns of one subscription, for the class that takes the pieces."""

    def __init__(self) -> None:
        self._waiting = 0  # commands at work here, and those behind them
        self._order = asyncio.Lock()
        self._under_way = Tasks(log)  # commands that are not taken at once
        self._cuts = 0  # how often what was under way was cut off

    @abstractmethod
    def _take(
        self, member: SubscribedConsumer, ids: Sequence[AckedId], cumulative: bool
    ) -> Coroutine[Any, Any, int] | None:
        """Take one piece; what is returned is awaited before the next one, and says how many ids cannot be looked up
        now.
        """

    async def taken(self, clock: Clock) -> None:
        """Return when every command that has come so far is taken, also those of consumers that have gone since.  What
        is left after `TAKING_S_MAX` is refused.
        """
        if len(self._under_way):
            ended = asyncio.ensure_future(self._under_way.ended())
            try:
                await wait_at_most(clock, TAKING_S_MAX, ended)
            finally:
                ended.cancel()
        self.cut_off()

    def cut_off(self) -> None:
        """Refuse what is under way: nothing stores it any more, or it would be missing behind a new position."""
        self._cuts += 1

    def _check_goes_on(self, cuts: int) -> None:
        """Raise SubscriptionClosed for a command that began before it was cut off."""
        if cuts != self._cuts:
            raise SubscriptionClosed("the subscription was closed or moved before all was acknowledged")

    def take(
        self, member: SubscribedConsumer, ids: Sequence[AckedId], cumulative: bool
    ) -> Awaitable[None] | None:
        """Take up to `IDS_AT_ONCE` ids; the caller must await the result, and gets what a piece raised."""
        words = len(ids[0].ack_set) if len(ids) == 1 else sum([len(one.ack_set) for one in ids])
        if self._waiting or words > WORDS_AT_ONCE:
            return self.take_many(member, [ids], cumulative)
        later = self._take(member, ids, cumulative)
        if later is None:
            return None
        return self._under_way.begin("look up what was acknowledged", _looked_up(later))

    def take_many(
        self, member: SubscribedConsumer, pieces: Iterable[Sequence[AckedId]], cumulative: bool
    ) -> Awaitable[None]:
        """Take all pieces, of up to `IDS_AT_ONCE` ids each, with a turn for others after each of them."""
        self._waiting += 1
        work = self._take_in_turn(self._cuts, member, pieces, cumulative)
        return self._under_way.begin("take acknowledgements in turns", work)

    async def _take_in_turn(
        self, cuts: int, member: SubscribedConsumer, pieces: Iterable[Sequence[AckedId]], cumulative: bool
    ) -> None:
        lost = 0
        try:
            async with self._order:
                for ids in chain.from_iterable(map(_by_words, pieces)):
                    self._check_goes_on(cuts)
                    later = self._take(member, ids, cumulative)
                    if later is not None:
                        lost += await later
                    await asyncio.sleep(0)
        finally:
            self._waiting -= 1
        _check_none(lost)


async def _looked_up(later: Coroutine[Any, Any, int]) -> None:
    _check_none(await later)


def _check_none(lost: int) -> None:
    """Raise StorageError if ids were not looked up: their messages come again, and a client may want to know."""
    if lost:
        raise StorageError(f"{lost} of the acknowledged messages cannot be looked up now")


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
