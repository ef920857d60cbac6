"""Reads a Pulsar cluster: topics, their schemas, and entries as their producers have sent them.

Each partition has a reader: a consumer whose subscription is not kept, from which the broker sends entries in order.
It acknowledges nothing, so nothing changes in the source.  The broker itself leaves out its markers, and messages of
transactions that were aborted.  A reader that loses its broker looks for another one, and continues behind the last
entry that has come.

Each second, a reader that has had everything asks where the partition ends now.
"""

import re
import secrets
import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from magnetar.base.errors import WireError
from magnetar.base.names import PARTITION_SEPARATOR, InvalidTopicName, parse_partition
from magnetar.client.links import SchemaRow
from magnetar.client.pulsar_line import AskedInVain, LineLost, PulsarLine, Said
from magnetar.links.address import PulsarAddress
from magnetar.links.errors import LinkError, SourceUnavailable
from magnetar.links.port import End, Event, Gone, OutOfRange, Place, SourceTopic
from magnetar.links.pulsar.entries import SourceEntry, schema_version_of, stored_form, view_of
from magnetar.links.pulsar.lines import Lines
from magnetar.links.pulsar.positions import from_wire, number_of, position_of
from magnetar.links.pulsar.reader import PartitionReader
from magnetar.links.pulsar.settings import Settings
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    Schema,
    ServerError,
)

AGAIN_S: Final = 1.0
ASK_EVERY_S: Final = 1.0
READ_BYTES: Final = 4 << 20  # of one `read`, and what one more of the sockets brings
_VERSION_BYTES: Final = 8
_FIRST: Final = 0  # the number before all places
# Topics of the cluster itself: of its policies and its transactions.
_OWN: Final = "__"
_OWN_TOO: Final = "__transaction_pending_ack"
_PARTITION: Final = re.compile(rf"{PARTITION_SEPARATOR}\d+$", re.ASCII)


