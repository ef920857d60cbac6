"""The transaction APIs from a request's bytes to a response's bytes, on a real broker."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.names import TopicName
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.transactions.errors import TransactionError
from magnetar.protocols.kafka.large import ELEMENTS_PER_TURN
from magnetar.protocols.kafka.transactions import TRANSACTION_ERROR_CODES
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from magnetar.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from magnetar.wire.kafka.messages.list_transactions import ListTransactionsRequest
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magnetar.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from magnetar.wire.kafka.records import TRANSACTIONAL
from tests.unit.protocols.kafka.conftest import record_batch

FULL = "persistent://public/default/t"


class Asker:
    """One transactional producer; every method gives error codes."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.name = "x"
        self.producer_id = self.epoch = -1

    async def topic(self) -> None:
        topics = self.client.broker.topics
        await topics.create([topics.plan(NewTopic(TopicName.parse("t"), 4))])

    async def produce(self, transactional_id: str | None) -> int:
        """A record of the transaction, to partition 1."""
        batch = record_batch(1, self.client.broker.clock.now_ms(), self.producer_id)
        struct.pack_into(">h", batch, 21, TRANSACTIONAL)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(1, memoryview(batch))])]
        answer = await self.client.ask("produce", 9, ProduceRequest(transactional_id, -1, 1000, data))
        return int(answer.responses[0].partition_responses[0].error_code)

    async def init(self, version: int = 5, node_id: int | None = None, **changes: Any) -> int:
        values = {"transactional_id": self.name, "transaction_timeout_ms": 60_000, **changes}
        answer = await self.client.ask("init_producer_id", version, InitProducerIdRequest(**values), node_id)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def add(
        self, *partitions: tuple[str, int], version: int = 3, node_id: int | None = None
    ) -> list[int]:
        topics = [AddPartitionsToTxnTopic(name, [index]) for name, index in partitions]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = await self.client.ask("add_partitions_to_txn", version, request, node_id)
        rows = answer.results_by_topic_v3_and_below
        assert [row.name for row in rows] == [name for name, _ in partitions]
        return [one.partition_error_code for row in rows for one in row.results_by_partition]

    async def add_group(self, version: int = 4, node_id: int | None = None) -> int:
        request = AddOffsetsToTxnRequest(self.name, self.producer_id, self.epoch, "g")
        return int((await self.client.ask("add_offsets_to_txn", version, request, node_id)).error_code)

    async def commit_offset(
        self, offset: int, version: int = 4, topic: str = "t", node_id: int | None = None, **changes: Any
    ) -> int:
        rows = [TxnOffsetCommitRequestPartition(1, offset, -1, "m")]
        request = TxnOffsetCommitRequest(
            self.name,
            "g",
            self.producer_id,
            self.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic, rows)],
            **changes,
        )
        answer = await self.client.ask("txn_offset_commit", version, request, node_id)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, commit: bool, version: int = 4, node_id: int | None = None) -> int:
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, commit)
        return int((await self.client.ask("end_txn", version, request, node_id)).error_code)

    async def fetched(self, version: int, *, stable: bool, everything: bool = False) -> list[tuple[int, int]]:
        """(offset, error) of t-1, or of all that the group has."""
        if version >= 8:
            topics = None if everything else [OffsetFetchRequestTopics("t", partition_indexes=[1])]
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup("g", topics=topics)], require_stable=stable
            )
            rows = (await self.client.ask("offset_fetch", version, request)).groups[0].topics
        else:
            old = None if everything else [OffsetFetchRequestTopic("t", [1])]
            request = OffsetFetchRequest("g", old, require_stable=stable)
            rows = (await self.client.ask("offset_fetch", version, request)).topics
        return [(one.committed_offset, one.error_code) for row in rows for one in row.partitions]


Run = Callable[..., None]


def with_asker(with_broker: Run, scenario: Any, **settings: Any) -> None:
    async def main(client: Any) -> None:
        asker = Asker(client)
        await asker.topic()
        await scenario(asker)

    with_broker(main, **settings)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("age", [0, 1, 2, 3, 4])
