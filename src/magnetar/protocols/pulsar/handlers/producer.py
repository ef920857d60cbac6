"""PRODUCER, SEND, CLOSE_PRODUCER: producers' commands, and their receipts.

A producer's receipts leave in the order of its SENDs, because clients close the connection when one comes too early.
The log answers in that order by itself; the refusal of a SEND waits for those before it.

The server drops a SEND for a producer that it has closed: its client knows that, or will, and sends the message
again.  For a SEND of a producer that never existed it closes the connection.
"""

from collections import deque
from enum import Enum, auto
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.base.errors import BrokerError, LogLost, WireError, kept
from magnetar.broker.errors import TopicTerminated
from magnetar.broker.producers.errors import ProducerIdInUse
from magnetar.broker.producers.model import AccessMode, ProducerOrigin, ProducerSpec
from magnetar.broker.usecases.publishing import OpenedProducer
from magnetar.ledger.entry import Entry
from magnetar.protocols.pulsar.errors import error_command, server_error
from magnetar.protocols.pulsar.handlers.schema import schema_of
from magnetar.protocols.pulsar.registry import Answer, Command, check_description
from magnetar.protocols.pulsar.session import PulsarSession
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

_U32: Final = Struct(">I")
_NO_POSITION: Final = (1 << 64) - 1  # -1 in an unsigned field: the position in a duplicate's receipt


class State(Enum):
    OPENING = auto()
    WAITING = auto()  # for its turn to be the exclusive one
    READY = auto()
    CLOSING = auto()  # by its client: answered after all its receipts
    CLOSED = auto()


class _Sent:
    """A SEND whose receipt is due.  `error` is the reason of a refusal."""

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
        """Note that the entry is durable, or has failed."""
        self.error = None if error is None else kept(error)
        self.is_done = True
        if self.entry is not None or error is not None:  # otherwise it is being appended
            self.owner.answer_what_is_done()


class AttachedProducer:
    """One producer of one connection; the broker's `Producer` is its other half, and calls it as its `ProducerPort`."""

    def __init__(self, session: PulsarSession, command: CommandProducer) -> None:
        self.session = session
        self.producer_id = command.producer_id
        self.request_id = command.request_id
        self.topic = command.topic
        self.epoch = command.epoch
        self.properties = {pair.key: pair.value for pair in command.metadata}
        self.state = State.OPENING
        self._opened: OpenedProducer | None = None
        self._unanswered: deque[_Sent] = deque()
        self._close_request_id = NO_REQUEST_ID
        # One object for all receipts, because filling it in takes half the time of creating one.
        self._receipt = BaseCommand(type=BaseCommand.SEND_RECEIPT)
        self._receipt.send_receipt.producer_id = self.producer_id

    # --- opening -----------------------------------------------------------------------------------------------------

    def opened(self, opened: OpenedProducer) -> None:
        self._opened = opened
        self.state = State.READY if opened.is_ready else State.WAITING
        if opened.partition_index >= 0:
            self._receipt.send_receipt.message_id.partition = opened.partition_index

    def success(self, request_id: int) -> BaseCommand:
        """PRODUCER_SUCCESS with the producer's present state."""
        opened = self._opened
        assert opened is not None
        answer = CommandProducerSuccess(
            request_id=request_id,
            producer_name=opened.name,
            last_sequence_id=opened.last_sequence_id,
            schema_version=opened.schema_version,
            producer_ready=opened.is_ready,
        )
        if opened.topic_epoch is not None:
            answer.topic_epoch = opened.topic_epoch
        return BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=answer)

    # --- what the broker's side says ---------------------------------------------------------------------------------

    def ready(self) -> None:
        """The producer waited to be the exclusive one, and is that now."""
        if self.state is State.WAITING:
            self.state = State.READY
            self.session.send(self.success(self.request_id))

    def closed(self) -> None:
        """The broker closes the producer, because it is replaced or fenced, or its topic is unloaded or deleted.  The
        client may reconnect.

        A client that has closed it waits for its receipts, and for the answer behind them, so it hears of nothing else.
        """
        if self.state in (State.CLOSING, State.CLOSED):
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
        # They refer to each other: a cycle would need the collector.
        opened, self._opened = self._opened, None
        if opened is not None:
            self.session.cases.publishing.close_producer(opened)

    # --- closing by the client ---------------------------------------------------------------------------------------

    def close(self, request_id: int) -> BaseCommand | None:
        """The answer to CLOSE_PRODUCER; None if it is sent later, after the last receipt."""
        if self._unanswered:
            self.state = State.CLOSING
            self._close_request_id = request_id
            return None
        self._forget()
        return _success(request_id)

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(self, command: CommandSend, data: memoryview, owned: bool) -> None:
        """Handle one SEND; its receipt, or the error, follows in the order of SENDs.

        Raises:
            WireError: the bytes after the command are no entry.
        """
        sent = _Sent(self, command, len(data))
        # The entry cache keeps the payload; copy it if it is a small part of its frame, so that the frame can be
        # freed.
        payload = self.session.service.arena.unpinned(data) if owned else memoryview(bytes(data))
        try:
            view = read_entry(payload, verify=True)
        except ChecksumMismatch as error:
            self._refused(sent, error)
            return
        if bytes(payload[:2]) != CHECKSUM_MAGIC:
            # The client is too old to send a checksum, but entries are stored with one.
            payload = memoryview(CHECKSUM_MAGIC + _U32.pack(crc32c(payload)) + bytes(payload))
        opened = self._opened
        assert opened is not None
        transaction = None
        if command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"):
            transaction = (command.txnid_most_bits, command.txnid_least_bits)
        self._unanswered.append(sent)
        self.session.began_work(sent.size)
        try:
            sent.entry = opened.publish(payload, view, transaction, sent.done)
        except BrokerError as error:
            sent.done(error)
            return
        if sent.is_done:
            self.answer_what_is_done()
        owed_s = opened.owed_s()
        if owed_s:
            self.session.throttle.hold(owed_s, self._owed_s)

    def _owed_s(self) -> float:
        return 0.0 if self._opened is None else self._opened.owed_s()

    def _refused(self, sent: _Sent, error: Exception) -> None:
        self._unanswered.append(sent)
        self.session.began_work(sent.size)
        sent.done(error)

    def answer_what_is_done(self) -> None:
        """Send the receipts that are ready, in the order of SENDs."""
        unanswered = self._unanswered
        session = self.session
        receipt = self._receipt.send_receipt
        message_id = receipt.message_id
        while unanswered and unanswered[0].is_done:
            sent = unanswered.popleft()
            if self.state is State.CLOSED:  # its client reconnects, and gets the refusal then
                pass
            elif isinstance(sent.error, (TopicTerminated, LogLost)):
                # Close the producer instead of an error for this message: clients look the topic up again, and learn
                # that it is terminated, or which broker has it.  After an error Pulsar's Go client would wait for its
                # time-out.
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


