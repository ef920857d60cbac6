"""The group APIs from a request's bytes to a response's bytes, in every version that is served."""

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.cluster.model import Endpoint, Node, Nodes
from magnetar.broker.errors import UnknownTopicId
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.security.authorizer import AccessControl, AllowAll, Authorizer
from magnetar.broker.security.model import ANONYMOUS, Caller, topic_resource
from magnetar.broker.usecases.groups import GroupCases
from magnetar.broker.usecases.known_groups import KnownGroups
from magnetar.broker.usecases.nodes import NodeCases
from magnetar.broker.usecases.offsets import OffsetCases
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.large import Large, LargeMessages
from magnetar.protocols.kafka.registry import Deferred, is_coroutine
from magnetar.testing.audit import MemoryAudit
from magnetar.testing.groups import GroupDriver, subscription
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import asking
from magnetar.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from magnetar.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from magnetar.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PREFIX = "persistent://public/default/"
TOPIC_ID = bytes(range(16))
APIS = [
    "find_coordinator",
    "join_group",
    "sync_group",
    "heartbeat",
    "leave_group",
    "offset_commit",
    "offset_fetch",
    "offset_delete",
    "describe_groups",
    "list_groups",
    "delete_groups",
]


class Door:
    """A broker that knows the topic `t` of 8 partitions, asked as a connection asks it."""

    def __init__(
        self, driver: GroupDriver, node_count: int = 1, authorizer: Authorizer | None = None
    ) -> None:
        self.driver = driver
        self.nodes = Nodes(
            [Node(number, None, {"PLAIN": Endpoint("host", 9000 + number)}) for number in range(node_count)]
        )
        name = TopicName.parse("t")
        topic = SimpleNamespace(name=name, topic_id=TOPIC_ID, resource=topic_resource(name.full))
        driver.catalogue.partitions = {PREFIX + "t": 8}

        def get_by_id(topic_id: bytes) -> Any:
            if topic_id != TOPIC_ID:
                raise UnknownTopicId("no topic has this id")
            return topic

        topics: Any = SimpleNamespace(
            get_by_id=get_by_id, find=lambda name: topic if name == topic.name else None
        )
        names: Any = SimpleNamespace(
            name=TopicName.parse,
            shown=lambda name: name.kafka_name(),
            home="public/default",
            full_name_or_itself=lambda name: TopicName.parse(name).full,
        )
        self.large = LargeMessages(driver.clock.monotonic)
        transactions: Any = SimpleNamespace(pending_offsets=lambda group_id: set())
        access = AccessControl(authorizer or AllowAll(), MemoryAudit().audit)
        known = KnownGroups(access, driver.coordinator, driver.cursors, names.home)
        self.cases: Any = SimpleNamespace(
            kafka_names=names,
            groups=GroupCases(access, self.nodes, driver.coordinator, known, names),
            offsets=OffsetCases(
                access, self.nodes, driver.coordinator.offsets, transactions, topics, names, known
            ),
            nodes=NodeCases(access, self.nodes, topics, names, "cluster", ""),
        )
        self.node = self.nodes.all[0]

    def start(self, api: str, version: int, request: Any) -> list[Any]:
        """Ask; the list holds the response as soon as there is one."""
        codec = importlib.import_module(f"magnetar.wire.kafka.messages.{api}")
        handler = importlib.import_module(f"magnetar.protocols.kafka.handlers.{api}")
        parts: list[Any] = []
        asked = asking.load(codec.API_KEY)
        asked.encode_request(version, request, parts)
        decoded = codec.decode_request(version, memoryview(b"".join(parts)))
        context = RequestContext(
            service=SimpleNamespace(large=self.large),  # type: ignore[arg-type]
            cases=self.cases,
            caller=Caller(ANONYMOUS, "127.0.0.1"),
            node=self.node,
            listener_name="PLAIN",
            connection_id=1,
            client_host="127.0.0.1",
            local_host="127.0.0.1",
            api_version=version,
            client_id="client",
            owns_memory=False,
            meter=SimpleNamespace(),  # type: ignore[arg-type]
        )
        responses: list[Any] = []

        def respond(response: Any) -> None:
            response = response.response if isinstance(response, Large) else response
            out: list[Any] = []
            codec.encode_response(version, response, out)
            responses.append(asked.decode_response(version, memoryview(b"".join(out))))

        answer = self.driver.call(handler.handle, context, decoded)
        if isinstance(answer, Deferred):
            answer.attach(respond)
        elif is_coroutine(answer):
            respond(self.driver.wait(answer))
        else:
            respond(answer)
        return responses

    def ask(self, api: str, version: int, request: Any) -> Any:
        (response,) = self.start(api, version, request)
        return response

    def join(self, version: int, member_id: str = "", instance_id: str | None = None) -> list[Any]:
        return self.start(
            "join_group",
            version,
            JoinGroupRequest(
                "g",
                10_000,
                30_000 if version >= 1 else -1,
                member_id,
                instance_id,
                "consumer",
                [JoinGroupRequestProtocol("range", subscription("t"))],
                "because" if version >= 8 else None,
            ),
        )

    def stable(self) -> Any:
        (first,) = self.join(9)
        joining = self.join(9, first.member_id)
        self.driver.advance(3.0)
        (joined,) = joining
        self.ask("sync_group", 5, sync_request(5, joined))
        return joined


