"""OffsetFetch: how far groups have got.  A partition without a commit has offset -1 and no error.

Served: v1-10 (all topics v2+, `require_stable` v7+, many groups v8+, member id and epoch v9+, topic ids v10+).  With
`require_stable` an offset that an open transaction may move is UNSTABLE_OFFSET_COMMIT (KIP-447).  A member of the
consumer protocol gets STALE_MEMBER_EPOCH for an epoch that is not its own (KIP-848).  All offsets of a group are of
one moment, however many there are.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.usecases.offsets import Committed, CommittedOffset
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN, Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import offset_fetch as codec
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from magnetar.wire.kafka.runtime import ZERO_UUID, Message

VERSIONS = (1, 10)

_GROUP_ERROR_SINCE: Final = 2
_MANY_GROUPS_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10
_GROUPS_AT_ONCE: Final = 50

_WantedTopic: TypeAlias = OffsetFetchRequestTopic | OffsetFetchRequestTopics


class _Piece(NamedTuple):
    """Some partitions of one topic of an answer, before it takes the form of a version."""

    name: str
    topic_id: bytes
    partitions: Sequence[int]
    offsets: Mapping[int, CommittedOffset | None] = {}
    error: ErrorCode = ErrorCode.NONE
    unstable: Set[int] = frozenset()  # partitions whose offset an open transaction may move
    goes_on: bool = False  # it has the same topic as the piece before


class _Opened(NamedTuple):
    """A group at the time of the request: how many partitions its answer has, and its pieces."""

    group_id: str
    error: ErrorCode
    size: int
    pieces: Iterable[_Piece]


def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[Large]:
    groups: Sequence[Any] = request.groups if context.api_version >= _MANY_GROUPS_SINCE else [request]
    opened = (_open(context, group, request.require_stable) for group in groups)
    if len(groups) > _GROUPS_AT_ONCE:
        return _answer_in_turns(context, opened)
    at_once = list(opened)
    if sum(one.size for one in at_once) > ELEMENTS_AT_ONCE:
        return _answer_in_turns(context, at_once)
    response = OffsetFetchResponse()
    for one in at_once:
        rows = _begin(context, response, one)
        for piece in one.pieces:
            _add(context, rows, piece)
    return response


async def _answer_in_turns(context: RequestContext, opened: Iterable[_Opened]) -> Large:
    """As `handle`, but other clients get turns after every few groups, and every few partitions of one."""
    response = OffsetFetchResponse()
    steps = _steps(context, response, opened)
    is_over = False
    while not is_over:
        async with context.service.large.turn(ELEMENTS_PER_TURN):
            is_over = _go_on(steps)
    return Large(response)


def _go_on(steps: Iterator[int]) -> bool:
    """Do the steps of one turn; returns whether those were the last ones."""
    done = 0
    for size in steps:
        done += size
        if done >= ELEMENTS_PER_TURN:
            return False
    return True


def _steps(
    context: RequestContext, response: OffsetFetchResponse, opened: Iterable[_Opened]
) -> Iterator[int]:
    """Build the answer; yields the size of each step."""
    for one in opened:
        rows = _begin(context, response, one)
        yield ELEMENTS_PER_TURN // _GROUPS_AT_ONCE
        for piece in one.pieces:
            _add(context, rows, piece)
            yield len(piece.partitions) + 1


# --- what there is to be answered ------------------------------------------------------------------------------------


def _open(
    context: RequestContext, group: OffsetFetchRequest | OffsetFetchRequestGroup, require_stable: bool
) -> _Opened:
    error, committed = ErrorCode.NONE, Committed(GroupError.NONE)
    member: tuple[str | None, int] = (None, -1)
    if isinstance(group, OffsetFetchRequestGroup):
        member = group.member_id, group.member_epoch
    try:
        committed = context.cases.offsets.fetch(
            context.caller,
            context.node,
            group.group_id,
            stable=require_stable,
            member_id=member[0],
            epoch=member[1],
        )
        error = GROUP_ERROR_CODES[committed.error]
    except BrokerError as refusal:
        error = error_code(refusal)
    topics = group.topics
    if error != ErrorCode.NONE:
        wanted = () if context.api_version >= _GROUP_ERROR_SINCE else (topics or ())
        size = sum(len(one.partition_indexes) for one in wanted)
        return _Opened(group.group_id, error, size, _refused(wanted, error))
    if topics is None:
        size = sum(map(len, committed.offsets.values())) + len(committed.pending)
    else:
        size = len(topics) + sum(len(one.partition_indexes) for one in topics)
    if size > ELEMENTS_AT_ONCE:  # other clients get turns meanwhile, and may commit
        committed = committed._replace(
            offsets={name: dict(offsets) for name, offsets in committed.offsets.items()}
        )
    unstable: dict[str, set[int]] = {}
    for name, index in committed.pending:
        unstable.setdefault(name, set()).add(index)
    return _Opened(
        group.group_id,
        error,
        size,
        _every(context, group.group_id, committed, unstable)
        if topics is None
        else _named(context, group.group_id, committed, unstable, topics),
    )


def _refused(topics: Iterable[_WantedTopic], error: ErrorCode) -> Iterator[_Piece]:
    for topic in topics:
        yield from _cut(_Piece(topic.name, ZERO_UUID, topic.partition_indexes, error=error))


def _every(
    context: RequestContext, group_id: str, committed: Committed, unstable: Mapping[str, Set[int]]
) -> Iterator[_Piece]:
    for one in context.cases.offsets.every_shown(context.caller, group_id, committed):
        name = context.cases.kafka_names.shown(TopicName.parse(one.name))
        piece = _Piece(name, one.topic_id, list(one.offsets), one.offsets)
        yield from _cut(piece._replace(unstable=unstable.get(one.name, frozenset())))


def _named(
    context: RequestContext,
    group_id: str,
    committed: Committed,
    unstable: Mapping[str, Set[int]],
    topics: Iterable[_WantedTopic],
) -> Iterator[_Piece]:
    for wanted in topics:
        topic_id = ZERO_UUID
        key: str | bytes = wanted.name
        if context.api_version >= _TOPIC_IDS_SINCE and isinstance(wanted, OffsetFetchRequestTopics):
            key = topic_id = wanted.topic_id
        full = context.cases.offsets.shown(context.caller, group_id, key)
        piece = _Piece(wanted.name, topic_id, wanted.partition_indexes)
        if isinstance(full, str):
            piece = piece._replace(
                offsets=committed.offsets.get(full, {}), unstable=unstable.get(full, frozenset())
            )
        elif full is not None and not isinstance(full, InvalidTopicName):
            piece = piece._replace(error=error_code(full))
        # A group cannot have offsets of a topic with an invalid name.
        yield from _cut(piece)


def _cut(topic: _Piece) -> Iterator[_Piece]:
    """Cut a topic into pieces of a turn's size; at least one."""
    partitions = topic.partitions
    if len(partitions) <= ELEMENTS_PER_TURN:
        yield topic
        return
    for start in range(0, len(partitions), ELEMENTS_PER_TURN):
        yield topic._replace(partitions=partitions[start : start + ELEMENTS_PER_TURN], goes_on=start > 0)


