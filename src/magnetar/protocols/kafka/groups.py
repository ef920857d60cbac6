"""What the handlers of the group APIs share."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import DescribedConsumer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode

LARGE_MEMBERS: Final = 500  # an answer that describes more of them is large

_MEMBERS_PER_TURN: Final = 20

Row = TypeVar("Row")

GROUP_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in GroupError}


def topic_code(found: str | BrokerError) -> ErrorCode:
    """For each partition of a topic whose offsets are asked for: NONE for a topic, or why it is refused."""
    if isinstance(found, str):
        return ErrorCode.NONE
    # A name that no topic can have is one that no topic has, says Kafka here.
    if isinstance(found, InvalidTopicName):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error_code(found)


async def add_members(
    context: RequestContext,
    members: Iterator[DescribedConsumer],
    make: Callable[[RequestContext, DescribedConsumer], Row],
    rows: list[Row],
) -> None:
    """Append the row of each member, a few in each turn: a group may have thousands.

    Raises:
        BrokerError: the next member is refused to the caller; rows of those before are there.
    """
    while True:
        async with context.service.large.turn(_MEMBERS_PER_TURN):
            some = [make(context, one) for one in islice(members, _MEMBERS_PER_TURN)]
        rows += some
        if len(some) < _MEMBERS_PER_TURN:
            return