def sync_request(version: int, joined: Any) -> SyncGroupRequest:
    named = version >= 5
    return SyncGroupRequest(
        "g",
        joined.generation_id,
        joined.member_id,
        None,
        "consumer" if named else None,
        "range" if named else None,
        [SyncGroupRequestAssignment(joined.member_id, b"mine")],
    )


def versions(api: str) -> list[int]:
    low, high = importlib.import_module(f"magnetar.protocols.kafka.handlers.{api}").VERSIONS
    return list(range(low, high + 1))


@pytest.fixture
def driver() -> Iterator[GroupDriver]:
    with GroupDriver() as made:
        yield made


def test_every_group_error_has_a_code_of_its_own() -> None:
    assert len(set(GROUP_ERROR_CODES.values())) == len(GroupError)


@pytest.mark.parametrize("api", APIS)
def test_all_versions_that_the_codec_knows_are_served(api: str) -> None:
    codec = importlib.import_module(f"magnetar.wire.kafka.messages.{api}")
    assert (versions(api)[0], versions(api)[-1]) == codec.VERSIONS


@pytest.mark.parametrize("version", versions("join_group"))
def test_a_member_joins_syncs_beats_and_leaves_in_every_version(driver: GroupDriver, version: int) -> None:
    door = Door(driver)
    joining = door.join(version)
    if version >= 4:
        (first,) = joining
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joining = door.join(version, first.member_id)
    assert joining == []
    driver.advance(3.0)
    (joined,) = joining
    assert joined.error_code == ErrorCode.NONE
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [member.metadata for member in joined.members] == [subscription("t")]

    sync_version, beat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)
    synced = door.ask("sync_group", sync_version, sync_request(sync_version, joined))
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    beat = HeartbeatRequest("g", joined.generation_id, joined.member_id)
    assert door.ask("heartbeat", beat_version, beat).error_code == ErrorCode.NONE

    def leave(member_id: str) -> Any:
        if leave_version < 3:
            return door.ask("leave_group", leave_version, LeaveGroupRequest("g", member_id))
        members = [MemberIdentity(member_id, None, "bye" if leave_version >= 5 else None)]
        return door.ask("leave_group", leave_version, LeaveGroupRequest("g", "", members))

    unknown = leave("ghost")
    codes = [row.error_code for row in unknown.members] if leave_version >= 3 else [unknown.error_code]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    left = leave(joined.member_id)
    assert left.error_code == ErrorCode.NONE
    assert door.ask("heartbeat", beat_version, beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions("join_group"))
def test_a_refused_join_can_be_written_in_every_version(driver: GroupDriver, version: int) -> None:
    (refused,) = Door(driver).join(version, "ghost")
    assert (refused.error_code, refused.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)


def test_sync_from_version_5_on_must_name_the_protocol(driver: GroupDriver) -> None:
    door = Door(driver)
    joined = door.stable()
    nameless = SyncGroupRequest("g", joined.generation_id, joined.member_id)
    assert door.ask("sync_group", 4, nameless).error_code == ErrorCode.NONE
    assert door.ask("sync_group", 5, nameless).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def commit_request(version: int, *, topic_id: bytes = TOPIC_ID, name: str = "t") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(0, 5, 3 if version >= 6 else -1, "who"),
        OffsetCommitRequestPartition(1, 6, -1, None),
        OffsetCommitRequestPartition(99, 7),
    ]
    by_id = version >= 10
    topic = OffsetCommitRequestTopic("" if by_id else name, topic_id if by_id else bytes(16), partitions)
    return OffsetCommitRequest("g", -1, "", None, 60_000 if version <= 4 else -1, [topic])