# --- how it is answered ----------------------------------------------------------------------------------------------


def _begin(context: RequestContext, response: OffsetFetchResponse, one: _Opened) -> list[Any]:
    """The list in the response to which a group's topics are added."""
    if context.api_version < _MANY_GROUPS_SINCE:
        response.error_code = one.error
        return response.topics
    group = OffsetFetchResponseGroup(one.group_id, [], one.error)
    response.groups.append(group)
    return group.topics


def _add(context: RequestContext, rows: list[Any], piece: _Piece) -> None:
    make: Callable[[int, int, int, str, int], Message] = OffsetFetchResponsePartition
    topic: Message = OffsetFetchResponseTopic(piece.name)
    if context.api_version >= _MANY_GROUPS_SINCE:
        make = OffsetFetchResponsePartitions
        topic = OffsetFetchResponseTopics(piece.name, piece.topic_id)
    if not piece.goes_on:
        rows.append(topic)
    rows[-1].partitions += [_row(make, piece, index) for index in piece.partitions]


def _row(make: Callable[[int, int, int, str, int], Message], piece: _Piece, index: int) -> Message:
    if index in piece.unstable:
        return make(index, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    found = piece.offsets.get(index)
    if found is None:
        return make(index, -1, -1, "", piece.error)
    return make(index, found.committed_offset, found.leader_epoch, found.metadata, ErrorCode.NONE)


API = Api.of(codec, VERSIONS, handle)
