"""A partition that clients of both protocols have written to, and Kafka's view of it."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.records import read_header
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

BASE_MS = 1_700_000_000_000


class Batch(NamedTuple):
    """One batch of a fetch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_cover: bool  # nothing but a control record
    records: list[tuple[int, bytes | None]]  # offset, value


class Mixed:
    """Appends to one partition as either protocol's clients do, each append durable when it returns."""

    def __init__(self, client: Any, partition: Partition) -> None:
        self.client = client
        self.partition = partition
        self.interop = client.broker.interop

    @classmethod
    async def create(cls, client: Any, name: str = "mixed") -> "Mixed":
        topics = client.broker.topics
        topic = topics.plan(NewTopic(client.broker.kafka_topics.name(name), 1))
        await topics.create([topic])
        return cls(client, topic.partition(0))

    async def kafka(self, *values: bytes, codec: int = 0, at_ms: int = BASE_MS) -> None:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
        for index, value in enumerate(values):
            builder.append(index, at_ms + index, b"k", value, [])
        await self._durable(
            lambda done: self.partition.append(memoryview(bytearray(builder.build())), at_ms, done)
        )

    async def pulsar(
        self, *values: bytes, at_ms: int = BASE_MS, event_ms: Sequence[int] = (), **fields: Any
    ) -> None:
        """A batch of the values, or with one value and `fields` of the metadata a message alone."""
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=at_ms, **fields)
        if fields:
            (payload,) = values
        else:
            metadata.num_messages_in_batch = len(values)
            parts = []
            for index, value in enumerate(values):
                single = SingleMessageMetadata(payload_size=len(value), partition_key="k")
                if event_ms:
                    single.event_time = event_ms[index]
                described = single.SerializeToString()
                parts += [len(described).to_bytes(4, "big"), described, value]
            payload = b"".join(parts)
        await self.publish(frame_entry(metadata, payload))

    async def chunks(self, uuid: str, *values: bytes, ids: Sequence[int] | None = None) -> None:
        """The chunks of one message, or only those of these ids."""
        for chunk_id, value in enumerate(values):
            if ids is None or chunk_id in ids:
                await self.pulsar(
                    value,
                    uuid=uuid,
                    chunk_id=chunk_id,
                    num_chunks_from_msg=len(values),
                    total_chunk_msg_size=sum(map(len, values)),
                )

    async def publish(self, payload: bytes) -> None:
        view = read_entry(memoryview(payload), verify=True)
        await self._durable(lambda done: self.partition.publish(memoryview(payload), view, BASE_MS, done))

    async def _durable(self, append: Any) -> None:
        durable: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        append(durable.set_result)
        assert await durable is None

    def forget_cache(self) -> None:
        """From now on the log is read from the store."""
        self.partition.log._run.clear()

    async def fetch(self, offset: int = 0, **limits: Any) -> Any:
        """The answer's only row."""
        wanted = FetchPartition(
            0, fetch_offset=offset, partition_max_bytes=limits.pop("partition_max_bytes", 1 << 20)
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=limits.pop("max_wait_ms", 0),
            min_bytes=1,
            max_bytes=limits.pop("max_bytes", 50 << 20),
            isolation_level=limits.pop("isolation_level", 0),
            session_epoch=-1,
            topics=[FetchTopic(self.partition.topic.name.local, partitions=[wanted])],
        )
        assert not limits
        response = await self.client.ask("fetch", 12, request)
        return response.responses[0].partitions[0]

    async def batches(self, offset: int = 0, **limits: Any) -> list[Batch]:
        """What a fetch gives, batch by batch, read by kafka-python."""
        row = await self.fetch(offset, **limits)
        assert row.error_code == 0
        return split(row.records)

    async def formed(self) -> list[Formed]:
        """The whole log in Pulsar's form."""
        entries = await self.partition.log.read(0, 1 << 30)
        formed = self.interop.pulsar_form(self.partition, entries)
        return list(await formed if isinstance(formed, Awaitable) else formed)


def split(records: Any) -> list[Batch]:
    raw = memoryview(records if isinstance(records, bytes | bytearray | memoryview) else b"".join(records))
    found = []
    while len(raw):
        header = read_header(raw)
        end = 12 + header.batch_length
        batch = DefaultRecordBatch(bytes(raw[:end]))
        assert batch.validate_crc()
        found.append(
            Batch(
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                header.is_control,
                [] if header.is_control else [(one.offset, one.value) for one in batch],
            )
        )
        raw = raw[end:]
    return found


def records_of(batches: Sequence[Batch]) -> list[tuple[int, bytes | None]]:
    return [record for batch in batches for record in batch.records]
