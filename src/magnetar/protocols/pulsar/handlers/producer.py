"""PRODUCER, SEND, CLOSE_PRODUCER: what producers say, and the receipts that they get.

A producer's receipts leave in the order of its SENDs: clients close the connection on one that comes too early.  The
log answers in that order by itself; a SEND that is refused at once waits for those before it.

A SEND for a producer that the broker has closed is dropped: its client knows, or will, and sends the message again.
One for a producer that never was closes the connection.
"""

from collections import deque
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from magnetar.base.errors import BrokerError, WireError
from magnetar.broker.errors import PolicyViolation, TopicTerminated
from magnetar.broker.producers.admission import (
    AccessMode,
    EncryptionRequired,
    Producer,
    ProducerIdInUse,
    TooManyProducers,
)
from magnetar.protocols.pulsar.errors import error_command, server_error
from magnetar.protocols.pulsar.handlers.schema import schema_of
from magnetar.protocols.pulsar.registry import Answer, Command, check_description
from magnetar.wire.pulsar.commands import NO_REQUEST_ID
from magnetar.wire.pulsar.entry import CHECKSUM_MAGIC, ChecksumMismatch, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendError,
    CommandSuccess,
)

if TYPE_CHECKING:
    from magnetar.broker.log.partition import Partition
    from magnetar.ledger.entry import Entry
    from magnetar.protocols.pulsar.session import PulsarSession
    from magnetar.wire.pulsar.entry import EntryView

_U32: Final = Struct(">I")
_NO_POSITION: Final = (1 << 64) - 1  # -1 in an unsigned field: where a duplicate is said to be


class State(Enum):
    OPENING = auto()
    WAITING = auto()  # for its turn to be the exclusive one
    READY = auto()
    CLOSING = auto()  # by its client: answered once all its receipts are
    CLOSED = auto()


class _Sent:
    """A SEND whose receipt is due.  `error` is what it was refused for."""

    __slots__ = ("entry", "error", "highest_sequence_id", "is_done", "owner", "sequence_id", "size")

    def __init__(self, owner: "AttachedProducer", command: CommandSend, size: int) -> None:
        self.owner = owner
        self.sequence_id = command.sequence_id
        self.highest_sequence_id = command.highest_sequence_id
        self.size = size
        self.entry: Entry | None = None
        self.error: Exception | None = None
        self.is_done = False

    def done(self, error: Exception | None) -> None:
        """The entry is durable, or will never be."""
        self.error = error
        self.is_done = True
        if self.entry is not None or error is not None:  # otherwise it is still being appended
            self.owner.answer_what_is_done()