@pytest.mark.parametrize("version", versions("offset_commit"))
def test_offsets_are_committed_in_every_version(driver: GroupDriver, version: int) -> None:
    response = Door(driver).ask("offset_commit", version, commit_request(version))
    (topic,) = response.topics
    assert [row.error_code for row in topic.partitions] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (topic.topic_id, topic.name) == ((TOPIC_ID, "") if version >= 10 else (bytes(16), "t"))
    expires = driver.clock.now_ms() + 60_000 if version <= 4 else None
    epoch = 3 if version >= 6 else -1
    committed = Cursor(5, "who", epoch, driver.clock.now_ms(), expires)
    assert driver.cursors.get(CursorKey("g", PREFIX + "t", 0)) == committed


def test_unknown_topics_are_refused_by_name_and_by_id(driver: GroupDriver) -> None:
    door = Door(driver)
    for version, code in ((9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)):
        for name in ("nowhere", "not//a name"):
            request = commit_request(version, topic_id=b"x" * 16, name=name)
            (topic,) = door.ask("offset_commit", version, request).topics
            assert {row.error_code for row in topic.partitions} == {code}


def test_full_names_and_short_ones_are_one_topic(driver: GroupDriver) -> None:
    door = Door(driver)
    door.ask("offset_commit", 9, commit_request(9, name=PREFIX + "t"))
    assert driver.committed(PREFIX + "t", 0) == 5


def fetch_request(
    version: int, partitions: list[int] | None, topic_id: bytes = TOPIC_ID
) -> OffsetFetchRequest:
    if version < 8:
        topics = None if partitions is None else [OffsetFetchRequestTopic("t", partitions)]
        return OffsetFetchRequest("g", topics)
    by_id = version >= 10
    wanted = [
        OffsetFetchRequestTopics("" if by_id else "t", topic_id if by_id else bytes(16), partitions or [])
    ]
    group = OffsetFetchRequestGroup("g", topics=None if partitions is None else wanted)
    return OffsetFetchRequest(groups=[group, OffsetFetchRequestGroup("other", topics=None)])


@pytest.mark.parametrize("version", versions("offset_fetch"))
def test_offsets_are_fetched_in_every_version(driver: GroupDriver, version: int) -> None:
    door = Door(driver)
    door.ask("offset_commit", 9, commit_request(9))
    for partitions in ([1, 0, 2], None):
        if partitions is None and version < 2:
            continue
        response = door.ask("offset_fetch", version, fetch_request(version, partitions))
        if version >= 8:
            assert [group.group_id for group in response.groups] == ["g", "other"]
            assert response.groups[1].topics == []
            response = response.groups[0]
        assert response.error_code == ErrorCode.NONE
        (topic,) = response.topics
        rows = [(row.partition_index, row.committed_offset, row.metadata) for row in topic.partitions]
        known = [(0, 5, "who"), (1, 6, "")]
        assert rows == ([known[1], known[0], (2, -1, "")] if partitions else known)
        if version >= 5:
            assert {row.committed_leader_epoch for row in topic.partitions} == {3, -1}
        assert {row.error_code for row in topic.partitions} == {ErrorCode.NONE}
        if version >= 10:
            assert topic.topic_id == TOPIC_ID
        else:
            assert topic.name == "t"


def test_an_unknown_topic_id_is_an_error_and_an_unknown_name_is_not(driver: GroupDriver) -> None:
    door = Door(driver)
    by_id = door.ask("offset_fetch", 10, fetch_request(10, [0], b"x" * 16)).groups[0].topics[0].partitions[0]
    assert (by_id.committed_offset, by_id.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("not//a name", [0])])
    by_name = door.ask("offset_fetch", 7, request).topics[0].partitions[0]
    assert (by_name.committed_offset, by_name.error_code) == (-1, ErrorCode.NONE)


def test_offsets_are_deleted(driver: GroupDriver) -> None:
    door = Door(driver)
    request = OffsetDeleteRequest(
        "g",
        [
            OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)]),
            OffsetDeleteRequestTopic("nowhere", [OffsetDeleteRequestPartition(0)]),
            OffsetDeleteRequestTopic("not//a name", [OffsetDeleteRequestPartition(0)]),
        ],
    )
    assert door.ask("offset_delete", 0, request).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert door.ask("offset_delete", 0, OffsetDeleteRequest("")).error_code == ErrorCode.INVALID_GROUP_ID
    door.ask("offset_commit", 9, commit_request(9))
    response = door.ask("offset_delete", 0, request)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [ErrorCode.NONE, unknown, unknown]
    assert driver.committed(PREFIX + "t", 0) is None


