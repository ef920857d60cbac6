"""Reads an Apache Kafka cluster: topics, their settings and records, and the positions of groups.

A consumer of librdkafka reads committed records at offsets that its caller assigns; it joins no group and commits
nothing.  It reports the end of a partition when the broker has no more committed records before it.  An offset before
that end for which no record came has none: a transaction's marker, an aborted record, or one that compaction removed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from magnetar.base.errors import ConfigError
from magnetar.client.links import GroupPosition
from magnetar.links.errors import LinkError, SourceUnavailable
from magnetar.links.kafka.record import NO_TIME, Record
from magnetar.links.port import End, Event, Gone, OutOfRange, Place, SourceTopic

ANSWER_S: Final = 10.0
RECORDS_AT_ONCE: Final = 5000
# The client would print errors in its own words; it raises them as well.
_SILENT: Final = logging.getLogger(f"{__name__}.client")
_SILENT.setLevel(logging.CRITICAL + 1)
_GROUP: Final = "magnetar-clone"  # librdkafka requires a name; the consumer joins no group
_NO_OFFSET: Final = -1
_GONE: Final = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
)
_OUT_OF_RANGE: Final = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE))
_FIXED: Final[Mapping[str, str | bool]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "group.id": _GROUP,
}
_DEFAULTS: Final[Mapping[str, str]] = {
    "reconnect.backoff.max.ms": "1000",  # librdkafka's own ten seconds are longer than most restarts
    "queued.max.messages.kbytes": str(64 << 10),
}


class KafkaSource:
    """See the module's text, and `port.py`.  `servers` is `host:port,...`; `settings` are for both of its clients.

    All methods raise SourceUnavailable if the cluster does not answer within `ANSWER_S`, or refuses.
    """

    def __init__(self, servers: str, settings: Mapping[str, str]) -> None:
        """Raises ConfigError if the client does not take the settings."""
        common: dict[str, Any] = {**_DEFAULTS, **settings, "bootstrap.servers": servers}
        common |= {"error_cb": self._said, "logger": _SILENT}
        self.servers = servers
        self.trouble = ""  # what the client last said of its connections; the next answer clears it
        try:
            self._consumer = Consumer({**common, **_FIXED})
            self._admin = AdminClient({name: one for name, one in common.items() if name not in _CONSUMING})
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the source cannot be read with these settings: {_text(error)}") from error

    def close(self) -> None:
        self._consumer.close()

    def _said(self, error: KafkaError) -> None:
        self.trouble = error.str()

    # --- topics ------------------------------------------------------------------------------------------------------

    def topics(self, is_wanted: Callable[[str], bool]) -> list[SourceTopic]:
        """The topics whose names are wanted, by name, except those of the cluster itself."""
        with self._asking():
            # By the consumer, which learns of new partitions by this, and otherwise only every five minutes.
            metadata = self._consumer.list_topics(timeout=ANSWER_S)
            names = sorted(
                name for name, one in metadata.topics.items() if one.error is None and is_wanted(name)
            )
            if not names:
                return []
            described = self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_S)
            found = {name: future.result(ANSWER_S) for name, future in described.items()}
            names = [name for name in names if not found[name].is_internal]
            configs = self._configs(names)
        self.trouble = ""
        return [
            SourceTopic(
                name,
                len(found[name].partitions),
                f"{metadata.cluster_id or ''}/{found[name].topic_id}",
                configs[name],
            )
            for name in names
        ]

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._admin.describe_configs(resources, request_timeout=ANSWER_S)
        own = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
        return {
            resource.name: {
                name: entry.value
                for name, entry in future.result(ANSWER_S).items()
                if entry.source in own and entry.value is not None
            }
            for resource, future in answers.items()
        }

    # --- offsets -----------------------------------------------------------------------------------------------------

    def bounds(self, place: Place) -> tuple[int, int]:
        """The first offset of a partition, and the one behind its last."""
        with self._asking():
            found: Any = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=ANSWER_S)
            if found is None:  # the client says in this way that the time is over
                raise TimeoutError
        first, end = found
        return first, end

    def begins_at(self, place: Place, since_ms: int | None) -> int:
        first, end = self.bounds(place)
        if since_ms is None:
            return first
        with self._asking():
            (found,) = self._consumer.offsets_for_times([TopicPartition(*place, since_ms)], timeout=ANSWER_S)
            if found.error is not None:
                raise KafkaException(found.error)
        return max(found.offset, first) if found.offset >= 0 else end

    def goes_on_at(self, place: Place, end: int) -> int:
        first, last = self.bounds(place)
        if end > last:
            raise LinkError(
                f"{place[0]} partition {place[1]} ends at offset {last} in the source, and its copy at {end}: the"
                " source has lost records, so the copy cannot go on"
            )
        return max(end, first)

    def lag(self, place: Place, end: int) -> int:
        try:
            found: Any = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        except KafkaException:
            return 0
        return 0 if found is None else max(int(found[1]) - end, 0)

    # --- records -----------------------------------------------------------------------------------------------------

    def assign(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        with self._asking():
            self._consumer.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])

    def read(self, wait_s: float) -> Iterator[Record | Event]:
        """What has come, after at most `wait_s`.

        Raises:
            SourceUnavailable: the cluster refuses to let this client read.
        """
        with self._asking():
            messages = self._consumer.consume(RECORDS_AT_ONCE, wait_s)
        for message in messages:
            error = message.error()
            if error is None:
                self.trouble = ""
                yield _record(message)
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            code = error.code()
            if topic is None or partition is None:
                self.trouble = error.str()
            elif code == KafkaError._PARTITION_EOF and offset is not None:
                self.trouble = ""
                yield End(topic, partition, offset)
            elif code in _OUT_OF_RANGE:
                yield OutOfRange(topic, partition)
            elif code in _GONE:
                yield Gone(topic, partition)
            elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise SourceUnavailable(f"the source does not let this client read {topic}: {error.str()}")
            else:
                self.trouble = error.str()

    # --- groups ------------------------------------------------------------------------------------------------------

    def group_positions(self) -> dict[str, list[GroupPosition]]:
        """All committed offsets that this client may see, by topic."""
        found: dict[str, list[GroupPosition]] = {}
        with self._asking():
            listed = self._admin.list_consumer_groups(request_timeout=ANSWER_S).result(ANSWER_S)
            for group in listed.valid or ():
                asked = ConsumerGroupTopicPartitions(group.group_id)
                answers = self._admin.list_consumer_group_offsets([asked], request_timeout=ANSWER_S)
                try:
                    answer = answers[group.group_id].result(ANSWER_S)
                except KafkaException as error:
                    self.trouble = f"group {group.group_id}: {_text(error)}"
                    continue
                for one in answer.topic_partitions or ():
                    if one.offset > _NO_OFFSET and one.error is None:
                        position = GroupPosition(
                            group.group_id, one.partition, one.offset, one.metadata or ""
                        )
                        found.setdefault(one.topic, []).append(position)
        return found

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (KafkaException, TimeoutError) as error:
            said = f" ({self.trouble})" if self.trouble else ""
            raise SourceUnavailable(
                f"kafka://{self.servers} does not answer: {_text(error)}{said}"
            ) from error


_CONSUMING: Final = frozenset(("queued.max.messages.kbytes",))  # a setting that only a consumer has


def _record(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise LinkError("the source's client gives a record without its place")
    kind, timestamp_ms = message.timestamp()
    return Record(
        topic,
        partition,
        offset,
        NO_TIME if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
        _headers(message),
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )


def _headers(message: Message) -> Sequence[tuple[str, bytes | None]]:
    headers: Any = message.headers()
    if headers is None:
        return ()
    return [(name, content.encode() if isinstance(content, str) else content) for name, content in headers]


def _text(error: Exception) -> str:
    found = error.args[0] if error.args else error
    return found.str() if isinstance(found, KafkaError) else str(found) or type(error).__name__