class AttachedProducer:
    """One producer of one connection; the broker's `Producer` is its other half."""

    def __init__(self, session: "PulsarSession", command: CommandProducer) -> None:
        self.session = session
        self.producer_id = command.producer_id
        self.request_id = command.request_id
        self.topic = command.topic
        self.epoch = command.epoch
        self.properties = {pair.key: pair.value for pair in command.metadata}
        self.state = State.OPENING
        self.producer: Producer | None = None
        self.partition: Partition | None = None
        self.schema_version = b""
        self.requires_encryption = False
        self._unanswered: deque[_Sent] = deque()
        self._close_request_id = NO_REQUEST_ID
        # One object for all receipts: filling it in takes half the time of making it.
        self._receipt = BaseCommand(type=BaseCommand.SEND_RECEIPT)
        self._receipt.send_receipt.producer_id = self.producer_id

    # --- opening -----------------------------------------------------------------------------------------------------

    def opened(self, partition: "Partition", producer: Producer) -> None:
        self.partition = partition
        self.producer = producer
        self.state = State.READY if producer.is_ready else State.WAITING
        if partition.topic.is_partitioned:
            self._receipt.send_receipt.message_id.partition = partition.index

    def success(self, request_id: int) -> BaseCommand:
        """PRODUCER_SUCCESS as things are now."""
        producer, partition = self.producer, self.partition
        assert producer is not None
        assert partition is not None
        answer = CommandProducerSuccess(
            request_id=request_id,
            producer_name=producer.name,
            last_sequence_id=partition.last_sequence_id(producer.name),
            schema_version=self.schema_version,
            producer_ready=producer.is_ready,
        )
        if producer.topic_epoch is not None:
            answer.topic_epoch = producer.topic_epoch
        return BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=answer)

    # --- what the broker's side says ---------------------------------------------------------------------------------

    def ready(self) -> None:
        """It waited to be the exclusive producer, and is that now."""
        if self.state is State.WAITING:
            self.state = State.READY
            self.session.send(self.success(self.request_id))

    def closed(self) -> None:
        """The broker closes it: replaced, fenced, or its topic is unloaded or deleted.  The client may come again."""
        if self.state is State.CLOSED:
            return
        self._forget()
        self.session.producers_closed_by_broker.add(self.producer_id)
        self.session.send(self.close_notice())

    def refused(self, error: BrokerError) -> None:
        """The producer waited for exclusive access, and does not get it."""
        if self.state is State.WAITING:
            self._forget()
            self.session.send(error_command(self.request_id, server_error(error), str(error)))

    async def is_alive(self) -> bool:
        return await self.session.is_alive()

    def close_notice(self) -> BaseCommand:
        return BaseCommand(
            type=BaseCommand.CLOSE_PRODUCER,
            close_producer=CommandCloseProducer(producer_id=self.producer_id, request_id=NO_REQUEST_ID),
        )

    def connection_lost(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.state = State.CLOSED
        if self.session.producers.get(self.producer_id) is self:
            del self.session.producers[self.producer_id]
        if self.producer is not None and self.partition is not None:
            self.session.broker.producers.of(self.partition).remove(self.producer)
        self.producer = self.partition = None  # they know each other: a cycle would wait for the collector

    # --- closing by the client ---------------------------------------------------------------------------------------

    def close(self, request_id: int) -> BaseCommand | None:
        """The answer to CLOSE_PRODUCER; None when it comes after the last receipt."""
        if self._unanswered:
            self.state = State.CLOSING
            self._close_request_id = request_id
            return None
        self._forget()
        return _success(request_id)

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(self, command: CommandSend, data: memoryview, owned: bool) -> None:
        """One SEND; its receipt, or the error, follows when its turn comes.

        Raises:
            WireError: what stands behind the command is no entry.
        """
        sent = _Sent(self, command, len(data))
        # The entry cache keeps the payload: it must not keep a frame that is mostly something else.
        payload = self.session.service.arena.unpinned(data) if owned else memoryview(bytes(data))
        try:
            view = read_entry(payload, verify=True)
        except ChecksumMismatch as error:
            self._refused(sent, error)
            return
        if bytes(payload[:2]) != CHECKSUM_MAGIC:
            # From a client older than checksums.  Entries are stored with one.
            payload = memoryview(CHECKSUM_MAGIC + _U32.pack(crc32c(payload)) + bytes(payload))
        self._unanswered.append(sent)
        self.session.began_work(sent.size)
        try:
            sent.entry = self._publish(command, payload, view, sent)
        except BrokerError as error:
            sent.done(error)
            return
        if sent.is_done:
            self.answer_what_is_done()

    def _refused(self, sent: _Sent, error: Exception) -> None:
        self._unanswered.append(sent)
        self.session.began_work(sent.size)
        sent.done(error)

    def _publish(self, command: CommandSend, payload: memoryview, view: "EntryView", sent: _Sent) -> "Entry":
        partition = self.partition
        assert partition is not None
        if self.requires_encryption and not view.is_encrypted:
            raise EncryptionRequired("Messages must be encrypted")
        if command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"):
            raise PolicyViolation("Transactions are not available")
        producer = self.producer
        assert producer is not None
        producer.messages_in += view.num_messages
        producer.bytes_in += len(payload)
        return partition.publish(payload, view, self.session.service.clock.now_ms(), sent.done)

    def answer_what_is_done(self) -> None:
        """Send the receipts whose turn has come."""
        unanswered = self._unanswered
        session = self.session
        receipt = self._receipt.send_receipt
        message_id = receipt.message_id
        while unanswered and unanswered[0].is_done:
            sent = unanswered.popleft()
            if self.state is State.CLOSED:  # what it sends again is told then
                pass
            elif isinstance(sent.error, TopicTerminated):
                # Not as an error of this one message: clients come back, and learn then that there is no more to send.
                # Pulsar's Go client waits for its time-out after an error.
                self.closed()
            elif sent.error is not None:
                session.send(self._send_error(sent))
            else:
                entry = sent.entry
                assert entry is not None
                receipt.sequence_id = sent.sequence_id
                receipt.highest_sequence_id = sent.highest_sequence_id
                if entry.ledger_id < 0:
                    message_id.ledgerId = message_id.entryId = _NO_POSITION
                else:
                    message_id.ledgerId = entry.ledger_id
                    message_id.entryId = entry.entry_id
                session.send(self._receipt)
            session.ended_work(sent.size)
        if not unanswered and self.state is State.CLOSING:
            self._forget()
            session.send(_success(self._close_request_id))

    def _send_error(self, sent: _Sent) -> BaseCommand:
        error = sent.error
        assert error is not None
        return BaseCommand(
            type=BaseCommand.SEND_ERROR,
            send_error=CommandSendError(
                producer_id=self.producer_id,
                sequence_id=sent.sequence_id,
                error=server_error(error),
                message=str(error),
            ),
        )


def _success(request_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id))


