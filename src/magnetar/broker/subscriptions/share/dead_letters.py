"""Dead letters of share groups (KIP-1191): the server writes records that a group gives up to a topic of its choice.

A group's settings name the topic, and say whether a dead letter has the record's key and value.  The topic's settings
must allow dead letters, so that a group cannot write to any topic.  The server creates a missing topic if its settings
allow that.  The topic must be of the records' own tenant, because the user who configures a group may have no right to
read what its members read.  The number of the record's partition, modulo the topic's partitions, is the partition of
its dead letter.

A record is acknowledged when its dead letter is durable.  If the topic or the settings do not allow a dead letter, the
log says so.  The record is acknowledged all the same, as in Kafka: the group does not stop.  If storage fails, the
caller keeps the record.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, EntryCorrupt, StorageError, WireError, kept
from magnetar.base.rare_line import RareLine
from magnetar.base.tasks import settle
from magnetar.broker.errors import TopicExists
from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.errors import NeedsOpening
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.model import ShareRules
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.record_scan import Budget
from magnetar.wire.kafka.record_writer import single_record
from magnetar.wire.kafka.records import read_header

log: Final = logging.getLogger(__name__)

ENABLED: Final = "errors.deadletterqueue.group.enable"
_MADE_WITH: Final = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
_HEADER: Final = "__dlq.errors."
_AT_ONCE: Final = 100  # dead letters that wait for the disk together; then other tasks have a turn
_NOTHING: Final = (None, None)

Copied = Mapping[int, tuple[bytes | None, bytes | None]]  # key and value by offset


class DeadLetter(NamedTuple):
    """Records that a group gives up, and how often they were delivered."""

    ranges: Sequence[Range]
    delivery_count: int
    cause: str


class Refused(Exception):
    """No dead letter can be written to the topic; the text says why."""


class DeadLetters:
    """See the module's text.  Names of such topics begin with `prefix`; a missing one is created if `makes_topics`."""

    def __init__(
        self,
        clock: Clock,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        interop: Interop,
        opener: Opener,
        prefix: str,
        *,
        makes_topics: bool,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._interop = interop
        self._opener = opener
        self._prefix = prefix
        self._makes_topics = makes_topics
        self._refusals = RareLine(log, clock)

    async def write(
        self, group_id: str, rules: ShareRules, source: Partition, letters: Sequence[DeadLetter]
    ) -> None:
        """Return when the dead letters are durable, or when waiting would not help to write them.

        Raises:
            StorageError: the dead letters could not be stored, or their records could not be read.
        """
        try:
            topic = await self._topic(rules.dead_letter_topic, source.topic.name.tenant)
            if topic is source.topic:
                raise Refused("its own records cannot be its dead letters")
            await self._append(group_id, rules, topic, source, letters)
        except (Refused, BrokerError, WireError) as error:
            if isinstance(error, StorageError) and not isinstance(error, EntryCorrupt):
                raise
            self._refusals.warn(
                f"group {group_id} gives up records of {source.topic.name} without dead letters in"
                f" {rules.dead_letter_topic}: {error}",
                "groups or records were affected",
            )

    async def _topic(self, kafka_name: str, tenant: str) -> Topic:
        name = self._kafka_topics.name(kafka_name)
        if not name.local.startswith(self._prefix):
            raise Refused(f"its name does not begin with {self._prefix}")
        if name.tenant != tenant:
            raise Refused("it is another tenant's")
        if not name.persistent:
            raise Refused("it stores nothing")
        topic = self._kafka_topics.find(kafka_name)
        if topic is None and self._makes_topics:
            try:
                await self._topics.create([self._topics.plan(NewTopic(name, configs=dict(_MADE_WITH)))])
            except TopicExists:
                await self._topics.settled(name)  # another record's task has created it
            topic = self._topics.find(name)
        if topic is None:
            raise Refused("there is no such topic")
        if topic.overrides.get(ENABLED) != "true":
            raise Refused(f"it does not have {ENABLED}=true")
        return topic

    async def _append(
        self,
        group_id: str,
        rules: ShareRules,
        topic: Topic,
        source: Partition,
        letters: Sequence[DeadLetter],
    ) -> None:
        target = topic.partition(source.index % topic.partition_count)
        now_ms = self._clock.now_ms()
        named = self._kafka_topics.shown(source.topic.name)
        durable: list[asyncio.Future[None]] = []
        for letter in letters:
            for start, stop in letter.ranges:
                copied: Copied = await self._copied(source, start, stop) if rules.copies_dead_letters else {}
                for offset in range(start, stop):
                    headers = {
                        "topic": named,
                        "partition": source.index,
                        "offset": offset,
                        "group": group_id,
                        "delivery.count": letter.delivery_count,
                        "message": letter.cause,
                    }
                    batch = single_record(
                        *copied.get(offset, _NOTHING),
                        [(f"{_HEADER}{name}", str(value).encode()) for name, value in headers.items()],
                        now_ms,
                    )
                    durable.append(_appended(target, batch, now_ms))
                    if len(durable) == _AT_ONCE:
                        await _all(durable)  # a batch may have a million records
        await _all(durable)

    async def _copied(self, source: Partition, start: int, stop: int) -> Copied:
        """The keys and values of the records that the log still has."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        at = start
        while at < stop:
            entries = source.log.read_cached(at, 1, stop) or await source.log.read(at, 1)
            if not entries or entries[0].base_offset >= stop:
                break
            formed = self._interop.kafka_form(source, entries[:1])
            for entry in formed or await self._interop.kafka_form_later(source, entries[:1]):
                found |= await self._opener.run(source, partial(_contents, entry.payload))
            at = entries[0].last_offset + 1
        return found


async def _all(durable: list["asyncio.Future[None]"]) -> None:
    """Return when all are durable, and empty the list; raises the first error when all have ended."""
    ended = await asyncio.gather(*durable, return_exceptions=True)
    durable.clear()
    error = next(filter(None, ended), None)
    if error is not None:
        try:
            raise error
        finally:
            del error, ended  # the error's traceback has this frame (`base/errors.kept`)


def _contents(batch: memoryview, budget: Budget) -> Copied:
    records = read_records(batch, read_header(batch), budget.bytes_max)
    return {record.offset: (record.key, record.value) for record in records}


def _appended(target: Partition, batch: memoryview, now_ms: int) -> "asyncio.Future[None]":
    """A future that is done when the batch is durable."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done = partial(settle, future)
    try:
        target.append(batch, now_ms, done)
    except NeedsOpening:
        done(Refused("it is compacted"))
    except Exception as error:  # noqa: BLE001 - the caller gets it, with those of the others
        done(kept(error))
    return future
