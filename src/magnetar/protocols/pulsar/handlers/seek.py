"""SEEK and GET_LAST_MESSAGE_ID: from message ids and times to positions in the log."""

from magnetar.broker.usecases.subscribing import OpenedConsumer
from magnetar.protocols.pulsar.errors import error_command
from magnetar.protocols.pulsar.handlers.consumer import member_of
from magnetar.protocols.pulsar.handlers.subscribe import position_of, success
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandSeek,
    MessageIdData,
    ServerError,
)

_UNSIGNED = (1 << 64) - 1


def seek(session: PulsarSession, command: CommandSeek) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return error_command(command.request_id, ServerError.MetadataError, "Consumer not found")
    if not command.HasField("message_id") and not command.HasField("message_publish_time"):
        return error_command(
            command.request_id,
            ServerError.MetadataError,
            "Message id and message publish time were not present",
        )
    return _seek(session, command, member)


async def _seek(session: PulsarSession, command: CommandSeek, member: OpenedConsumer) -> BaseCommand:
    position = position_of(command.message_id) if command.HasField("message_id") else None
    await session.cases.subscribing.seek(member, position=position, time_ms=command.message_publish_time)
    return success(command.request_id)


def get_last_message_id(session: PulsarSession, command: CommandGetLastMessageId) -> Answer:
    member = member_of(session, command.consumer_id)
    if member is None:
        return error_command(command.request_id, ServerError.MetadataError, "Consumer not found")
    return _last_message_id(session, command, member)


async def _last_message_id(
    session: PulsarSession, command: CommandGetLastMessageId, member: OpenedConsumer
) -> BaseCommand:
    index, last, (ledger_id, entry_id) = await session.cases.subscribing.last_positions(member)
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
