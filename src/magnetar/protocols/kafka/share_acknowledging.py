"""What ShareFetch and ShareAcknowledge share: acknowledgements, and the client's ids."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from magnetar.base.errors import BrokerError
from magnetar.base.tasks import outcomes
from magnetar.broker.subscriptions.model import Acknowledge, Acknowledged
from magnetar.broker.usecases.sharing import OpenedShare
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE
from magnetar.protocols.kafka.leaders import leader_error
from magnetar.wire.kafka.error_codes import ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MEMBER_ID_CHARS_MAX: Final = 36  # as in Kafka: a UUID's text
RUNS_MAX: Final = 100_000  # of records with the same acknowledgement in a request

Key = tuple[bytes, int]


class Batch(Protocol):
    """Of either request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


class Partition(Protocol):
    """Of either request."""

    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> Sequence[Batch]: ...


class Topic(Protocol):
    """Of either request."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[Partition]: ...


class Outcome(NamedTuple):
    """The result of a partition's acknowledgements."""

    code: ErrorCode
    message: str | None = None


def problem_of(group_id: str | None, member_id: str | None) -> str | None:
    """The error in the ids of a request; None if they are valid."""
    if not group_id:
        return "The group id must not be empty."
    if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        return "The member id is missing or too long."
    return None


def batches_by_partition(topics: Iterable[Topic]) -> dict[Key, Sequence[Batch]]:
    """The batches of the partitions that have any."""
    return {
        (topic.topic_id, one.partition_index): one.acknowledgement_batches
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


async def acknowledge(
    context: RequestContext,
    share: OpenedShare,
    batches: dict[Key, Sequence[Batch]],
    *,
    is_renewing: bool,
) -> dict[Key, Outcome]:
    """Acknowledge batches; returns when the accepted ones are durable.  All partitions are stored together."""
    found: list[Outcome | BaseException]
    if len(batches) > ELEMENTS_AT_ONCE:
        begun: list[asyncio.Task[Outcome]] = []

        def begin(at: tuple[Key, Sequence[Batch]]) -> None:
            work = _one(context, share, *at, is_renewing)
            begun.append(context.service.tasks.begin("acknowledge for a share consumer", work))

        await context.service.large.each(list(batches.items()), begin)
        found = await asyncio.gather(*begun, return_exceptions=True)
    else:
        found = await outcomes([_one(context, share, *at, is_renewing) for at in batches.items()])
    answers: dict[Key, Outcome] = {}
    for key, result in zip(batches, found, strict=True):
        if isinstance(result, BrokerError):
            answers[key] = Outcome(error_code(result), str(result))
        elif isinstance(result, BaseException):
            raise result
        else:
            answers[key] = result
    return answers


async def _one(
    context: RequestContext, share: OpenedShare, key: Key, batches: Sequence[Batch], is_renewing: bool
) -> Outcome:
    said = _said(batches, may_renew=is_renewing)
    if said is None:
        return Outcome(ErrorCode.INVALID_REQUEST, "The acknowledgements make no sense.")
    if not share.rules.may_renew and any(one.kind is Acknowledge.RENEW for one in said):
        return Outcome(ErrorCode.INVALID_RECORD_STATE, "The group's records cannot be renewed.")
    code = leader_error(context, share.partition(key))
    if code != ErrorCode.NONE:
        return Outcome(code)
    await share.acknowledge(key, said)
    return Outcome(ErrorCode.NONE)


def _said(batches: Iterable[Batch], *, may_renew: bool) -> list[Acknowledged] | None:
    """The acknowledgements in the batches, ascending; None if they are invalid."""
    said: list[Acknowledged] = []
    before = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not before <= first <= last or first < 0 or len(types) not in (1, last - first + 1):
            return None
        if not all(0 <= kind <= Acknowledge.RENEW for kind in types):
            return None
        if not may_renew and Acknowledge.RENEW in types:
            return None
        before = last
        said += (
            [Acknowledged(first, last + 1, Acknowledge(types[0]))] if len(types) == 1 else _runs(first, types)
        )
        if len(said) > RUNS_MAX:
            return None
    return said


def _runs(first: int, types: Sequence[int]) -> Iterator[Acknowledged]:
    start = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[start]:
            yield Acknowledged(first + start, first + at, Acknowledge(types[start]))
            start = at