def producer(session: PulsarSession, command: CommandProducer) -> Answer:
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
    session: PulsarSession, command: CommandProducer, attached: AttachedProducer
) -> BaseCommand | None:
    publishing = session.cases.publishing
    try:
        opened = await publishing.open_producer(
            session.caller,
            command.topic,
            _wanted(session, command),
            attached,
            schema=schema_of(command.schema) if command.HasField("schema") else None,
            encrypts=command.encrypted,
            initial_subscription=command.initial_subscription_name,
        )
    except BaseException:
        if session.producers.get(command.producer_id) is attached:
            del session.producers[command.producer_id]
        raise
    if attached.state is State.CLOSED:  # the connection has ended meanwhile, or its client has closed it
        publishing.close_producer(opened)
        return None
    attached.opened(opened)
    return attached.success(command.request_id)


def _wanted(session: PulsarSession, command: CommandProducer) -> ProducerSpec:
    return ProducerSpec(
        name=command.producer_name or session.service.generate_producer_name(),
        epoch=command.epoch,
        is_user_named=bool(command.producer_name) and command.user_provided_producer_name,
        mode=AccessMode(command.producer_access_mode),
        topic_epoch=command.topic_epoch if command.HasField("topic_epoch") else None,
        origin=ProducerOrigin(
            session.client_host,
            session.client_version,
            command.producer_id,
            {pair.key: pair.value for pair in command.metadata},
        ),
    )


def close_producer(session: PulsarSession, command: CommandCloseProducer) -> Answer:
    attached = session.producers.get(command.producer_id)
    if not isinstance(attached, AttachedProducer):
        return _success(command.request_id)
    return attached.close(command.request_id)


def send(session: PulsarSession, command: CommandSend, entry: memoryview, owned: bool) -> None:
    attached = session.producers.get(command.producer_id)
    if isinstance(attached, AttachedProducer) and attached.state is State.READY:
        attached.send(command, entry, owned)
    elif command.producer_id not in session.producers_closed_by_broker:
        raise WireError(f"a SEND of producer {command.producer_id}, which is not open")


COMMANDS = (
    Command(BaseCommand.PRODUCER, producer, right="Produce"),
    Command(BaseCommand.SEND, send),
    Command(BaseCommand.CLOSE_PRODUCER, close_producer),
)
