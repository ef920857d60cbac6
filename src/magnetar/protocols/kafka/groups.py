"""Functions that the handlers of the group APIs share."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import Task
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.permissions import bits
from magnetar.wire.kafka.error_codes import ErrorCode

LARGE_MEMBERS: Final = 500  # an answer with more members is large

_MEMBERS_PER_TURN: Final = 20


class DescribeRequest(Protocol):
    """A request that asks for groups of one kind."""

    group_ids: list[str]
    include_authorized_operations: bool


class DescribeResponse(Protocol):
    groups: list[Any]


Described = TypeVar("Described")
Response = TypeVar("Response", bound=DescribeResponse)

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


async def described(
    context: RequestContext,
    request: DescribeRequest,
    response: Response,
    head: Callable[[RequestContext, str], tuple[Any, Iterator[Described]]],
    member: Callable[[RequestContext, Described], Any],
    refused: Callable[[int, str, str], Any],
) -> Response | Large:
    """Add each group of the request to the response, other clients having turns in between.

    `head` makes a group without its members and says what the members are read from.  `member` makes the row of one
    member.  `refused` makes a group with an error code, a message and the group's id.
    """
    for group_id in dict.fromkeys(request.group_ids):
        async with context.service.large.turn(1):
            group, members = head(context, group_id)
        response.groups.append(group)
        try:
            await _add_members(context, members, member, group.members)
        except BrokerError as refusal:
            response.groups[-1] = refused(error_code(refusal), str(refusal), group_id)
            continue
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = bits(context.cases.groups.operations(context.caller, group_id))
    members_count = sum(len(group.members) for group in response.groups)
    return Large(response) if members_count > LARGE_MEMBERS else response


async def _add_members(
    context: RequestContext,
    members: Iterator[Described],
    make: Callable[[RequestContext, Described], Any],
    rows: list[Any],
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
