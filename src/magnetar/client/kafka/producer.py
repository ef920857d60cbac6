"""Sends record batches to partitions: several requests in flight, acknowledged in order, repeated if that is safe.

A batch is bytes: the caller has set the producer's id, epoch and sequence number in it, in the order of `send`.  One
request has at most one batch of a partition, and at most five requests are in flight to a broker, so that a broker
recognises every repeated batch (KIP-98).

If a connection breaks or a leader moves, the producer waits for everything in flight, and sends unacknowledged
batches again in their order.  Only an idempotent producer (acks -1) is exact then.  As with any Kafka client, a batch
may be stored twice with acks 1, and with acks 0 the result is not known.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.client.kafka.cluster import Cluster, Patience, error_of, refusal
from magnetar.client.kafka.connection import PRODUCE, Connection
from magnetar.client.kafka.errors import ConnectionLost, NotInTime, Refused
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

IN_FLIGHT_MAX: Final = 5  # as many batches as a broker remembers
REQUEST_BYTES: Final = 1 << 20
ACKS_ALL: Final = -1
TopicPartition = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Batch:
    key: TopicPartition
    data: memoryview
    first_sent_s: float = 0.0


@dataclass(slots=True)
class _Channel:
    """One broker: the request that is being built for it, and its unanswered requests."""

    batches: dict[TopicPartition, _Batch] = field(default_factory=dict)
    size: int = 0
    in_flight: deque[list[_Batch]] = field(default_factory=deque)


class BatchProducer:
    """See the module's text.

    acks               -1, 0 or 1
    transactional_id   of the batches, if they are part of a transaction
    request_bytes      a request is sent when it has this many bytes
    delivery_timeout_s how long a batch may take from its first sending
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        transactional_id: str | None = None,
        request_bytes: int = REQUEST_BYTES,
        request_timeout_ms: int = 30_000,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._transactional_id = transactional_id
        self._request_bytes = request_bytes
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self._channels: dict[int, _Channel] = {}
        self._unacked: dict[TopicPartition, deque[_Batch]] = {}
        self._trouble: dict[
            TopicPartition, object
        ] = {}  # partitions whose batches must be sent again, and why

    def send(self, topic: str, partition: int, data: memoryview) -> None:
        """Queue one batch; waits while too much is in flight.

        Raises:
            UnknownTopic, NotInTime, Fenced, Refused: this batch, or one before it, cannot be delivered.
        """
        batch = _Batch((topic, partition), data)
        self._unacked.setdefault(batch.key, deque()).append(batch)
        self._enqueue(batch)
        if self._trouble:
            self._recover()

    def flush(self) -> None:
        """Return when every batch is acknowledged.  Raises as `send`."""
        self._drain()
        while self._trouble:
            self._recover()

    def close(self) -> None:
        """Close the connections, and forget unacknowledged batches, so that no later caller gets their answers."""
        for node_id, channel in self._channels.items():
            if channel.in_flight:
                self._cluster.drop(node_id)
        self._channels.clear()
        self._unacked.clear()
        self._trouble.clear()

    # --- the ordinary way --------------------------------------------------------------------------------------------

    def _enqueue(self, batch: _Batch) -> None:
        if batch.key in self._trouble:
            return  # after those that are sent again
        node_id = self._cluster.leader(*batch.key)
        channel = self._channels.setdefault(node_id, _Channel())
        if batch.key in channel.batches:
            self._dispatch(node_id, channel)
            if batch.key in self._trouble:
                return
        channel.batches[batch.key] = batch
        channel.size += len(batch.data)
        if channel.size >= self._request_bytes:
            self._dispatch(node_id, channel)

    def _dispatch(self, node_id: int, channel: _Channel) -> None:
        """Send the request that was built, after waiting for answers if too many requests are in flight."""
        while len(channel.in_flight) >= IN_FLIGHT_MAX:
            self._receive(node_id, channel)
        batches = [batch for batch in channel.batches.values() if batch.key not in self._trouble]
        channel.batches, channel.size = {}, 0
        if not batches:
            return
        now_s = time.monotonic()
        for batch in batches:
            batch.first_sent_s = batch.first_sent_s or now_s
        try:
            connection = self._cluster.node(node_id, for_data=True)
            if channel.in_flight and not connection.in_flight:
                raise ConnectionLost(
                    "the connection was lost"
                )  # a new connection has lost the requests in flight
            connection.send(PRODUCE, self._request(batches), is_answered=self._acks != 0)
        except ConnectionLost as lost:
            self._lost(channel, lost, batches)
            return
        if self._acks == 0:
            self._acknowledged(batches)
        else:
            channel.in_flight.append(batches)

    def _request(self, batches: Iterable[_Batch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic, partition = batch.key
            rows = topics.setdefault(topic, TopicProduceData(topic)).partition_data
            rows.append(PartitionProduceData(partition, batch.data))
        return ProduceRequest(
            self._transactional_id, self._acks, self._request_timeout_ms, list(topics.values())
        )

    def _receive(self, node_id: int, channel: _Channel) -> None:
        """Receive one answer from a broker."""
        try:
            connection: Connection = self._cluster.node(node_id, for_data=True)
            if not connection.in_flight:
                raise ConnectionLost("the connection was lost")
            answer = connection.receive()
        except ConnectionLost as lost:
            self._lost(channel, lost, [])
            return
        sent = {batch.key: batch for batch in channel.in_flight.popleft()}
        for topic in answer.responses:
            for row in topic.partition_responses:
                batch = sent.pop((topic.name, row.index), None)
                if batch is not None:
                    self._answered(batch, row)
        for batch in sent.values():
            self._trouble.setdefault(batch.key, "the broker did not answer for it")

    def _answered(self, batch: _Batch, row: Any) -> None:
        code = error_of(row.error_code)
        topic, partition = batch.key
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged([batch])
        elif batch.key in self._trouble:
            pass  # a consequence of the first error
        elif code.retriable:
            self._trouble[batch.key] = code.name
        elif code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            raise Refused(
                f"a batch of {len(batch.data)} bytes for partition {partition} of topic '{topic}'", code,
                "make kafka.batch.size smaller than the topic's max.message.bytes",
            )  # fmt: skip
        else:
            what = f"writing to partition {partition} of topic '{topic}'"
            raise refusal(what, code, getattr(row, "error_message", None))

    def _acknowledged(self, batches: Iterable[_Batch]) -> None:
        for batch in batches:
            unacked = self._unacked[batch.key]
            if unacked[0] is batch:
                unacked.popleft()
            else:
                unacked.remove(batch)

    def _lost(self, channel: _Channel, why: object, batches: Iterable[_Batch]) -> None:
        for request in (*channel.in_flight, batches):
            for batch in request:
                self._trouble.setdefault(batch.key, why)
        channel.in_flight.clear()

    # --- when something went wrong -----------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Send all built requests, and wait for every answer."""
        for node_id, channel in self._channels.items():
            self._dispatch(node_id, channel)
        for node_id, channel in self._channels.items():
            while channel.in_flight:
                self._receive(node_id, channel)

    def _recover(self) -> None:
        """Deliver everything that was sent so far, with repeated attempts until the time is over."""
        patience = Patience(self._delivery_timeout_s)
        while True:
            self._drain()
            if not self._trouble:
                return
            (topic, partition), why = next(iter(self._trouble.items()))
            what = f"writing to partition {partition} of topic '{topic}'"
            oldest_s = min(self._unacked[key][0].first_sent_s for key in self._trouble)
            if time.monotonic() - oldest_s > self._delivery_timeout_s:
                raise NotInTime(f"{what} was not possible in {self._delivery_timeout_s:g} s: {why}")
            patience.wait(what, why)
            again = list(self._trouble)
            self._cluster.refresh({key[0] for key in again})
            self._trouble.clear()
            for key in again:
                for batch in list(self._unacked[key]):
                    self._enqueue(batch)
                    if key in self._trouble:
                        break