def test_a_transaction_from_its_first_request_to_its_last_in_every_version(
    with_broker: Run, age: int, commit: bool
) -> None:
    async def scenario(asker: Asker) -> None:
        assert await asker.init(age) == 0
        assert await asker.add(("t", 0), ("t", 2), version=min(age, 3)) == [0, 0]
        assert await asker.add_group(age) == 0
        assert await asker.commit_offset(7, age) == 0
        assert await asker.end(commit, age) == 0
        assert await asker.end(commit, age) == 0
        assert await asker.end(not commit, age) == ErrorCode.INVALID_TXN_STATE
        assert await asker.fetched(7, stable=True) == [(7 if commit else -1, 0)]

    with_asker(with_broker, scenario)


def test_a_batch_needs_its_partition_in_the_transaction(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.init()
        await asker.add(("t", 1))
        inside = asker.client.broker.transactions.is_in_transaction
        assert inside(asker.producer_id, asker.epoch, FULL, 1, "x")
        assert not inside(asker.producer_id, asker.epoch, FULL, 0, "x")
        topic = asker.client.broker.topics.get(TopicName.parse("t"))
        assert topic.is_in_transaction(asker.producer_id, asker.epoch, 1, "x")
        await asker.end(commit=True)
        assert not topic.is_in_transaction(asker.producer_id, asker.epoch, 1, "x")

    with_asker(with_broker, scenario)


@pytest.mark.parametrize("missing", [("u", 0), ("t", 4), ("t", -1), ("bad name", 0)])
def test_an_unknown_partition_keeps_the_others_out(with_broker: Run, missing: tuple[str, int]) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.init()
        assert await asker.add(("t", 0), missing) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert not asker.client.broker.transactions.describe("x").partitions

    with_asker(with_broker, scenario)


def test_a_batch_of_a_transaction_comes_with_the_transactional_id_that_it_is_of(with_broker: Run) -> None:
    """A producer id can be guessed, and the right to write is the id's."""

    async def scenario(asker: Asker) -> None:
        await asker.init()
        await asker.add(("t", 1))
        assert await asker.produce(None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await asker.produce("y") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        partition = asker.client.broker.topics.get(TopicName.parse("t")).partition(1)
        assert partition.log.next_offset == 0
        assert await asker.produce("x") == ErrorCode.NONE
        assert partition.log.next_offset == 1

    with_asker(with_broker, scenario)


def test_a_fenced_producer_is_told_in_the_words_of_its_version(with_broker: Run) -> None:
    old, new = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED

    async def scenario(asker: Asker) -> None:
        await asker.init()
        zombie = Asker(asker.client)
        zombie.producer_id, zombie.epoch = asker.producer_id, asker.epoch
        await asker.init()
        for version in range(5):
            code = old if version < 2 else new
            assert await zombie.add(("t", 0), version=min(version, 3)) == [code]
            assert await zombie.add_group(version) == code
            assert await zombie.end(True, version) == code
            assert await zombie.commit_offset(1, version) == old
        claim = {"producer_id": zombie.producer_id, "producer_epoch": zombie.epoch}
        assert await zombie.init(3, **claim) == old
        assert await zombie.init(4, **claim) == new

    with_asker(with_broker, scenario)


def test_requests_that_make_no_sense(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        assert await asker.init(transactional_id="") == ErrorCode.INVALID_REQUEST
        assert await asker.init(producer_id=1) == ErrorCode.INVALID_REQUEST
        assert await asker.init(transaction_timeout_ms=900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await asker.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await asker.add(("t", 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        await asker.init()
        assert await asker.commit_offset(1, version=3) == ErrorCode.INVALID_TXN_STATE
        assert await asker.commit_offset(1, version=4) == ErrorCode.TRANSACTION_ABORTABLE
        await asker.add_group()
        assert await asker.commit_offset(1, topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await asker.commit_offset(1, topic="bad name") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await asker.commit_offset(1, generation_id=3, member_id="m") == ErrorCode.ILLEGAL_GENERATION

    with_asker(with_broker, scenario)


def test_another_node_is_not_the_coordinator(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        nodes = asker.client.broker.nodes
        here = nodes.coordinator_of("x").node_id
        wrong = next(node.node_id for node in nodes.all if node.node_id != here)
        code = ErrorCode.NOT_COORDINATOR
        assert await asker.init(node_id=wrong) == code
        assert await asker.init(node_id=here) == 0
        assert await asker.add(("t", 0), node_id=wrong) == [code]
        assert await asker.add_group(node_id=wrong) == code
        assert await asker.end(commit=True, node_id=wrong) == code
        of_group = nodes.coordinator_of("g").node_id
        not_of_group = next(node.node_id for node in nodes.all if node.node_id != of_group)
        assert await asker.commit_offset(1, node_id=not_of_group) == code
        ask = asker.client.ask
        described = await ask("describe_transactions", 0, DescribeTransactionsRequest(["x"]), wrong)
        assert described.transaction_states[0].error_code == code
        assert not (await ask("list_transactions", 1, ListTransactionsRequest(), wrong)).transaction_states
        assert (
            len((await ask("list_transactions", 1, ListTransactionsRequest(), here)).transaction_states) == 1
        )

    with_asker(with_broker, scenario, node_count=3)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_an_offset_that_a_transaction_may_move_is_unstable(with_broker: Run, version: int) -> None:
    unstable = [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]

    async def scenario(asker: Asker) -> None:
        await asker.init()
        await asker.add_group()
        assert await asker.fetched(version, stable=True) == [(-1, 0)]
        await asker.commit_offset(9)
        for everything in (False, True):
            assert await asker.fetched(version, stable=True, everything=everything) == unstable
        assert await asker.fetched(version, stable=False) == [(-1, 0)]
        ordinary = CommitRequest("g", [OffsetToCommit(FULL, 1, 3)])
        await asker.client.broker.groups.offsets.commit(ordinary)
        for everything in (False, True):
            assert await asker.fetched(version, stable=True, everything=everything) == unstable
            assert await asker.fetched(version, stable=False, everything=everything) == [(3, 0)]
        await asker.end(commit=True)
        assert await asker.fetched(version, stable=True, everything=True) == [(9, 0)]

    with_asker(with_broker, scenario)


def test_transactions_are_described_and_listed(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.init()
        await asker.add(("t", 2), ("t", 0))
        ask = asker.client.ask
        answer = await ask("describe_transactions", 0, DescribeTransactionsRequest(["x", "y", ""]))
        known, unknown, empty = answer.transaction_states
        assert (known.transaction_state, known.producer_id, known.producer_epoch) == (
            "Ongoing",
            asker.producer_id,
            asker.epoch,
        )
        assert known.transaction_timeout_ms == 60_000
        assert known.transaction_start_time_ms > 0
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [0, 2])]
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

        async def listed(version: int = 1, **filters: Any) -> Any:
            answer = await ask("list_transactions", version, ListTransactionsRequest(**filters))
            names = [one.transactional_id for one in answer.transaction_states]
            return names, answer.unknown_state_filters

        assert await listed(0) == (["x"], [])
        assert await listed(state_filters=["Ongoing", "Weird"]) == (["x"], ["Weird"])
        assert await listed(state_filters=["Empty"]) == ([], [])
        assert await listed(producer_id_filters=[asker.producer_id]) == (["x"], [])
        assert await listed(producer_id_filters=[asker.producer_id + 1]) == ([], [])
        assert await listed(duration_filter=3_600_000) == ([], [])
        for pattern, wanted in ((None, ["x"]), ("", ["x"]), ("[x-z]", ["x"]), ("x.", []), ("y|x", ["x"])):
            assert await listed(2, transactional_id_pattern=pattern) == (wanted, [])
        for pattern in ("(", "x" * 5000):
            refused = await ask(
                "list_transactions", 2, ListTransactionsRequest(transactional_id_pattern=pattern)
            )
            assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            assert not refused.transaction_states

    with_asker(with_broker, scenario)


def test_offsets_of_very_many_partitions_are_taken_in_turns_and_committed_together(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        topics = asker.client.broker.topics
        await topics.create([topics.plan(NewTopic(TopicName.parse("wide"), 2000))])
        await asker.init()
        large = asker.client.service.large
        written = asker.client.broker.transactions.describe
        before = large.turns
        rows = [TxnOffsetCommitRequestPartition(index, index, -1, "") for index in range(2001)]
        asked = [TxnOffsetCommitRequestTopic(name, rows) for name in ("wide", "none")]
        request = TxnOffsetCommitRequest("x", "g", asker.producer_id, asker.epoch, topics=asked)
        answer = await asker.client.ask("txn_offset_commit", 5, request)
        assert large.turns - before >= 40
        assert large.elements_in_turn_max <= ELEMENTS_PER_TURN + 1  # a topic counts as one
        found = {
            (topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [found["wide", index] for index in range(2001)] == [ErrorCode.NONE] * 2000 + [missing]
        assert [found["none", index] for index in range(2001)] == [missing] * 2001
        assert len(written("x").offsets["g"]) == 2000
        assert await asker.end(True, 4) == ErrorCode.NONE
        assert len(asker.client.broker.cursors.subscription("g")["persistent://public/default/wide"]) == 2000

    with_asker(with_broker, scenario)


def test_what_is_asked_for_several_times_is_described_once(with_broker: Run) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.init()
        await asker.add(("t", 2), ("t", 0))
        ask = asker.client.ask
        answer = await ask("describe_transactions", 0, DescribeTransactionsRequest(["x", "y", "x", "y"]))
        assert [one.transactional_id for one in answer.transaction_states] == ["x", "y"]
        wanted = [TopicRequest("t", [0, 2, 0]), TopicRequest("none", [0]), TopicRequest("t", [2, 1])]
        answer = await ask("describe_producers", 0, DescribeProducersRequest(wanted))
        found = [(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics]
        assert found == [("t", [0, 2, 1]), ("none", [0])]
        answer = await ask("describe_groups", 5, DescribeGroupsRequest(["g", "h", "g"]))
        assert [one.group_id for one in answer.groups] == ["g", "h"]

    with_asker(with_broker, scenario)


def test_a_fetch_is_told_of_the_aborted_transactions_that_it_has_batches_of(with_broker: Run) -> None:
    """A client leaves out records by those alone, and thousands of others may have been open all along."""

    async def scenario(asker: Asker) -> None:
        other = Asker(asker.client)
        other.name = "y"
        for one in (asker, other):
            await one.init()
            await one.add(("t", 1))
            assert await one.produce(one.name) == ErrorCode.NONE
        for one in (asker, other):
            assert await one.end(False) == ErrorCode.NONE

        async def told(offset: int, bytes_max: int) -> list[tuple[int, int]]:
            partition = FetchPartition(1, fetch_offset=offset, partition_max_bytes=bytes_max)
            request = FetchRequest(
                max_bytes=1 << 20,
                isolation_level=1,
                session_epoch=-1,
                topics=[FetchTopic("t", partitions=[partition])],
            )
            row = (await asker.client.ask("fetch", 12, request)).responses[0].partitions[0]
            return [(one.producer_id, one.first_offset) for one in row.aborted_transactions]

        first, second = (asker.producer_id, 0), (other.producer_id, 1)
        assert await told(0, 1) == [first]
        assert await told(1, 1) == [second]
        assert await told(2, 1) == [first]
        assert await told(0, 1 << 20) == [first, second]

    with_asker(with_broker, scenario)


def test_every_error_has_a_code() -> None:
    assert set(TRANSACTION_ERROR_CODES) == set(TransactionError)
