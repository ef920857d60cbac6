"""One broker's connection: the part of Pulsar's protocol that a broker's geo-replication uses.

| command | answer |
|---|---|
| CONNECT | CONNECTED; with tokens, only to a broker that shows one of them |
| PARTITIONED_METADATA, LOOKUP | no topic has partitions of its own here, and this service has every topic |
| GET_SCHEMA, GET_OR_CREATE_SCHEMA | there is no schema; the service accepts any, and keeps none |
| PRODUCER | PRODUCER_SUCCESS when the target's producer is open |
| SEND | SEND_RECEIPT when the target has the message, in the order of SENDs |
| CLOSE_PRODUCER | SUCCESS when nothing of the topic is on its way any more |
| PING, PONG | PONG, nothing |

A broker calls its producers `<prefix>.<its cluster>--><remote cluster>`: the remote cluster is the region of a target.
A lane that fails closes its producer: the broker opens it again after a pause that grows, while its other topics go on.
Bytes that are no command end the connection with one log line.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from struct import Struct
from typing import Any, Final

from magnetar.base.errors import MagnetarError, WireError
from magnetar.base.names import InvalidTopicName, parse_partition
from magnetar.base.tasks import Tasks
from magnetar.replicator_service.config import Targets
from magnetar.replicator_service.dead_letters import DeadLetters
from magnetar.replicator_service.lane import Lane, Sent
from magnetar.replicator_service.lanes import LaneBusy, LaneKey, Lanes
from magnetar.replicators.errors import CredentialsRefused, ReplicatorConfigError, TargetUnavailable
from magnetar.replicators.registry import find_provider
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.commands import (
    FRAME_PADDING_BYTES,
    NO_REQUEST_ID,
    PROTOCOL_VERSION,
    frame_command,
    read_command,
)
from magnetar.wire.pulsar.entry import read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 32 << 20  # more than brokers take by default
LOGIN_FRAME_BYTES_MAX: Final = 128 << 10
PRODUCERS_MAX: Final = 10_000  # of one connection
KEEP_ALIVE_S: Final = 30.0
LAST_WORDS_S: Final = 2.0
_CLUSTERS: Final = "-->"
_U32: Final = Struct(">I")
_SCHEMA_VERSION_BYTES: Final = 8

# A type of commands has the number of its field.
_KINDS: Final[Mapping[str, Any]] = {
    field.name: field.number for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}
_PING: Final = frame_command(BaseCommand(type=BaseCommand.PING, ping=pb.CommandPing()))
_PONG: Final = frame_command(BaseCommand(type=BaseCommand.PONG, pong=pb.CommandPong()))
_ERRORS: Final[Sequence[tuple[type[Exception], "ServerError"]]] = (
    (CredentialsRefused, ServerError.AuthorizationError),
    (TargetUnavailable, ServerError.ServiceNotReady),
    (LaneBusy, ServerError.ProducerBusy),
    (InvalidTopicName, ServerError.InvalidTopicName),
    (ReplicatorConfigError, ServerError.NotAllowedError),
)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sessions have.  `url` is where brokers find this service; without `tokens` it takes every broker."""

    targets: Targets
    tokens: Sequence[bytes]
    letters_folder: Path | None
    lanes: Lanes
    tasks: Tasks
    url: str
    keep_alive_s: float = KEEP_ALIVE_S


