"""FLOW, ACK, REDELIVER_UNACKNOWLEDGED_MESSAGES, CLOSE_CONSUMER, UNSUBSCRIBE, CONSUMER_STATS: a consumer's commands.

A command of a consumer that does not exist, or no longer exists, changes nothing: after a seek or an unload such
commands arrive before the client knows of it.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.subscriptions.model import IDS_AT_ONCE, PERMITS_MAX, AckedId
from magnetar.broker.usecases.subscribing import OpenedConsumer
from magnetar.protocols.pulsar.consumers import ConnectedConsumer
from magnetar.protocols.pulsar.errors import error_command, server_error
from magnetar.protocols.pulsar.handlers.subscribe import position_of, success
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandFlow,
    CommandRedeliverUnacknowledgedMessages,
    CommandUnsubscribe,
    MessageIdData,
    ServerError,
)

REDELIVERED_AT_ONCE: Final = 2_000  # Java sends 1,000 at a time, C++ all unacknowledged ones
_TYPE_NAMES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")  # by CommandSubscribe.SubType


def member_of(session: PulsarSession, consumer_id: int) -> OpenedConsumer | None:
    """The consumer of this connection with that id, if it is open."""
    consumer = session.consumers.get(consumer_id)
    return consumer.member if isinstance(consumer, ConnectedConsumer) else None


def flow(session: PulsarSession, command: CommandFlow) -> Answer:
    consumer = session.consumers.get(command.consumer_id)
    if isinstance(consumer, ConnectedConsumer):
        member = consumer.member
        # Clients count in signed integers, so a larger number is a negative one.
        if member is not None and command.messagePermits <= PERMITS_MAX:
            consumer.ready()
            member.flow(command.messagePermits)
    return None


def ack(session: PulsarSession, command: CommandAck) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return _acked(command, ServerError.ConsumerNotFound, "Consumer not found")
    if command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"):
        return _acked_in_transaction(session, command, member)
    cumulative = command.ack_type == CommandAck.Cumulative
    acked = command.message_id
    if len(acked) <= IDS_AT_ONCE:
        later = member.acknowledge(_ids(acked), cumulative=cumulative)
    else:
        later = member.acknowledge_many(_pieces(acked), cumulative=cumulative)
    return _acked(command) if later is None else _acked_later(command, later)


async def _acked_in_transaction(
    session: PulsarSession, command: CommandAck, member: OpenedConsumer
) -> BaseCommand | None:
    transaction = command.txnid_most_bits, command.txnid_least_bits
    cumulative = command.ack_type == CommandAck.Cumulative
    try:
        await session.cases.pulsar_transactions.acknowledge(
            session.caller, transaction, member, _pieces(command.message_id), cumulative=cumulative
        )
    except BrokerError as error:
        return _acked(command, server_error(error), str(error))
    return _acked(command)


def _pieces(acked: Sequence[MessageIdData]) -> Iterator[list[AckedId]]:
    """The ids in pieces, each of which is handled at once."""
    return (_ids(acked[at : at + IDS_AT_ONCE]) for at in range(0, len(acked), IDS_AT_ONCE))


def _ids(acked: Iterable[MessageIdData]) -> list[AckedId]:
    return [AckedId(*position_of(one), one.ack_set) for one in acked]


async def _acked_later(command: CommandAck, later: Awaitable[None]) -> BaseCommand | None:
    try:
        await later
    except BrokerError as error:
        return _acked(command, server_error(error), str(error))
    return _acked(command)


def _acked(
    command: CommandAck, error: ServerError | None = None, text: str | None = None
) -> BaseCommand | None:
    """The answer to ACK, if the client asks for one."""
    if not command.HasField("request_id"):
        return None
    response = CommandAckResponse(
        consumer_id=command.consumer_id,
        request_id=command.request_id,
        txnid_least_bits=command.txnid_least_bits,
        txnid_most_bits=command.txnid_most_bits,
        error=error,
        message=text,
    )
    return BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=response)


def redeliver(session: PulsarSession, command: CommandRedeliverUnacknowledgedMessages) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return None
    if len(command.message_ids) > REDELIVERED_AT_ONCE:
        return _redeliver_in_turns(session, command, member)
    _redeliver(member, command, command.message_ids)
    return None


def _redeliver(
    member: OpenedConsumer,
    command: CommandRedeliverUnacknowledgedMessages,
    ids: Sequence[MessageIdData],
) -> None:
    positions = [position_of(one) for one in ids] or None
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    member.redeliver(positions, epoch)


async def _redeliver_in_turns(
    session: PulsarSession, command: CommandRedeliverUnacknowledgedMessages, member: OpenedConsumer
) -> None:
    """As `_redeliver`, for so many ids that other clients must get turns in between."""
    ids = command.message_ids
    for at in range(0, len(ids), REDELIVERED_AT_ONCE):
        if member_of(session, command.consumer_id) is not member:
            return
        _redeliver(member, command, ids[at : at + REDELIVERED_AT_ONCE])
        await asyncio.sleep(0)


def close_consumer(session: PulsarSession, command: CommandCloseConsumer) -> Answer:
    consumer = session.consumers.get(command.consumer_id)
    if not isinstance(consumer, ConnectedConsumer):
        return success(command.request_id)
    member = consumer.member
    consumer.detach()
    return success(command.request_id) if member is None else _left(session, command.request_id, member)


async def _left(session: PulsarSession, request_id: int, member: OpenedConsumer) -> BaseCommand:
    await session.cases.subscribing.leave(member)
    return success(request_id)


def unsubscribe(session: PulsarSession, command: CommandUnsubscribe) -> Answer:
    consumer = session.consumers.get(command.consumer_id)
    if not isinstance(consumer, ConnectedConsumer) or consumer.member is None:
        return error_command(command.request_id, ServerError.MetadataError, "Consumer not found")
    return _unsubscribed(session, command, consumer, consumer.member)


async def _unsubscribed(
    session: PulsarSession,
    command: CommandUnsubscribe,
    consumer: ConnectedConsumer,
    member: OpenedConsumer,
) -> BaseCommand:
    await session.cases.subscribing.unsubscribe(member, force=command.force)
    consumer.detach()
    return success(command.request_id)


def consumer_stats(session: PulsarSession, command: CommandConsumerStats) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return _stats(command, error_code=ServerError.ConsumerNotFound, error_message="Consumer not found")
    figures = member.figures()
    seconds = max((session.service.clock.now_ms() - figures.connected_since_ms) / 1000, 1.0)
    since = datetime.fromtimestamp(figures.connected_since_ms / 1000, UTC)
    return _stats(
        command,
        # Averages since the consumer connected.
        msgRateOut=figures.messages_out / seconds,
        msgThroughputOut=figures.bytes_out / seconds,
        msgRateRedeliver=figures.messages_redelivered / seconds,
        messageAckRate=figures.acked_messages / seconds,
        consumerName=figures.spec.name,
        availablePermits=max(figures.permits, 0),
        unackedMessages=figures.unacked_messages,
        blockedConsumerOnUnackedMsgs=figures.is_blocked,
        address=session.client_host,
        connectedSince=since.isoformat(timespec="milliseconds"),
        type=_TYPE_NAMES[figures.spec.type.value],
        msgRateExpired=0.0,
        msgBacklog=figures.backlog,
    )


def _stats(command: CommandConsumerStats, **fields: object) -> BaseCommand:
    response = CommandConsumerStatsResponse(request_id=command.request_id, **fields)  # type: ignore[arg-type]
    return BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=response)


COMMANDS = (
    Command(BaseCommand.FLOW, flow),
    Command(BaseCommand.ACK, ack),
    Command(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver),
    Command(BaseCommand.CLOSE_CONSUMER, close_consumer),
    Command(BaseCommand.UNSUBSCRIBE, unsubscribe),
    Command(BaseCommand.CONSUMER_STATS, consumer_stats),
)
