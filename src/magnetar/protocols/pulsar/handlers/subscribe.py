"""SUBSCRIBE: a consumer joins a subscription, which the server creates if necessary."""

from magnetar.base import randomness
from magnetar.base.errors import BrokerError
from magnetar.base.names import parse_partition
from magnetar.broker.subscriptions.model import (
    ConsumerSpec,
    InitialPosition,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.protocols.pulsar.consumers import ConnectedConsumer, ConsumerState
from magnetar.protocols.pulsar.errors import error_command
from magnetar.protocols.pulsar.handlers.schema import schema_of
from magnetar.protocols.pulsar.registry import Answer, Command, check_description
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandSubscribe,
    CommandSuccess,
    KeySharedMode,
    MessageIdData,
    ServerError,
)


def subscribe(session: PulsarSession, command: CommandSubscribe) -> Answer:
    known = session.consumers.get(command.consumer_id)
    if isinstance(known, ConnectedConsumer):
        if known.state is ConsumerState.OPEN:
            return success(command.request_id)  # the client did not wait for the first answer
        return error_command(
            command.request_id,
            ServerError.ServiceNotReady,
            "Consumer is already present on the connection",
        )
    check_description(command)
    _, index = parse_partition(command.topic)
    uses_epochs = command.HasField("consumer_epoch")
    consumer = ConnectedConsumer(session, command.consumer_id, index, uses_epochs=uses_epochs)
    session.consumers[command.consumer_id] = consumer
    return _subscribe(session, command, consumer)


async def _subscribe(session: PulsarSession, command: CommandSubscribe, consumer: ConnectedConsumer) -> None:
    subscribing = session.cases.subscribing
    try:
        member = await subscribing.subscribe(
            session.caller,
            command.topic,
            _request(session, command),
            consumer,
            schema=schema_of(command.schema) if command.HasField("schema") else None,
            may_create_topic=command.force_topic_creation,
        )
    except BrokerError:
        consumer.detach()
        raise
    if consumer.state is not ConsumerState.OPENING:  # closed meanwhile, or its connection is lost
        await subscribing.leave(member)
        return
    # No wait may be between the two: SUCCESS must be sent before anything from the dispatcher.
    session.send(success(command.request_id))
    consumer.opened(member)


def _request(session: PulsarSession, command: CommandSubscribe) -> SubscribeRequest:
    sharing = command.keySharedMeta
    start = command.start_message_id
    spec = ConsumerSpec(
        command.consumer_name or randomness.hex_token(3),
        SubscriptionType(command.subType),
        priority_level=max(command.priority_level, 0),
        epoch=command.consumer_epoch if command.HasField("consumer_epoch") else None,
        is_sticky=sharing.keySharedMode == KeySharedMode.STICKY,
        hash_ranges=tuple((one.start, one.end) for one in sharing.hashRanges),
        allows_out_of_order=sharing.allowOutOfOrderDelivery,
        returns_hidden_permits=not session.client_version.startswith("Pulsar-Java"),
        metadata={pair.key: pair.value for pair in command.metadata},
        address=session.client_host,
        client_version=session.client_version,
        identity=(session.client_host, command.consumer_name, command.consumer_id),
        reads_compacted=command.read_compacted,
    )
    return SubscribeRequest(
        command.subscription,
        spec,
        is_durable=command.durable,
        initial_position=InitialPosition(command.initialPosition),
        start=position_of(start) if command.HasField("start_message_id") else None,
        rollback_s=command.start_message_rollback_duration_sec,
        properties={pair.key: pair.value for pair in command.subscription_properties},
    )


def position_of(message_id: MessageIdData) -> tuple[int, int]:
    """(ledger id, entry id) as signed numbers, which clients send in unsigned fields."""
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    return (
        ledger_id - (1 << 64) if ledger_id >> 63 else ledger_id,
        entry_id - (1 << 64) if entry_id >> 63 else entry_id,
    )


def success(request_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id))


COMMANDS = (Command(BaseCommand.SUBSCRIBE, subscribe, right="subscribe"),)