@pytest.mark.parametrize("version", versions("describe_groups"))
def test_groups_are_described_in_every_version(driver: GroupDriver, version: int) -> None:
    door = Door(driver)
    joined = door.stable()
    request = DescribeGroupsRequest(["g", "missing"], include_authorized_operations=version >= 3)
    found, missing = door.ask("describe_groups", version, request).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (ErrorCode.NONE, "Stable", "range")
    (member,) = found.members
    assert (member.member_id, member.client_host) == (joined.member_id, "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"mine")
    assert (found.authorized_operations > 0) == (version >= 3)
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert missing.error_message == ("Group missing not found." if version >= 6 else None)


@pytest.mark.parametrize("version", versions("list_groups"))
def test_groups_are_listed_in_every_version(driver: GroupDriver, version: int) -> None:
    door = Door(driver)
    door.stable()
    request = ListGroupsRequest(["stable"] if version >= 4 else [], ["classic"] if version >= 5 else [])
    (group,) = door.ask("list_groups", version, request).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", versions("delete_groups"))
def test_groups_are_deleted_in_every_version(driver: GroupDriver, version: int) -> None:
    door = Door(driver)
    door.stable()
    driver.commit(group_id="empty")
    door.ask("offset_commit", 9, commit_request_of("empty"))
    response = door.ask("delete_groups", version, DeleteGroupsRequest(["g", "empty", "missing", "g"]))
    assert {row.group_id: row.error_code for row in response.results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "empty": ErrorCode.NONE,
        "missing": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def commit_request_of(group_id: str) -> OffsetCommitRequest:
    request = commit_request(9)
    request.group_id = group_id
    return request


@pytest.mark.parametrize("version", versions("find_coordinator"))
def test_each_key_has_one_coordinator_whichever_node_is_asked(driver: GroupDriver, version: int) -> None:
    door = Door(driver, node_count=3)
    seen = set()
    for key in ("g", "h", "", "ünï", *(str(number) for number in range(20))):
        nodes = set()
        for asked in door.nodes.all:
            door.node = asked
            if version >= 4:
                (row,) = door.ask(
                    "find_coordinator", version, FindCoordinatorRequest("", 0, [key])
                ).coordinators
                assert row.key == key
            else:
                row = door.ask("find_coordinator", version, FindCoordinatorRequest(key))
            assert (row.error_code, row.host, row.port) == (ErrorCode.NONE, "host", 9000 + row.node_id)
            nodes.add(row.node_id)
        assert len(nodes) == 1
        seen |= nodes
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_share_groups_have_no_coordinator_here(driver: GroupDriver, version: int) -> None:
    request = FindCoordinatorRequest("k" if version < 4 else "", 2, ["k"] if version >= 4 else [])
    response = Door(driver).ask("find_coordinator", version, request)
    row = response.coordinators[0] if version >= 4 else response
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert row.error_message


def test_any_other_node_says_that_it_is_not_the_coordinator(driver: GroupDriver) -> None:
    door = Door(driver, node_count=3)
    right = door.nodes.coordinator_of("g")
    door.node = next(node for node in door.nodes.all if node is not right)
    code = ErrorCode.NOT_COORDINATOR
    (joined,) = door.join(9)
    assert joined.error_code == code
    assert door.ask("sync_group", 5, SyncGroupRequest("g")).error_code == code
    assert door.ask("heartbeat", 4, HeartbeatRequest("g")).error_code == code
    assert door.ask("leave_group", 0, LeaveGroupRequest("g", "m")).error_code == code
    assert door.ask("leave_group", 5, LeaveGroupRequest("g", "", [MemberIdentity("m")])).error_code == code
    (topic,) = door.ask("offset_commit", 9, commit_request(9)).topics
    assert {row.error_code for row in topic.partitions} == {code}
    assert door.ask("offset_fetch", 7, fetch_request(7, [0])).error_code == code
    assert door.ask("offset_fetch", 10, fetch_request(10, [0])).groups[0].error_code == code
    (topic,) = door.ask("offset_fetch", 1, fetch_request(1, [0])).topics
    assert [row.error_code for row in topic.partitions] == [code]
    assert door.ask("offset_delete", 0, OffsetDeleteRequest("g")).error_code == code
    assert door.ask("describe_groups", 6, DescribeGroupsRequest(["g"])).groups[0].error_code == code
    assert door.ask("delete_groups", 2, DeleteGroupsRequest(["g"])).results[0].error_code == code
    driver.stable()
    assert door.ask("list_groups", 5, ListGroupsRequest()).groups == []
    door.node = right
    assert len(door.ask("list_groups", 5, ListGroupsRequest()).groups) == 1
