"""Transactions of version 2 (KIP-890) from bytes to bytes: what clients send that have read `transaction.version`.

The codes are those of a real broker of Kafka 4.3.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.names import TopicName
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.transactions import coordinator, endings
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magnetar.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from magnetar.wire.kafka.records import TRANSACTIONAL
from tests.unit.protocols.kafka.conftest import record_batch
from tests.unit.protocols.kafka.test_transaction_handlers import Asker as OldAsker

Run = Callable[..., None]
E = ErrorCode


class Asker(OldAsker):
    """A producer that adds nothing before it writes."""

    def batch(self, sequence: int) -> memoryview:
        batch = record_batch(1, self.client.broker.clock.now_ms(), self.producer_id)
        struct.pack_into(">h", batch, 21, TRANSACTIONAL)
        struct.pack_into(">hi", batch, 51, self.epoch, sequence)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
        return memoryview(batch)

    async def write(
        self, *partitions: int, sequence: int = 0, version: int = 12, name: str = "x"
    ) -> list[int]:
        """A record into each of the partitions."""
        topic = self.client.broker.topics.get(TopicName.parse("t"))
        data = [PartitionProduceData(index, self.batch(sequence)) for index in partitions]
        by_id = version >= 13
        rows = [TopicProduceData("" if by_id else "t", topic.topic_id if by_id else bytes(16), data)]
        answer = await self.client.ask("produce", version, ProduceRequest(name, -1, 1000, rows))
        return [one.error_code for one in answer.responses[0].partition_responses]

    async def finish(self, commit: bool) -> int:
        """With the epoch that comes of it."""
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, commit)
        answer = await self.client.ask("end_txn", 5, request)
        if answer.error_code:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        else:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def ask_as_broker(
        self, partition: int, *, verify: bool, version: int = 5, name: str = "x", topic: str = "t"
    ) -> list[int]:
        rows = [AddPartitionsToTxnTopic(topic, [partition])]
        one = AddPartitionsToTxnTransaction(name, self.producer_id, self.epoch, verify, rows)
        two = AddPartitionsToTxnTransaction("nobody", 7, 0, verify, rows)
        request = AddPartitionsToTxnRequest([one, two])
        answer = await self.client.ask("add_partitions_to_txn", version, request)
        assert answer.error_code == E.NONE
        assert [row.transactional_id for row in answer.results_by_transaction] == [name, "nobody"]
        return [
            result.partition_error_code
            for row in answer.results_by_transaction
            for topic_result in row.topic_results
            for result in topic_result.results_by_partition
        ]

    def end_offset(self, index: int) -> int:
        topic = self.client.broker.topics.get(TopicName.parse("t"))
        return int(topic.partition(index).log.next_offset)


def with_asker(with_broker: Run, scenario: Any) -> None:
    async def main(client: Any) -> None:
        asker = Asker(client)
        await asker.topic()
        await asker.init()
        await scenario(asker)

    with_broker(main)


def test_the_feature_is_finalized(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        for version in (3, 4):
            answer = await asker.client.ask("api_versions", version, ApiVersionsRequest("test", "1"))
            (supported,) = answer.supported_features
            assert (supported.name, supported.min_version, supported.max_version) == (
                "transaction.version",
                0,
                2,
            )
            (finalized,) = answer.finalized_features
            assert (finalized.name, finalized.min_version_level, finalized.max_version_level) == (
                "transaction.version",
                2,
                2,
            )
            assert answer.finalized_features_epoch == 0

    with_asker(with_broker, scenario)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [12, 13])
def test_a_transaction_that_announces_nothing(with_broker: Run, version: int, commit: bool) -> None:
    async def scenario(asker: Asker) -> None:
        first = asker.producer_id, asker.epoch
        topic = asker.client.broker.topics.get(TopicName.parse("t"))
        for index in range(4):
            await asker.client.append(topic.partition(index), 1)
        before = asker.client.metadata.commit_count
        assert await asker.write(0, 1, 3, version=version) == [0, 0, 0]
        assert asker.client.metadata.commit_count == before + 1, "all partitions join in one step"
        assert await asker.write(0, 1, sequence=1, version=version) == [0, 0]
        assert asker.client.metadata.commit_count == before + 1
        assert await asker.commit_offset(7, 5) == 0
        assert await asker.finish(commit) == 0
        assert (asker.producer_id, asker.epoch) == (first[0], first[1] + 1)
        assert await asker.fetched(7, stable=True) == [(7 if commit else -1, 0)]
        assert [asker.end_offset(index) for index in range(4)] == [4, 4, 1, 3]
        assert await asker.write(2, version=version) == [0]
        assert await asker.finish(commit) == 0
        assert asker.epoch == first[1] + 2

    with_asker(with_broker, scenario)


def test_the_answer_to_an_end_may_be_asked_for_again(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        late = Asker(asker.client)
        late.producer_id, late.epoch = asker.producer_id, asker.epoch
        await asker.write(0)
        assert await asker.finish(True) == 0
        assert await late.end(True, 4) == E.PRODUCER_FENCED
        assert await late.finish(False) == E.INVALID_TXN_STATE
        assert await late.finish(True) == 0
        assert (late.producer_id, late.epoch) == (asker.producer_id, asker.epoch)
        assert await asker.finish(True) == E.INVALID_TXN_STATE
        assert await asker.finish(False) == 0, "what it sent may be under way"
        assert asker.epoch == late.epoch + 1

    with_asker(with_broker, scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, E.INVALID_TXN_STATE),
        (10, E.INVALID_TXN_STATE),
        (11, E.TRANSACTION_ABORTABLE),
        (12, E.NONE),
        (13, E.NONE),
    ],
)
def test_only_new_requests_add_their_partitions(with_broker: Run, version: int, code: int) -> None:
    async def scenario(asker: Asker) -> None:
        assert await asker.write(2, version=version) == [code]
        assert asker.end_offset(2) == (1 if code == E.NONE else 0)
        record = asker.client.broker.transactions.describe("x")
        assert len(record.partitions) == (1 if code == E.NONE else 0)

    with_asker(with_broker, scenario)


@pytest.mark.parametrize(
    ("version", "code"), [(3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE), (5, E.NONE)]
)
def test_only_new_requests_add_their_group(with_broker: Run, version: int, code: int) -> None:
    async def scenario(asker: Asker) -> None:
        assert await asker.commit_offset(1, version) == code

    with_asker(with_broker, scenario)


@pytest.mark.parametrize("version", range(9, 14))
def test_a_batch_of_another_producer_or_epoch_joins_nothing(with_broker: Run, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.init()
        record = asker.client.broker.transactions.describe("x")
        asker.producer_id += 1
        assert await asker.write(0, version=version) == [E.INVALID_PRODUCER_ID_MAPPING]
        asker.producer_id -= 1
        assert await asker.write(0, version=version, name="y") == [E.INVALID_PRODUCER_ID_MAPPING]
        for epoch in (record.epoch - 1, record.epoch + 1):
            asker.epoch = epoch
            assert await asker.write(0, version=version) == [E.INVALID_PRODUCER_EPOCH]
        assert asker.end_offset(0) == 0
        assert asker.client.broker.transactions.describe("x") == record

    with_asker(with_broker, scenario)


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_that_comes_after_the_end_opens_no_transaction(
    with_broker: Run, version: int, commit: bool
) -> None:
    """It would hang, and hold back readers of committed records, as nobody ends it."""

    async def scenario(asker: Asker) -> None:
        late = Asker(asker.client)
        late.producer_id, late.epoch = asker.producer_id, asker.epoch
        await asker.write(0)
        await asker.finish(commit)
        for partition in (0, 1):  # one that the transaction had, and one that it had not
            before = asker.end_offset(partition)
            code = (await late.write(partition, sequence=1, version=version))[0]
            # The old partition knows the epoch; where nothing was written, the batch may also be out of order.
            assert code in (E.INVALID_PRODUCER_EPOCH, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
            assert asker.end_offset(partition) == before
        assert (await late.write(1, version=version)) == [E.INVALID_PRODUCER_EPOCH]
        assert await late.commit_offset(3, 5) == E.INVALID_PRODUCER_EPOCH
        record = asker.client.broker.transactions.describe("x")
        assert record.partitions == frozenset()
        assert record.started_ms == -1

    with_asker(with_broker, scenario)


def test_a_transaction_does_not_begin_in_the_middle(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        for _ in range(2):
            for partitions in ((1,), (1, 2)):
                wanted = [E.OUT_OF_ORDER_SEQUENCE_NUMBER] * len(partitions)
                assert await asker.write(*partitions, sequence=1) == wanted
            assert asker.client.broker.transactions.describe("x").partitions == frozenset()
            assert await asker.write(1) == [0]
            assert await asker.write(1, sequence=1) == [0]
            assert await asker.finish(True) == 0

    with_asker(with_broker, scenario)


def test_a_partition_that_is_not_there_keeps_no_other_out(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        assert await asker.write(0, 9, 1) == [0, E.UNKNOWN_TOPIC_OR_PARTITION, 0]
        record = asker.client.broker.transactions.describe("x")
        assert {index for _, index in record.partitions} == {0, 1}

    with_asker(with_broker, scenario)


def test_while_the_end_before_is_under_way_clients_try_again(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = asyncio.Event()

    async def wait(*_: object) -> None:
        await written.wait()

    async def scenario(asker: Asker) -> None:
        await asker.write(0)
        monkeypatch.setattr(coordinator, "write_markers", wait)
        monkeypatch.setattr(endings, "ENDING_WAIT_S", 0.0)
        assert await asker.finish(True) == 0
        assert await asker.write(1) == [E.CONCURRENT_TRANSACTIONS]
        assert await asker.write(1, version=11) == [E.NOT_ENOUGH_REPLICAS]
        assert await asker.finish(False) == E.CONCURRENT_TRANSACTIONS
        assert await asker.commit_offset(1, 5) == E.CONCURRENT_TRANSACTIONS
        written.set()
        ending = asker.client.broker.transactions._registry.slot("x").ending
        assert ending is not None
        await ending
        assert await asker.write(1, sequence=1) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER], (
            "the first one comes first"
        )
        assert await asker.write(1) == [0]

    with_asker(with_broker, scenario)


def test_a_batch_that_cannot_join_now_may_try_again(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        asker.client.metadata.fail_next = 1
        assert await asker.write(0, 1) == [E.NOT_ENOUGH_REPLICAS] * 2
        assert asker.end_offset(0) == 0
        assert await asker.write(0, 1) == [0, 0]

    with_asker(with_broker, scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_and_add_for_several_transactions_at_once(with_broker: Run, version: int) -> None:
    unknown = E.INVALID_PRODUCER_ID_MAPPING

    async def scenario(asker: Asker) -> None:
        async def ask(partition: int, verify: bool, **changes: Any) -> int:
            mine, nobodys = await asker.ask_as_broker(partition, verify=verify, version=version, **changes)
            if mine != E.UNKNOWN_TOPIC_OR_PARTITION:
                assert nobodys == unknown
            return mine

        assert await ask(1, True) == E.TRANSACTION_ABORTABLE
        assert await ask(1, True, name="") == E.INVALID_REQUEST
        assert await ask(1, False, name="") == E.INVALID_REQUEST
        assert await ask(99, True) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await ask(1, True, topic="nowhere") == E.UNKNOWN_TOPIC_OR_PARTITION
        assert asker.client.broker.transactions.describe("x").state.value == "Empty"
        assert await ask(1, False) == E.NONE
        assert await ask(1, True) == E.NONE
        assert await ask(2, True) == E.TRANSACTION_ABORTABLE
        asker.epoch += 1
        assert await ask(1, True) == E.PRODUCER_FENCED
        assert await ask(1, False) == E.PRODUCER_FENCED
        asker.epoch -= 1
        assert await asker.write(1, version=9) == [0]

    with_asker(with_broker, scenario)


def test_another_node_coordinates_no_brokers_request(with_broker: Run) -> None:
    async def main(client: Any) -> None:
        asker = Asker(client)
        await asker.topic()
        await asker.init(node_id=client.broker.nodes.coordinator_of("x").node_id)
        rows = [AddPartitionsToTxnTopic("t", [0])]
        one = AddPartitionsToTxnTransaction("x", asker.producer_id, asker.epoch, True, rows)
        codes = []
        for node_id in sorted(client.broker.nodes.by_id):
            request = AddPartitionsToTxnRequest([one])
            answer = await client.ask("add_partitions_to_txn", 5, request, node_id)
            codes += [
                answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
            ]
        assert sorted(codes) == [E.NOT_COORDINATOR, E.TRANSACTION_ABORTABLE]

    with_broker(main, node_count=2)


def test_a_batch_that_its_topic_refuses_joins_nothing(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        topics = asker.client.broker.topics
        await topics.create(
            [topics.plan(NewTopic(TopicName.parse("k"), 1, configs={"cleanup.policy": "compact"}))]
        )
        data = [TopicProduceData("k", partition_data=[PartitionProduceData(0, asker.batch(0))])]
        answer = await asker.client.ask("produce", 12, ProduceRequest("x", -1, 1000, data))
        assert answer.responses[0].partition_responses[0].error_code == E.INVALID_RECORD
        assert asker.client.broker.transactions.describe("x").partitions == frozenset()

    with_asker(with_broker, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_past_the_coordinator_ends_what_is_open_in_its_partition(
    with_broker: Run, version: int
) -> None:
    async def scenario(asker: Asker) -> None:
        async def mark(
            epoch: int, *partitions: int, topic: str = "t", coordinator_epoch: int = 0, renews: bool = False
        ) -> list[int]:
            rows = [WritableTxnMarkerTopic(topic, list(partitions))]
            marker = WritableTxnMarker(
                asker.producer_id, epoch, False, rows, coordinator_epoch, 2 if renews else 0
            )
            request = WriteTxnMarkersRequest([marker])
            answer = await asker.client.ask("write_txn_markers", version, request)
            (one,) = answer.markers
            assert one.producer_id == asker.producer_id
            return [row.error_code for row in one.topics[0].partitions]

        await asker.init()
        await asker.write(0)
        partition = asker.client.broker.topics.get(TopicName.parse("t")).partition(0)
        assert await mark(asker.epoch - 1, 0) == [E.INVALID_PRODUCER_EPOCH]
        if version >= 2:
            assert await mark(asker.epoch, 0, renews=True) == [E.INVALID_PRODUCER_EPOCH]
        assert await mark(asker.epoch, 0, coordinator_epoch=-1) == [E.TRANSACTION_COORDINATOR_FENCED]
        assert await mark(asker.epoch, 0, topic="nowhere") == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await mark(asker.epoch, 0, topic="bad name") == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert asker.end_offset(0) == 1
        assert partition.last_stable_offset == 0
        assert await mark(asker.epoch, 0, 1, 9) == [0, 0, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert partition.last_stable_offset == asker.end_offset(0) == 2
        assert asker.end_offset(1) == 0, "nothing was open there"
        assert await mark(asker.epoch, 0) == [0], "it is there already"
        assert asker.end_offset(0) == 2

    with_asker(with_broker, scenario)


def test_a_marker_is_asked_of_the_partitions_leader(with_broker: Run) -> None:
    async def main(client: Any) -> None:
        asker = Asker(client)
        await asker.topic()
        topic = client.broker.topics.get(TopicName.parse("t"))
        leader = topic.partition(0).leader_id
        for node in client.broker.nodes.all:
            marker = WritableTxnMarker(7, 0, False, [WritableTxnMarkerTopic("t", [0])], 0, 0)
            answer = await client.ask("write_txn_markers", 2, WriteTxnMarkersRequest([marker]), node.node_id)
            code = answer.markers[0].topics[0].partitions[0].error_code
            assert code == (E.NONE if node.node_id == leader else E.NOT_LEADER_OR_FOLLOWER)

    with_broker(main, node_count=2)