# --- handlers --------------------------------------------------------------------------------------------------------


def producer(session: "PulsarSession", command: CommandProducer) -> Answer:
    there = session.producers.get(command.producer_id)
    if isinstance(there, AttachedProducer):
        if there.state in (State.READY, State.WAITING) and there.topic == command.topic:
            return there.success(command.request_id)
        raise ProducerIdInUse("Producer is already present on the connection")
    check_description(command)
    attached = AttachedProducer(session, command)
    session.producers[command.producer_id] = attached
    session.producers_closed_by_broker.discard(command.producer_id)
    return _open(session, command, attached)


async def _open(
    session: "PulsarSession", command: CommandProducer, attached: AttachedProducer
) -> BaseCommand | None:
    try:
        partition, admitted = await _admit(session, command, attached)
    except BaseException:
        if session.producers.get(command.producer_id) is attached:
            del session.producers[command.producer_id]
        raise
    if attached.state is State.CLOSED:  # the connection broke meanwhile, or its client closed it
        session.broker.producers.of(partition).remove(admitted)
        return None
    attached.opened(partition, admitted)
    return attached.success(command.request_id)


async def _admit(
    session: "PulsarSession", command: CommandProducer, attached: AttachedProducer
) -> "tuple[Partition, Producer]":
    broker = session.broker
    partition = await broker.pulsar_topics.open(command.topic)
    policies = broker.namespaces.policies_of(partition.topic.name)
    if policies.encryption_required and not command.encrypted:
        raise EncryptionRequired(f"Encryption is required in {command.topic}")
    attached.requires_encryption = policies.encryption_required
    producers = broker.producers.of(partition)
    if 0 < policies.producers_max <= len(producers):
        raise TooManyProducers("Topic reached max producers limit")
    await broker.housekeeping.check_producers(partition, policies)
    schema = schema_of(command.schema) if command.HasField("schema") else None
    attached.schema_version = await broker.schemas.check_producer(partition.topic.name, schema)
    if partition.is_terminated:
        raise TopicTerminated("Topic was already terminated")
    subscription = command.initial_subscription_name
    if subscription and partition.topic.name.persistent:
        # A dead letter topic must keep its messages for whoever comes to look at them.
        if not policies.auto_subscription_creation and subscription not in broker.subscriptions.names(
            partition
        ):
            raise PolicyViolation(
                "Could not create the initial subscription due to the auto subscription creation is not allowed."
            )
        await broker.subscriptions.create(partition, subscription, partition.log.log_start)
    name = command.producer_name or session.service.generate_producer_name()
    admitted = Producer(
        name=name,
        epoch=command.epoch,
        is_user_named=bool(command.producer_name) and command.user_provided_producer_name,
        mode=AccessMode(command.producer_access_mode),
        topic_epoch=command.topic_epoch if command.HasField("topic_epoch") else None,
        handle=attached,
        connected_since_ms=session.service.clock.now_ms(),
    )
    await producers.admit(admitted)
    return partition, admitted


def close_producer(session: "PulsarSession", command: CommandCloseProducer) -> Answer:
    attached = session.producers.get(command.producer_id)
    if not isinstance(attached, AttachedProducer):
        return _success(command.request_id)
    return attached.close(command.request_id)


def send(session: "PulsarSession", command: CommandSend, entry: memoryview, owned: bool) -> None:
    attached = session.producers.get(command.producer_id)
    if isinstance(attached, AttachedProducer) and attached.state is State.READY:
        attached.send(command, entry, owned)
    elif command.producer_id not in session.producers_closed_by_broker:
        raise WireError(f"a SEND of producer {command.producer_id}, which is not open")


COMMANDS = (
    Command(BaseCommand.PRODUCER, producer),
    Command(BaseCommand.SEND, send),
    Command(BaseCommand.CLOSE_PRODUCER, close_producer),
)