class Session:
    """See the module's text."""

    def __init__(self, shared: Shared, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._shared = shared
        self._reader = reader
        self._writer = writer
        self._producers: dict[int, _Producer] = {}
        self._gone: set[int] = set()  # producers whose late SENDs are dropped
        self._frame_bytes_max = LOGIN_FRAME_BYTES_MAX
        self._is_let_in = False
        self._handlers: dict[int, Callable[[Any], None]] = {
            BaseCommand.PING: lambda command: self._write(_PONG),
            BaseCommand.PONG: lambda command: None,
            BaseCommand.PARTITIONED_METADATA: self._partitioned_metadata,
            BaseCommand.LOOKUP: self._lookup,
            BaseCommand.GET_SCHEMA: self._get_schema,
            BaseCommand.GET_OR_CREATE_SCHEMA: self._get_or_create_schema,
            BaseCommand.PRODUCER: self._producer,
            BaseCommand.CLOSE_PRODUCER: self._close_producer,
        }

    async def run(self) -> None:
        """Serve the connection until it ends."""
        try:
            await self._connect()
            while True:
                async with asyncio.timeout(self._shared.keep_alive_s):
                    await self._writer.drain()  # a broker that reads no receipts may send no more messages
                await self._handle(await self._frame())
        except WireError as error:
            log.warning("closing the connection of %s: %s", self, error)
        except TimeoutError:
            log.warning("closing the connection of %s: it says nothing, or reads nothing", self)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the broker has gone
        finally:
            for producer in self._producers.values():
                producer.close()
            self.close()

    def close(self) -> None:
        """Send what is due, and close the connection; at once if the broker reads nothing."""
        self._writer.close()
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._writer.transport.abort)

    # --- bytes -------------------------------------------------------------------------------------------------------

    async def _frame(self) -> memoryview:
        """The next frame; PINGs a broker that says nothing.

        Raises:
            TimeoutError: it does not answer.
            WireError: the frame has an impossible size.
        """
        keep_alive_s = self._shared.keep_alive_s
        try:
            async with asyncio.timeout(keep_alive_s):
                head = await self._reader.readexactly(_U32.size)
        except TimeoutError:
            if not self._is_let_in:
                raise
            self._write(_PING)
            async with asyncio.timeout(keep_alive_s):
                head = await self._reader.readexactly(_U32.size)
        (size,) = _U32.unpack(head)
        if not 0 < size <= self._frame_bytes_max:
            raise WireError(f"a frame of {size} bytes; 1 to {self._frame_bytes_max} are allowed")
        async with asyncio.timeout(keep_alive_s):
            return memoryview(await self._reader.readexactly(size))

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def send(self, **command: Any) -> None:
        """Send a command, given by the name of its type and its fields."""
        [(name, body)] = command.items()
        self._write(frame_command(BaseCommand(type=_KINDS[name], **{name: body})))

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Let the broker in.  Raises WireError: it may not come in."""
        kind, command, _ = read_command(await self._frame())
        if kind != BaseCommand.CONNECT:
            raise WireError(f"{BaseCommand.Type.Name(kind)} before CONNECT")
        tokens = self._shared.tokens
        # All of them are compared, so that the time says nothing.
        known = [hmac.compare_digest(token, command.auth_data) for token in tokens]
        if tokens and not (command.auth_method_name == "token" and any(known)):
            refusal = "Failed to authenticate"
            self.send(
                error=pb.CommandError(
                    request_id=NO_REQUEST_ID, error=ServerError.AuthenticationError, message=refusal
                )
            )
            raise WireError("it shows no token that this service knows")
        self._frame_bytes_max = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES
        self._is_let_in = True
        self.send(
            connected=pb.CommandConnected(
                server_version=f"Magnetar replicator service {version('magnetar')}",
                protocol_version=min(PROTOCOL_VERSION, command.protocol_version),
                max_message_size=MESSAGE_BYTES_MAX,
                feature_flags=pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True),
            )
        )

    async def _handle(self, frame: memoryview) -> None:
        kind, command, entry = read_command(frame)
        if kind == BaseCommand.SEND:
            await self._send(command, entry)
            return
        handler = self._handlers.get(kind)
        if handler is None:
            raise WireError(f"{BaseCommand.Type.Name(kind)} is not served here")
        handler(command)

    def _partitioned_metadata(self, command: pb.CommandPartitionedTopicMetadata) -> None:
        self.send(
            partitionMetadataResponse=pb.CommandPartitionedTopicMetadataResponse(
                request_id=command.request_id,
                response=pb.CommandPartitionedTopicMetadataResponse.Success,
                partitions=0,
            )
        )

    def _lookup(self, command: pb.CommandLookupTopic) -> None:
        self.send(
            lookupTopicResponse=pb.CommandLookupTopicResponse(
                request_id=command.request_id,
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=self._shared.url,
                authoritative=True,
            )
        )

    def _get_schema(self, command: pb.CommandGetSchema) -> None:
        self.send(
            getSchemaResponse=pb.CommandGetSchemaResponse(
                request_id=command.request_id,
                error_code=ServerError.TopicNotFound,
                error_message="this service keeps no schemas",
            )
        )

    def _get_or_create_schema(self, command: pb.CommandGetOrCreateSchema) -> None:
        # The same schema always gets the same version, although the service keeps none.
        digest = hashlib.sha256(command.schema.SerializeToString(deterministic=True)).digest()
        self.send(
            getOrCreateSchemaResponse=pb.CommandGetOrCreateSchemaResponse(
                request_id=command.request_id, schema_version=digest[:_SCHEMA_VERSION_BYTES]
            )
        )

    # --- producers ---------------------------------------------------------------------------------------------------

    def _producer(self, command: pb.CommandProducer) -> None:
        if command.producer_id in self._producers or len(self._producers) >= PRODUCERS_MAX:
            reason = "the connection has this producer already, or too many"
            self._refuse(command.request_id, ServerError.NotAllowedError, reason)
            return
        producer = self._producers[command.producer_id] = _Producer(self, command.producer_id)
        self._gone.discard(command.producer_id)
        self._shared.tasks.spawn("a producer", self._open(command, producer))

    async def _open(self, command: pb.CommandProducer, producer: "_Producer") -> None:
        try:
            key, make = self._wanted(command, producer)
            lane = await self._shared.lanes.begin(key, make)
        except MagnetarError as error:
            self.forget(producer)
            log.warning("%s cannot replicate %s: %s", self, command.topic, error)
            found = next(
                (code for kind, code in _ERRORS if isinstance(error, kind)), ServerError.UnknownError
            )
            self._refuse(command.request_id, found, str(error))
            return
        except Exception:
            self.forget(producer)
            self._refuse(command.request_id, ServerError.UnknownError, "internal error")
            raise
        if producer.is_closed or lane.is_closing:
            lane.close()
            return
        log.info("the service replicates %s from now on", lane.name)
        self.send(
            producer_success=pb.CommandProducerSuccess(
                request_id=command.request_id,
                producer_name=command.producer_name,
                last_sequence_id=-1,
                schema_version=b"",  # Java's client closes the connection if there is none
                producer_ready=True,
            )
        )

    def _wanted(
        self, command: pb.CommandProducer, producer: "_Producer"
    ) -> tuple[LaneKey, Callable[[], Lane]]:
        """The lane that a broker asks for.

        Raises:
            InvalidTopicName: the topic has no name.
            ReplicatorConfigError: the configuration does not say where the topic goes.
        """
        topic, partition = parse_partition(command.topic)
        region = command.producer_name.rpartition(_CLUSTERS)[2]
        if _CLUSTERS not in command.producer_name or not topic.persistent:
            raise ReplicatorConfigError("only brokers that replicate a persistent topic may send here")
        target = self._shared.targets.get((topic.namespace_name, region))
        if target is None or target.policies.target_of(topic.local) is None:
            raise ReplicatorConfigError(
                f"the service's configuration does not say where {topic.full} goes in {region[:100]}: add the"
                " namespace, the region or the topic to it"
            )
        name = topic.full if partition < 0 else topic.partition_name(partition)
        folder = self._shared.letters_folder
        provider = find_provider(target.type)

        def make() -> Lane:
            producer.lane = Lane(
                f"{name} to {region}",
                max(partition, 0),
                partial(provider.create_producer, topic.full, target.policies),
                DeadLetters(folder, name, region),
                producer.delivered,
                producer.failed,
            )
            if producer.is_closed:
                producer.lane.close()
            return producer.lane

        return LaneKey(name, region), make

    async def _send(self, command: pb.CommandSend, entry: memoryview) -> None:
        producer = self._producers.get(command.producer_id)
        if producer is None or producer.lane is None:
            if command.producer_id not in self._gone:
                raise WireError(f"a SEND of producer {command.producer_id}, which is not open")
            return
        try:
            view = read_entry(entry, verify=True)
        except WireError as error:
            producer.fail(f"a message cannot be read: {error}")
            return
        producer.lane.take(Sent(command.sequence_id, command.highest_sequence_id, view))
        await producer.lane.room()

    def _close_producer(self, command: pb.CommandCloseProducer) -> None:
        producer = self._producers.get(command.producer_id)
        if producer is None:
            self.send(success=pb.CommandSuccess(request_id=command.request_id))
            return
        producer.close()
        self._shared.tasks.spawn("the end of a producer", self._closed(command.request_id, producer))

    async def _closed(self, request_id: int, producer: "_Producer") -> None:
        if producer.lane is not None:
            await producer.lane.ended.wait()
        self.forget(producer)
        self.send(success=pb.CommandSuccess(request_id=request_id))

    def forget(self, producer: "_Producer") -> None:
        """Drop the broker's SENDs for this producer from now on."""
        if self._producers.get(producer.id) is producer:
            del self._producers[producer.id]
            self._gone.add(producer.id)

    def _refuse(self, request_id: int, error: "ServerError", text: str) -> None:
        self.send(error=pb.CommandError(request_id=request_id, error=error, message=text))

    def __str__(self) -> str:
        peer = self._writer.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if peer else "a broker"


