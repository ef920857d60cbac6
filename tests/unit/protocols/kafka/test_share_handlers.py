"""The APIs of share groups from a request's bytes to a response's bytes, in every version."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.consumer import OutboxConsumer
from magnetar.broker.subscriptions.model import (
    AckedId,
    ConsumerSpec,
    Delivery,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.broker.topics.model import NewTopic
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.protocols.kafka.apis import load_apis
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_acknowledge, share_fetch
from magnetar.wire.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    RequestPartition,
)
from magnetar.wire.kafka.messages.alter_share_group_offsets import RequestTopic as AlteredTopic
from magnetar.wire.kafka.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from magnetar.wire.kafka.messages.delete_share_group_offsets import RequestTopic as DeletedTopic
from magnetar.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
)
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from magnetar.wire.kafka.messages.share_acknowledge import ShareAcknowledgeRequest
from magnetar.wire.kafka.messages.share_fetch import ForgottenTopic, ShareFetchRequest
from magnetar.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from magnetar.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from magnetar.wire.pulsar.entry import read_entry

Run = Callable[..., None]
FULL: Final = "persistent://public/default/t"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Batches = Sequence[tuple[int, int, Sequence[int]]]
FETCH_VERSIONS: Final = range(1, 3)


def short_locks(lock_ms: int) -> GroupSettings:
    return GroupSettings(
        group_share_record_lock_duration_ms=lock_ms, group_share_min_record_lock_duration_ms=lock_ms
    )


class Queue:
    """A topic with one partition, and share consumers of group `g`, which begins at its start."""

    def __init__(self, client: Any, version: int = 2) -> None:
        self.client = client
        self.version = version
        self.epochs: dict[str, int] = {}
        self.partition: Partition
        self.topic_id = b""

    async def begin(self, *sizes: int, **configs: str) -> "Queue":
        """With batches of so many records."""
        broker = self.client.broker
        await broker.topics.create([broker.topics.plan(NewTopic(TopicName.parse(FULL), 1))])
        settings = {"share.auto.offset.reset": "earliest"}
        settings |= {f"share.{name.replace('_', '.')}": value for name, value in configs.items()}
        await broker.groups.configs.change("g", settings)
        topic = broker.topics.get(TopicName.parse(FULL))
        self.partition, self.topic_id = topic.partition(0), topic.topic_id
        for size in sizes:
            await self.client.append(self.partition, size)
        return self

    async def ask(self, member: str, said: Batches = (), **fields: Any) -> Any:
        """A ShareFetch: the whole response."""
        epoch = self.epochs.get(member, 0)
        batches = [share_fetch.AcknowledgementBatch(first, last, list(kinds)) for first, last, kinds in said]
        topic = share_fetch.FetchTopic(self.topic_id, [share_fetch.FetchPartition(0, batches)])
        values = {"max_records": 100, "topics": [topic]} | fields
        request = ShareFetchRequest("g", member, epoch)
        for name, value in values.items():
            setattr(request, name, value)
        answer = await self.client.ask("share_fetch", self.version, request)
        if answer.error_code == ErrorCode.NONE:
            self.epochs[member] = epoch + 1
        return answer

    async def fetch(self, member: str, said: Batches = (), **fields: Any) -> list[tuple[int, int, int]]:
        """First and last offset of what has come, and its delivery count."""
        answer = await self.ask(member, said, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        rows = [row for topic in answer.responses for row in topic.partitions]
        for row in rows:
            assert (row.error_code, row.acknowledge_error_code) == (0, 0), row
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for row in rows
            for one in row.acquired_records
        ]

    async def acknowledge(self, member: str, said: Batches, **fields: Any) -> Any:
        """A ShareAcknowledge: the code of its partition, or of all of it."""
        epoch = self.epochs[member]
        batches = [
            share_acknowledge.AcknowledgementBatch(first, last, list(kinds)) for first, last, kinds in said
        ]
        topic = share_acknowledge.AcknowledgeTopic(
            self.topic_id, [share_acknowledge.AcknowledgePartition(0, batches)]
        )
        request = ShareAcknowledgeRequest("g", member, epoch, topics=[topic])
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self.client.ask("share_acknowledge", self.version, request)
        if answer.error_code:
            return answer.error_code
        self.epochs[member] = epoch + 1
        (row,) = answer.responses[0].partitions
        return row.error_code

    async def stored(self) -> Cursor:
        """What would be there after a kill."""
        rows = await self.client.metadata.scan("/cursors/g/")
        (cursor,) = [Cursor.decode(one.value) for _, one in rows]
        return cursor

    async def lag(self) -> int:
        request = DescribeShareGroupOffsetsRequest([RequestGroup("g", None)])
        (group,) = (await self.client.ask("describe_share_group_offsets", 1, request)).groups
        assert group.error_code == ErrorCode.NONE, group
        return group.topics[0].partitions[0].lag  # type: ignore[no-any-return]


def joins(**changes: Any) -> ShareGroupHeartbeatRequest:
    request = ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"])
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def test_a_member_joins_beats_is_described_and_leaves(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin()
        joined = await client.ask("share_group_heartbeat", 1, joins())
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5000)
        (assigned,) = joined.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (queue.topic_id, [0])
        other = await client.ask("share_group_heartbeat", 1, joins(member_id="n"))
        assert other.assignment.topic_partitions[0].partitions == [0]  # both fetch of the only partition
        beat = joins(member_epoch=2, subscribed_topic_names=None)
        assert (await client.ask("share_group_heartbeat", 1, beat)).member_epoch == 3
        beat.member_epoch = 3
        assert (await client.ask("share_group_heartbeat", 1, beat)).assignment is None
        beat.member_epoch = 9
        fenced = await client.ask("share_group_heartbeat", 1, beat)
        assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        (group,) = (
            await client.ask("share_group_describe", 1, ShareGroupDescribeRequest(["g"], True))
        ).groups
        assert (group.group_state, group.assignor_name, group.group_epoch) == ("Stable", "simple", 3)
        assert [(one.member_id, one.subscribed_topic_names) for one in group.members] == [
            ("m", ["t"]),
            ("n", ["t"]),
        ]
        assert [one.topic_name for one in group.members[0].assignment.topic_partitions] == ["t"]
        listed = (await client.ask("list_groups", 5, ListGroupsRequest([], ["share"]))).groups
        assert [(one.group_id, one.group_type, one.group_state) for one in listed] == [
            ("g", "share", "Stable")
        ]
        for member in ("m", "n"):
            left = await client.ask("share_group_heartbeat", 1, joins(member_id=member, member_epoch=-1))
            assert (left.error_code, left.member_epoch) == (0, -1)
        assert client.broker.groups.find("g").state.value == "Empty"

    with_broker(scenario, groups=GroupSettings(group_share_assignment_interval_ms=0))


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": ""},
        {"member_id": " "},
        {"member_epoch": -2},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(with_broker: Run, changes: dict[str, Any]) -> None:
    async def scenario(client: Any) -> None:
        answer = await client.ask("share_group_heartbeat", 1, joins(**changes))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message

    with_broker(scenario)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_are_fetched_and_accepted_in_every_version(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client, version).begin(3, 2)
        answer = await queue.ask("m")
        assert answer.acquisition_lock_timeout_ms == 30_000
        (row,) = answer.responses[0].partitions
        assert bytes(row.records).count(b"v") >= 5
        assert [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records] == [
            (0, 4, 1)
        ]
        assert await queue.fetch("n") == []  # they are another one's
        assert await queue.fetch("m", [(0, 2, [ACCEPT])]) == []
        assert (await queue.stored()).mark_delete == 3  # durable when it is answered
        assert await queue.acknowledge("m", [(3, 4, [ACCEPT, REJECT])]) == ErrorCode.NONE
        assert (await queue.stored()).mark_delete == 5
        assert (
            await queue.acknowledge("m", [(3, 4, [ACCEPT])]) == ErrorCode.NONE
        )  # it is behind the group already

    with_broker(scenario)


def test_what_is_released_goes_to_others_until_it_was_delivered_in_vain_too_often(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(4, delivery_count_limit="3")
        assert await queue.fetch("m") == [(0, 3, 1)]
        assert await queue.fetch("m", [(0, 3, [ACCEPT, RELEASE, ACCEPT, RELEASE])]) == [(1, 1, 2), (3, 3, 2)]
        assert await queue.acknowledge("m", [(1, 1, [RELEASE]), (3, 3, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.fetch("n") == [(1, 1, 3)]
        assert (await queue.stored()).mark_delete == 1
        assert await queue.fetch("n", [(1, 1, [RELEASE])]) == []
        assert (await queue.stored()).mark_delete == 4

    with_broker(scenario)


def test_a_record_whose_time_is_over_goes_to_others(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(2)
        assert await queue.fetch("m") == [(0, 1, 1)]
        assert await queue.fetch("n", max_wait_ms=10_000) == [(0, 1, 2)]
        assert await queue.acknowledge("m", [(0, 1, [ACCEPT])]) == ErrorCode.INVALID_RECORD_STATE
        assert (await queue.stored()).mark_delete == 0
        assert await queue.acknowledge("n", [(0, 1, [ACCEPT])]) == ErrorCode.NONE

    with_broker(scenario, groups=short_locks(100))


def test_a_record_that_is_renewed_stays_with_its_consumer(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(2)
        assert await queue.fetch("m") == [(0, 1, 1)]
        other = asyncio.ensure_future(queue.fetch("n", max_wait_ms=10_000))
        await asyncio.sleep(1)  # half of the time
        assert await queue.acknowledge("m", [(0, 0, [RENEW])], is_renew_ack=True) == ErrorCode.NONE
        assert await other == [(1, 1, 2)]  # that alone
        assert await queue.acknowledge("m", [(0, 0, [ACCEPT])]) == ErrorCode.NONE

    with_broker(scenario, groups=short_locks(2000))


def test_renewing_has_to_be_allowed_and_announced(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1, renew_acknowledge_enable="false")
        await queue.fetch("m")
        said = [(0, 0, [RENEW])]
        assert await queue.acknowledge("m", said) == ErrorCode.INVALID_REQUEST
        assert await queue.acknowledge("m", said, is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
        answer = await queue.ask("m", said, is_renew_ack=True, max_wait_ms=5)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    with_broker(scenario)


@pytest.mark.parametrize(
    "said",
    [
        [(2, 1, [ACCEPT])],
        [(-1, 1, [ACCEPT])],
        [(0, 1, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
    ],
)
def test_acknowledgements_that_make_no_sense_change_nothing(with_broker: Run, said: Batches) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        await queue.fetch("m")
        assert await queue.acknowledge("m", said) == ErrorCode.INVALID_REQUEST
        (row,) = (await queue.ask("m", said)).responses[0].partitions
        assert row.acknowledge_error_code == ErrorCode.INVALID_REQUEST
        assert (await queue.stored()).mark_delete == 0

    with_broker(scenario)


def test_one_record_that_is_anothers_leaves_all_as_they_were(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(2, 2)
        assert await queue.fetch("m", max_records=1) == [(0, 1, 1)]
        assert await queue.fetch("n") == [(2, 3, 1)]
        assert await queue.acknowledge("m", [(0, 2, [ACCEPT])]) == ErrorCode.INVALID_RECORD_STATE
        assert (
            await queue.acknowledge("m", [(0, 1, [RELEASE]), (9, 9, [ACCEPT])])
            == ErrorCode.INVALID_RECORD_STATE
        )
        assert await queue.fetch("n") == []  # nothing was released
        assert await queue.acknowledge("m", [(0, 1, [ACCEPT])]) == ErrorCode.NONE

    with_broker(scenario)


def test_whole_batches_may_exceed_the_limit_unless_the_mode_says_otherwise(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3, 3, 3)
        assert await queue.fetch("m", max_records=4, batch_size=3) == [(0, 2, 1), (3, 5, 1)]
        assert await queue.fetch("n", max_records=2, share_acquire_mode=1) == [(6, 7, 1)]
        assert await queue.fetch("o") == [(8, 8, 1)]
        answer = await queue.ask("p", share_acquire_mode=2)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    with_broker(scenario)


def test_what_does_not_fit_stays_for_the_next(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(5, 5, 5)
        assert await queue.fetch("m", max_bytes=1) == [(0, 4, 1)]
        assert await queue.fetch("m") == [(5, 14, 1)]

    with_broker(scenario)


def test_a_group_holds_no_more_than_its_setting_says(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(*[60] * 3, partition_max_record_locks="100")
        assert await queue.fetch("m") == [(0, 119, 1)]
        assert await queue.fetch("n") == []
        assert await queue.acknowledge("m", [(0, 119, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.fetch("n") == [(120, 179, 1)]

    with_broker(scenario)


def test_a_fetch_waits_for_what_comes(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin()
        waiting = asyncio.ensure_future(queue.fetch("m", max_wait_ms=10_000))
        await asyncio.sleep(0)
        await client.append(queue.partition, 2)
        assert await waiting == [(0, 1, 1)]

    with_broker(scenario)


def test_a_session_counts_its_requests(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        assert (await queue.ask("m", share_session_epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await queue.fetch("m") == [(0, 0, 1)]
        answer = await queue.ask("m", share_session_epoch=2)
        assert answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        queue.epochs["m"] = 0
        assert await queue.acknowledge("m", []) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        answer = await queue.ask("m", [(0, 0, [ACCEPT])], share_session_epoch=0)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert await queue.fetch("m") == [(0, 0, 1)]  # it begins anew, and was not delivered before

    with_broker(scenario)


@pytest.mark.parametrize("by_fetch", [True, False])
def test_a_session_that_ends_gives_back_what_it_holds(with_broker: Run, by_fetch: bool) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        await queue.fetch("n")
        said = [(0, 0, [ACCEPT])]
        queue.epochs["m"] = -1
        if by_fetch:
            assert await queue.fetch("m", said) == []
        else:
            assert await queue.acknowledge("m", said) == ErrorCode.NONE
        assert await queue.fetch("n") == [(1, 2, 1)]
        queue.epochs["m"] = 1
        assert await queue.acknowledge("m", said) == ErrorCode.SHARE_SESSION_NOT_FOUND

    with_broker(scenario)


def test_what_was_delivered_in_vain_is_remembered_without_consumers(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(4, 2)
        assert await queue.fetch("m") == [(0, 5, 1)]
        assert await queue.acknowledge("m", [(1, 2, [RELEASE]), (4, 5, [RELEASE])]) == ErrorCode.NONE
        queue.epochs["m"] = -1
        assert await queue.acknowledge("m", [(3, 3, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.fetch("n") == [(0, 0, 1), (1, 2, 2), (4, 5, 2)]

    with_broker(scenario)


def test_a_lost_connection_gives_back_what_its_consumers_hold(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("n") == [(0, 2, 1)]
        client.broker.cases.sharing.connection_lost(1)
        assert len(client.broker.share_sessions) == 0
        queue.epochs.clear()
        assert await queue.fetch("m") == [(0, 2, 1)]

    with_broker(scenario)


def test_what_is_left_of_a_forgotten_partition_can_be_acknowledged(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(2, 2)
        assert await queue.fetch("m", max_records=1) == [(0, 1, 1)]
        assert (
            await queue.fetch("m", topics=[], forgotten_topics_data=[ForgottenTopic(queue.topic_id, [0])])
            == []
        )
        assert await queue.acknowledge("m", [(0, 1, [ACCEPT])]) == ErrorCode.NONE
        subscription = client.broker.subscriptions.find(queue.partition, "g")
        assert subscription is None or not subscription.consumers

    with_broker(scenario)


def test_too_many_sessions_are_refused(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        await queue.fetch("m")
        assert (await queue.ask("n")).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED

    with_broker(scenario, groups=GroupSettings(group_share_max_share_sessions=1))


def test_topics_that_are_not_there_are_named(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        nowhere = share_fetch.FetchTopic(b"\7" * 16, [share_fetch.FetchPartition(0)])
        (row,) = (await queue.ask("m", topics=[nowhere])).responses[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        beyond = share_fetch.FetchTopic(queue.topic_id, [share_fetch.FetchPartition(7)])
        (row,) = (await queue.ask("n", topics=[beyond])).responses[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_broker(scenario)


# --- one cursor ------------------------------------------------------------------------------------------------------


class PulsarPort:
    """A Pulsar consumer that takes everything."""

    is_writable = True

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self._arrived = asyncio.Event()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.got += deliveries
        self._arrived.set()

    async def has(self, count: int) -> None:
        """Return when so many deliveries have come."""
        while len(self.got) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def active_changed(self, is_active: bool) -> None: ...

    def reached_end(self) -> None: ...

    def closed(self) -> None: ...


async def pulsar_consumer(
    client: Any, partition: Partition, kind: SubscriptionType = SubscriptionType.SHARED
) -> tuple[OutboxConsumer, PulsarPort]:
    port = PulsarPort()
    wanted = SubscribeRequest("g", ConsumerSpec("pulsar", kind))
    return await client.broker.subscriptions.subscribe(partition, wanted, port), port


def test_consumers_of_both_protocols_share_one_queue(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(*[1] * 6)
        await client.ask("share_group_heartbeat", 1, joins())
        assert await queue.fetch("m", max_records=2) == [(0, 1, 1)]
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 3)
        await port.has(3)
        assert await queue.fetch("m") == [(5, 5, 1)]
        assert await queue.lag() == 6
        ids = [AckedId(one.ledger_id, one.entry_id) for one in port.got]
        done = member.subscription.acknowledge(member, ids[:2], cumulative=False)
        assert done is None
        assert await queue.lag() == 4
        assert await queue.acknowledge("m", [(0, 1, [ACCEPT]), (5, 5, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.lag() == 1
        assert member.subscription.backlog() == 1
        await client.broker.subscriptions.leave(member)
        assert await queue.fetch("m") == [(4, 4, 1)]

    with_broker(scenario)


def test_what_kafka_releases_goes_to_pulsar(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        assert await queue.fetch("m") == [(0, 0, 1)]
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 10)
        assert await queue.acknowledge("m", [(0, 0, [RELEASE])]) == ErrorCode.NONE
        await port.has(1)
        assert port.got[0].redelivery_count == 1
        position = port.got[0][:2]
        member.subscription.redeliver(member, [position], None)
        await port.has(2)
        await client.broker.subscriptions.leave(member)
        assert await queue.fetch("m") == [(0, 0, 3)]

    with_broker(scenario)


def test_pulsar_gets_the_rest_of_what_kafka_has_acknowledged_in_part(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(6)
        await client.ask("share_group_heartbeat", 1, joins())
        assert await queue.fetch("m") == [(0, 5, 1)]
        said = [(0, 1, [ACCEPT]), (2, 2, [RELEASE]), (4, 5, [RELEASE, ACCEPT])]
        assert await queue.acknowledge("m", said) == ErrorCode.NONE
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 10)
        await port.has(2)
        counts = [read_entry(memoryview(one.payload), verify=True).num_messages for one in port.got]
        assert (counts, [one.redelivery_count for one in port.got]) == ([1, 1], [1, 1])
        assert member.state.permits == 8
        member.subscription.redeliver(member, [port.got[0][:2]], None)
        await port.has(3)
        assert (port.got[2][:2], port.got[2].redelivery_count) == (port.got[0][:2], 2)
        ids = [AckedId(one.ledger_id, one.entry_id) for one in port.got[1:]]
        member.subscription.acknowledge(member, ids, cumulative=False)
        assert await queue.lag() == 1
        assert await queue.acknowledge("m", [(3, 3, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.lag() == 0
        await client.broker.subscriptions.leave(member)

    with_broker(scenario)


def test_a_subscription_of_another_type_excludes_share_consumers(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        member, _ = await pulsar_consumer(client, queue.partition, SubscriptionType.EXCLUSIVE)
        (row,) = (await queue.ask("m")).responses[0].partitions
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "different type" in row.error_message
        await client.broker.subscriptions.leave(member)

    with_broker(scenario)


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_shown_moved_and_given_up(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(4)
        alter = AlterShareGroupOffsetsRequest(
            "g", [AlteredTopic("t", [RequestPartition(0, 1), RequestPartition(3, 1)])]
        )
        assert (
            await client.ask("alter_share_group_offsets", 0, alter)
        ).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await client.ask("share_group_heartbeat", 1, joins())
        assert await queue.fetch("m") == [(0, 3, 1)]
        assert (
            await client.ask("alter_share_group_offsets", 0, alter)
        ).error_code == ErrorCode.NON_EMPTY_GROUP
        delete = DeleteShareGroupOffsetsRequest("g", [DeletedTopic("t"), DeletedTopic("nowhere")])
        assert (
            await client.ask("delete_share_group_offsets", 0, delete)
        ).error_code == ErrorCode.NON_EMPTY_GROUP
        await client.ask("share_group_heartbeat", 1, joins(member_epoch=-1))
        assert (
            await client.ask("alter_share_group_offsets", 0, alter)
        ).error_code == ErrorCode.NON_EMPTY_GROUP
        queue.epochs["m"] = -1
        assert await queue.acknowledge("m", [(0, 3, [ACCEPT])]) == ErrorCode.NONE
        (topic,) = (await client.ask("alter_share_group_offsets", 0, alter)).responses
        assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
            (0, ErrorCode.NONE),
            (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert (await queue.stored()).mark_delete == 1
        assert await queue.lag() == 3
        rows = (await client.ask("delete_share_group_offsets", 0, delete)).responses
        assert [(row.topic_name, row.error_code) for row in rows] == [
            ("t", ErrorCode.NONE),
            ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert client.broker.cursors.get(CursorKey("g", FULL, 0)) is None

    with_broker(scenario)


# --- a model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_random_consumers_agree_with_a_model(with_broker: Run, seed: int) -> None:
    """Every record is with one consumer at most, with the delivery count that the model has; in the end each has been
    accepted, rejected or given up once.
    """
    limit = 4

    async def scenario(client: Any) -> None:
        dice = random.Random(seed)
        sizes = [dice.randint(1, 6) for _ in range(30)]
        queue = await Queue(client).begin(*sizes, delivery_count_limit=str(limit))
        total = sum(sizes)
        held: dict[str, dict[int, int]] = {name: {} for name in "abc"}
        delivered = dict.fromkeys(range(total), 0)  # in vain
        done: set[int] = set()

        def speak(name: str) -> Batches:
            mine = sorted(held[name])
            said: list[tuple[int, int, list[int]]] = []
            for offset in dice.sample(mine, dice.randint(0, len(mine))):
                kind = dice.choice([ACCEPT, ACCEPT, RELEASE, REJECT])
                said.append((offset, offset, [kind]))
                del held[name][offset]
                if kind == RELEASE:
                    delivered[offset] += 1
                if kind != RELEASE or delivered[offset] == limit:
                    done.add(offset)
            return sorted(said)

        for step in range(2000):
            if len(done) == total:
                break
            name = dice.choice("abc")
            action = dice.random()
            if action < 0.1 and name in queue.epochs:
                queue.epochs[name] = dice.choice([0, -1])  # begins anew, or ends
            epoch = queue.epochs.get(name, 0)
            said = speak(name) if epoch > 0 or epoch == -1 else []
            if epoch <= 0:
                held[name].clear()
            mode = dice.choice([0, 1])
            got = await queue.fetch(name, said, max_records=dice.randint(1, 8), share_acquire_mode=mode)
            if epoch == -1:
                del queue.epochs[name]
                assert not got
            for first, last, count in got:
                for offset in range(first, last + 1):
                    assert offset not in done, (seed, step)
                    assert all(offset not in some for some in held.values()), (seed, step)
                    assert count == delivered[offset] + 1, (seed, step, offset)
                    held[name][offset] = count
        assert len(done) == total, (seed, total - len(done))
        assert (await queue.stored()).mark_delete == total

    with_broker(scenario)


def test_all_apis_of_share_groups_are_served() -> None:
    assert {76, 77, 78, 79, 90, 91, 92} <= load_apis().keys()
