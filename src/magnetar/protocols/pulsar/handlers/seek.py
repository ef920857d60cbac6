"""SEEK and GET_LAST_MESSAGE_ID: from message ids and times to places in the log."""

from typing import TYPE_CHECKING

from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.protocols.pulsar.errors import error_command
from magnetar.protocols.pulsar.handlers.consumer import member_of
from magnetar.protocols.pulsar.handlers.subscribe import position_of, success
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandSeek,
    MessageIdData,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.protocols.pulsar.session import PulsarSession

_UNSIGNED = (1 << 64) - 1


def seek(session: "PulsarSession", command: CommandSeek) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return error_command(command.request_id, ServerError.MetadataError, "Consumer not found")
    if not command.HasField("message_id") and not command.HasField("message_publish_time"):
        return error_command(
            command.request_id,
            ServerError.MetadataError,
            "Message id and message publish time were not present",
        )
    return _seek(session, command, _persistent(member, "Seek is not supported on non-persistent topic"))


def _persistent(member: SubscribedConsumer, refusal: str) -> Subscription:
    if not isinstance(member.subscription, Subscription):
        raise SubscriptionNotAllowed(refusal)
    return member.subscription


async def _seek(session: "PulsarSession", command: CommandSeek, subscription: Subscription) -> BaseCommand:
    partition = subscription.partition
    if command.HasField("message_id"):
        find = positions.offset_of(partition, *position_of(command.message_id))
    else:
        find = positions.offset_at_time(partition, command.message_publish_time)
    await session.broker.subscriptions.seek(subscription, find)
    return success(command.request_id)


def get_last_message_id(session: "PulsarSession", command: CommandGetLastMessageId) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return error_command(command.request_id, ServerError.MetadataError, "Consumer not found")
    refusal = "getLastMessageId is not supported on non-persistent topic"
    return _last_message_id(session, command, _persistent(member, refusal))


async def _last_message_id(
    session: "PulsarSession", command: CommandGetLastMessageId, subscription: Subscription
) -> BaseCommand:
    partition = subscription.partition
    index = partition.index if partition.topic.is_partitioned else -1
    last = await positions.last_message(partition, session.broker.subscriptions.forms)
    ledger_id, entry_id = await positions.position_below(partition, subscription.cursor.mark_delete)
    response = CommandGetLastMessageIdResponse(
        request_id=command.request_id,
        last_message_id=MessageIdData(
            ledgerId=last.ledger_id & _UNSIGNED,
            entryId=last.entry_id & _UNSIGNED,
            partition=index,
            batch_index=last.batch_index,
        ),
        consumer_mark_delete_position=MessageIdData(
            ledgerId=ledger_id & _UNSIGNED, entryId=entry_id & _UNSIGNED, partition=index
        ),
    )
    return BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=response)


COMMANDS = (
    Command(BaseCommand.SEEK, seek),
    Command(BaseCommand.GET_LAST_MESSAGE_ID, get_last_message_id),
)