class _Producer:
    """A producer of a broker, and its lane; None until there is one."""

    def __init__(self, session: Session, number: int) -> None:
        self.id = number
        self.lane: Lane | None = None
        self.is_closed = False
        self._session = session
        self._receipts = 0

    def delivered(self, done: Sequence[Sent]) -> None:
        """Send the receipts of what the target has."""
        for sent in done:
            self._session.send(
                send_receipt=pb.CommandSendReceipt(
                    producer_id=self.id,
                    sequence_id=sent.sequence_id,
                    highest_sequence_id=sent.highest_sequence_id,
                    message_id=pb.MessageIdData(ledgerId=0, entryId=self._receipts),
                )
            )
            self._receipts += 1

    def failed(self) -> None:
        """The lane has ended by itself: the broker may open the producer again."""
        self._session.forget(self)
        self._session.send(
            close_producer=pb.CommandCloseProducer(producer_id=self.id, request_id=NO_REQUEST_ID)
        )

    def fail(self, reason: str) -> None:
        """End the lane, because its broker has sent what the service cannot read."""
        log.warning(
            "the replication of %s ends: %s", "a topic" if self.lane is None else self.lane.name, reason
        )
        self.close()
        self.failed()

    def close(self) -> None:
        """End the lane; its broker knows that."""
        self.is_closed = True
        if self.lane is not None:
            self.lane.close()