class PulsarSource:
    """See the module's text, and `port.py`.  Topics have full names; partitions those that Pulsar's clients use."""

    def __init__(self, address: PulsarAddress, settings: Settings) -> None:
        self.address = address
        self.trouble = ""
        self._lines = Lines(address.servers, address.with_tls, settings.login)
        self._name = f"magnetar-clone-{secrets.token_hex(6)}"
        self._readers: dict[Place, PartitionReader] = {}
        self._by_number: dict[int, PartitionReader] = {}
        self._partitioned: dict[str, bool] = {}
        self._since: dict[Place, int] = {}
        self._numbers = 0

    def close(self) -> None:
        self._lines.close()

    # --- topics ------------------------------------------------------------------------------------------------------

    def topics(self, is_wanted: Callable[[str], bool]) -> list[SourceTopic]:
        """The persistent topics of the address's namespace whose local names are wanted, by name."""
        namespace = f"{self.address.tenant}/{self.address.namespace}"
        asked = CommandGetTopicsOfNamespace(
            request_id=0, namespace=namespace, mode=CommandGetTopicsOfNamespace.PERSISTENT
        )
        command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)
        try:
            listed: Any = self._lines.ask(command, BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        except AskedInVain as error:
            raise self._refused(f"the topics of {namespace}", error) from None
        self.trouble = ""
        return [self._topic(name) for name in sorted(_wanted(listed.topics, is_wanted))]

    def _topic(self, name: str) -> SourceTopic:
        asked = CommandPartitionedTopicMetadata(
            topic=name, request_id=0, metadata_auto_creation_enabled=False
        )
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
        try:
            found: Any = self._lines.ask(command, BaseCommand.PARTITIONED_METADATA_RESPONSE)
            if found.response == CommandPartitionedTopicMetadataResponse.Failed:
                raise AskedInVain(found.message, found.error)
        except AskedInVain as error:
            raise self._refused(name, error) from None
        self._partitioned[name] = found.partitions > 0
        origin = f"{self.address.origin}/{name.rpartition('/')[2]}"
        return SourceTopic(name, found.partitions or 1, origin, None, found.partitions > 0)

    def name_of(self, place: Place) -> str:
        """The full name of a partition, as Pulsar's clients use it: that of the topic, if it is not partitioned."""
        topic, partition = place
        return f"{topic}{PARTITION_SEPARATOR}{partition}" if self._partitioned.get(topic, True) else topic

    def schemas(self, topic: str, first: int) -> list[SchemaRow | None]:
        """The versions of a topic's schema from `first` on; None for those that were deleted."""
        latest = self._schema(topic, None)
        if latest is None or len(latest.schema_version) != _VERSION_BYTES:
            return []
        count = int.from_bytes(latest.schema_version, "big") + 1
        found: list[SchemaRow | None] = []
        for version in range(first, count):
            answer = self._schema(topic, version) if version < count - 1 else latest
            found.append(None if answer is None else _row(answer.schema))
        return found

    def _schema(self, topic: str, version: int | None) -> Any:
        """The broker's answer; None if there is no such version."""
        asked = CommandGetSchema(request_id=0, topic=topic)
        if version is not None:
            asked.schema_version = version.to_bytes(_VERSION_BYTES, "big")
        command = BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=asked)
        try:
            found: Any = self._lines.ask(command, BaseCommand.GET_SCHEMA_RESPONSE)
        except AskedInVain as error:
            raise self._refused(f"the schema of {topic}", error) from None
        if not found.HasField("error_code"):
            return found
        if found.error_code == ServerError.TopicNotFound:
            return None
        raise self._refused(f"the schema of {topic}", AskedInVain(found.error_message, found.error_code))

    def _refused(self, what: str, error: AskedInVain) -> SourceUnavailable:
        return SourceUnavailable(f"{self.address.origin} does not show {what}: {error}")

    # --- places ------------------------------------------------------------------------------------------------------

    def begins_at(self, place: Place, since_ms: int | None) -> int:
        if since_ms is not None:
            self._since[place] = since_ms
        return _FIRST

    def goes_on_at(self, place: Place, end: int) -> int:
        """Raises LinkError if the reader there knows that the partition ends before."""
        reader = self._readers.get(place)
        if reader is not None and reader.last is not None and reader.has_lost:
            raise LinkError(
                f"{place[0]} partition {place[1]} ends at {position_of(reader.last)} in the source, and its copy at"
                f" {position_of(end - 1)}: the source has lost messages, so the copy cannot go on"
            )
        return end

    def lag(self, place: Place, end: int) -> int:
        """In entries.  The source does not count entries over several ledgers: then it is at least so many."""
        reader = self._readers.get(place)
        if reader is None or reader.last is None or reader.last < end:
            return 0
        last = position_of(reader.last)
        copied = position_of(end - 1)
        return last.entry_id - (copied.entry_id if copied.ledger_id == last.ledger_id else -1)

    def assign(self, offsets: Mapping[Place, int]) -> None:
        for place, reader in list(self._readers.items()):
            if offsets.get(place) != reader.next:
                self._close(reader)
        for place, offset in offsets.items():
            if place not in self._readers:
                since_ms = self._since.get(place) if offset == _FIRST else None
                self._numbers += 1
                reader = PartitionReader(place, self.name_of(place), self._numbers, offset, since_ms)
                self._readers[place] = self._by_number[reader.number] = reader

    def _close(self, reader: PartitionReader) -> None:
        del self._readers[reader.place], self._by_number[reader.number]
        if reader.line is not None:
            closing = CommandCloseConsumer(consumer_id=reader.number, request_id=reader.line.request_id())
            command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=closing)
            try:
                reader.line.send(command)
            except LineLost as error:
                self._lost(reader.line, str(error))

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, wait_s: float) -> Iterator[SourceEntry | Event]:
        """What has come, after at most `wait_s`.

        Raises:
            SourceUnavailable: the cluster does not let this client read.
        """
        yield from self._open_readers()
        size = 0
        while size < READ_BYTES:
            came = 0
            for line in self._ready(0.0 if size else wait_s):
                for said in self._said(line):
                    for one in self._taken(line, said):
                        came += len(one.data) if isinstance(one, SourceEntry) else 0
                        yield one
            size += came
            if not came:
                break
        yield from self._ends()

    def _open_readers(self) -> Iterator[Gone]:
        for reader in list(self._readers.values()):
            if reader.line is not None or time.monotonic() < reader.again_at_s:
                continue
            line: PulsarLine | None = None
            try:
                line = self._lines.to_broker_of(reader.topic)
                request_id = line.request_id()
                subscribing = reader.subscribe(request_id, f"{self._name}-{reader.number}")
                line.ask(subscribing, BaseCommand.SUCCESS, request_id)
                reader.began(line)
            except AskedInVain as error:
                if error.is_about_login:
                    raise self._refused(reader.topic, error) from None
                self._wait_for(reader, str(error))
                if error.code == ServerError.TopicNotFound:
                    yield Gone(*reader.place)
            except (LineLost, WireError) as error:
                if line is not None:
                    self._lost(line, str(error))
                self._wait_for(reader, str(error))
            except SourceUnavailable as error:
                self._wait_for(reader, str(error))
                return  # no server answers, so the others need not ask

    def _wait_for(self, reader: PartitionReader, trouble: str) -> None:
        self.trouble = trouble
        reader.lost(time.monotonic() + AGAIN_S)

    def _sent_to(self, reader: PartitionReader, send: Callable[[], None]) -> None:
        """Send something to a reader's broker, which may be gone."""
        line = reader.line
        try:
            send()
        except LineLost as error:
            assert line is not None, reader.topic
            self._lost(line, str(error))

    def _lost(self, line: PulsarLine, trouble: str) -> None:
        self._lines.lost(line)
        for reader in self._readers.values():
            if reader.line is line:
                self._wait_for(reader, trouble)

    def _ready(self, wait_s: float) -> list[PulsarLine]:
        """The lines that have something, after at most `wait_s`."""
        lines = self._lines.serving
        if ready := [line for line in lines if line.has_more]:
            return ready
        if not lines:
            time.sleep(wait_s)
            return []
        with selectors.DefaultSelector() as selector:
            for line in lines:
                selector.register(line.socket, selectors.EVENT_READ, line)
            return [key.data for key, _ in selector.select(wait_s)]

    def _said(self, line: PulsarLine) -> Iterator[Said]:
        """What one read of a line brings."""
        try:
            said = line.next()
            while said is not None:
                yield said
                said = line.next() if line.has_unasked else None
        except (LineLost, WireError) as error:
            self._lost(line, str(error))

    def _taken(self, line: PulsarLine, said: Said) -> Iterator[SourceEntry | Event]:
        match said.kind:
            case BaseCommand.MESSAGE:
                reader = self._by_number.get(said.body.consumer_id)
                if reader is not None and reader.line is line:
                    yield from self._entry(reader, said)
            case BaseCommand.CLOSE_CONSUMER:
                reader = self._by_number.get(said.body.consumer_id)
                if reader is not None and reader.line is line:
                    reader.lost(time.monotonic())
            case BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
                reader = self._asking(line, said.body.request_id)
                if reader is not None:
                    found = said.body.last_message_id
                    reader.answered(from_wire(found.ledgerId, found.entryId))
                    self.trouble = ""
                    if reader.has_lost:
                        yield OutOfRange(*reader.place)
            case BaseCommand.ERROR:
                reader = self._asking(line, said.body.request_id)
                if reader is not None:
                    reader.asked = None
                    self.trouble = said.body.message

    def _asking(self, line: PulsarLine, request_id: int) -> PartitionReader | None:
        """The reader that has asked this."""
        for reader in self._readers.values():
            if reader.line is line and reader.asked == request_id:
                return reader
        return None

    def _entry(self, reader: PartitionReader, said: Said) -> Iterator[SourceEntry]:
        found = said.body.message_id
        position = from_wire(found.ledgerId, found.entryId)
        number = number_of(position)
        topic, partition = reader.place
        try:
            view = view_of(said.entry)
        except WireError as error:
            raise LinkError(f"{reader.topic} has an entry at {position} that is none: {error}") from None
        reader.took(view.num_messages, len(said.entry))
        self._sent_to(reader, reader.permit)
        if number < reader.next:  # it came before
            return
        reader.next = number + 1
        self.trouble = ""
        if view.is_marker:
            return
        if reader.since_ms is not None:
            if view.publish_time_ms < reader.since_ms:
                return
            reader.since_ms = None
        yield SourceEntry(
            topic, partition, position, stored_form(view), view.num_messages, schema_version_of(view)
        )

    def _ends(self) -> Iterator[End]:
        """The readers that have had all up to where their partitions ended when they asked; the others ask again."""
        now_s = time.monotonic()
        for reader in list(self._readers.values()):
            if reader.last is not None and not reader.is_told and reader.next > reader.last:
                reader.is_told = True
                yield End(*reader.place, reader.next)
            if reader.line is not None and reader.asked is None and now_s >= reader.ask_at_s:
                reader.ask_at_s = now_s + ASK_EVERY_S
                self._sent_to(reader, reader.ask_for_end)


def _wanted(listed: Iterable[str], is_wanted: Callable[[str], bool]) -> set[str]:
    """The full names of wanted topics, from those of topics and partitions.

    Raises:
        LinkError: one of them cannot be here.
    """
    found = set()
    for name in listed:
        local = _PARTITION.sub("", name.rpartition("/")[2])
        if local.startswith(_OWN) or local.endswith(_OWN_TOO) or not is_wanted(local):
            continue
        try:
            found.add(parse_partition(name)[0].full)
        except InvalidTopicName as error:
            raise LinkError(f"{name[:300]} cannot be copied: {error}") from None
    return found


def _row(schema: Schema) -> SchemaRow:
    properties = {one.key: one.value for one in schema.properties}
    return SchemaRow(schema.type, schema.schema_data, properties, schema.name)
