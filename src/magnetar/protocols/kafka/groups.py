"""Functions that the handlers of the group APIs share."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import Task
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode

LARGE_MEMBERS: Final = 500  # an answer with more members is large

_MEMBERS_PER_TURN: Final = 20

Described = TypeVar("Described")
Row = TypeVar("Row")

GROUP_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in GroupError}


def topic_code(found: str | BrokerError) -> ErrorCode:
    """The error code for each partition of a topic whose offsets are requested: NONE if the topic was found."""
    if isinstance(found, str):
        return ErrorCode.NONE
    # As in Kafka, an invalid topic name gets the same error as an unknown topic.
    if isinstance(found, InvalidTopicName):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error_code(found)


def by_subtopology(tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """Tasks of a streams group as its messages have them."""
    found: dict[str, list[int]] = {}
    for subtopology, index in sorted(tasks):
        found.setdefault(subtopology, []).append(index)
    return list(found.items())


async def add_members(
    context: RequestContext,
    members: Iterator[Described],
    make: Callable[[RequestContext, Described], Row],
    rows: list[Row],
) -> None:
    """Append the row of each member, a few in each turn of the loop, because a group may have thousands.

    Raises:
        BrokerError: the caller may not see the next member; the rows before it are there.
    """
    while True:
        async with context.service.large.turn(_MEMBERS_PER_TURN):
            some = [make(context, one) for one in islice(members, _MEMBERS_PER_TURN)]
        rows += some
        if len(some) < _MEMBERS_PER_TURN:
            return
