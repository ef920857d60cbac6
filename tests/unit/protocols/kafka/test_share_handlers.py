"""The APIs of share groups from a request's bytes to a response's bytes, in every version."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.security.model import Caller, Principal
from magnetar.ledger.cursor import Counted
from magnetar.ledger.cursor_store import CursorKey
from magnetar.protocols.kafka.apis import load_apis
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_fetch
from magnetar.wire.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    RequestPartition,
)
from magnetar.wire.kafka.messages.alter_share_group_offsets import RequestTopic as AlteredTopic
from magnetar.wire.kafka.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from magnetar.wire.kafka.messages.delete_share_group_offsets import RequestTopic as DeletedTopic
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from magnetar.wire.kafka.messages.share_fetch import ForgottenTopic
from magnetar.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from tests.unit.protocols.kafka.share_queue import (
    ACCEPT,
    FETCH_VERSIONS,
    FULL,
    REJECT,
    RELEASE,
    RENEW,
    Batches,
    Queue,
    Run,
    joins,
    short_locks,
)


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


def test_a_session_is_its_principals(with_broker: Run) -> None:
    """Another one, which may read by the group, went on with it, and was told of its topics; or ended it."""

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        her, client.caller = client.caller, Caller(Principal("User", "mallory"), "127.0.0.1")
        for epoch in (1, -1):
            answer = await queue.ask("m", share_session_epoch=epoch, topics=[])
            assert (answer.error_code, answer.responses) == (ErrorCode.SHARE_SESSION_NOT_FOUND, [])
            queue.epochs["m"] = epoch
            assert await queue.acknowledge("m", [(0, 0, [ACCEPT])]) == ErrorCode.SHARE_SESSION_NOT_FOUND
        queue.epochs["m"] = 0
        assert await queue.fetch("m") == []  # a session of her own, which takes nothing from the other one
        client.caller, queue.epochs["m"] = her, 1
        assert await queue.acknowledge("m", [(0, 2, [ACCEPT])]) == ErrorCode.NONE

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


def test_a_release_that_is_answered_is_counted_after_a_kill(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(4, 2)
        assert await queue.fetch("m") == [(0, 5, 1)]
        assert await queue.acknowledge("m", [(1, 2, [RELEASE]), (4, 5, [ACCEPT])]) == ErrorCode.NONE
        assert (await queue.stored()).counted == (Counted(1, 3, 1),)
        assert await queue.fetch("m") == [(1, 2, 2)]
        assert await queue.acknowledge("m", [(1, 2, [ACCEPT, RELEASE])]) == ErrorCode.NONE
        assert (await queue.stored()).counted == (Counted(2, 3, 2),)
        assert await queue.fetch("m") == [(2, 2, 3)]
        assert await queue.acknowledge("m", [(2, 2, [REJECT])]) == ErrorCode.NONE
        assert (await queue.stored()).counted == ()

    with_broker(scenario)


def test_what_counted_since_the_last_write_is_remembered_without_consumers(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(2)
        assert await queue.fetch("m") == [(0, 1, 1)]
        assert await queue.fetch("m", max_wait_ms=10_000) == [(0, 1, 2)]  # its time was over
        client.broker.cases.sharing.connection_lost(1)  # within the second after which it is stored
        queue.epochs.clear()
        assert await queue.fetch("n") == [(0, 1, 2)]
        assert (await queue.stored()).counted == (Counted(0, 2, 1),)

    with_broker(scenario, groups=short_locks(100))


def test_a_lock_that_was_over_is_counted_after_a_kill(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(2)
        assert await queue.fetch("m") == [(0, 1, 1)]
        await queue.until_stored(lambda cursor: bool(cursor.counted))

    with_broker(scenario, groups=short_locks(100))


def test_consumers_that_see_other_records_find_the_counts(with_broker: Run) -> None:
    """All that waits is read anew when a consumer comes that may not see what is undecided."""

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        assert await queue.fetch("m", max_wait_ms=10_000) == [(0, 2, 2)]  # its time was over
        client.broker.subscriptions.find(queue.partition, "g").read_anew()  # within the second, as above
        assert await queue.fetch("n") == [(0, 2, 2)]

    with_broker(scenario, groups=short_locks(1000))


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


def test_all_apis_of_share_groups_are_served() -> None:
    assert {76, 77, 78, 79, 90, 91, 92} <= load_apis().keys()
