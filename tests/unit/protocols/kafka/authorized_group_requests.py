"""The smallest request of each kind to groups and transactions, see `authorized_kinds.py`."""

from typing import Final

from magnetar.broker.security.model import Operation
from magnetar.wire.kafka.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from magnetar.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from magnetar.wire.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    RequestPartition,
)
from magnetar.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from magnetar.wire.kafka.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from magnetar.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
)
from magnetar.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest
from magnetar.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from magnetar.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from magnetar.wire.kafka.messages.list_transactions import ListTransactionsRequest
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
from magnetar.wire.kafka.messages.share_acknowledge import ShareAcknowledgeRequest
from magnetar.wire.kafka.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from magnetar.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from magnetar.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from magnetar.wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from magnetar.wire.kafka.messages.sync_group import SyncGroupRequest
from magnetar.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.protocols.kafka.authorized_kinds import (
    CLUSTER,
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TXN,
    TXN_DENIED,
    Kind,
    Names,
    right,
)


def _commit(names: Names) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(0, 2)]
    topic = OffsetCommitRequestTopic(names.topic, names.topic_id, rows)
    return OffsetCommitRequest(names.group, topics=[topic])


def _commit_in_transaction(names: Names) -> TxnOffsetCommitRequest:
    topic = TxnOffsetCommitRequestTopic(names.topic, [TxnOffsetCommitRequestPartition(0, 2)])
    return TxnOffsetCommitRequest(names.transactional_id, names.group, names.producer_id, 0, topics=[topic])


GROUP_KINDS: Final = [
    Kind(
        "add_offsets_to_txn",
        3,
        lambda n: AddOffsetsToTxnRequest(n.transactional_id, n.producer_id, 0, n.group),
        right(Operation.WRITE, TXN, TXN_DENIED) | right(Operation.READ, GROUP, GROUP_DENIED),
    ),
    Kind(
        "add_partitions_to_txn",
        3,
        lambda n: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=n.transactional_id,
            v3_and_below_producer_id=n.producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(n.topic, [0])],
        ),
        right(Operation.WRITE, TXN, 0, TXN_DENIED) | right(Operation.WRITE, TOPIC, 0, TOPIC_DENIED),
        note="of a producer",
    ),
    Kind(
        "add_partitions_to_txn",
        5,
        lambda n: AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(
                    n.transactional_id, n.producer_id, 0, False, [AddPartitionsToTxnTopic(n.topic, [0])]
                )
            ]
        ),
        right(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
    ),
    Kind(
        "delete_groups",
        2,
        lambda n: DeleteGroupsRequest([n.group]),
        right(Operation.DELETE, GROUP, GROUP_DENIED),
    ),
    Kind(
        "consumer_group_describe",
        1,
        lambda n: ConsumerGroupDescribeRequest([n.group]),
        right(Operation.DESCRIBE, GROUP, GROUP_DENIED),
    ),
    Kind(
        "consumer_group_heartbeat",
        1,
        lambda n: ConsumerGroupHeartbeatRequest(
            "other-group", "m", 0, None, None, 1000, [n.topic], topic_partitions=[]
        ),
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "describe_groups",
        6,
        lambda n: DescribeGroupsRequest([n.group]),
        right(Operation.DESCRIBE, GROUP, GROUP_DENIED),
    ),
    Kind(
        "describe_transactions",
        0,
        lambda n: DescribeTransactionsRequest([n.transactional_id]),
        right(Operation.DESCRIBE, TXN, TXN_DENIED),
        frozenset({(Operation.DESCRIBE, TOPIC)}),
    ),
    Kind(
        "end_txn",
        3,
        lambda n: EndTxnRequest(n.transactional_id, n.producer_id, 0, True),
        right(Operation.WRITE, TXN, TXN_DENIED),
    ),
    Kind(
        "find_coordinator",
        4,
        lambda n: FindCoordinatorRequest(key_type=0, coordinator_keys=[n.group]),
        right(Operation.DESCRIBE, GROUP, 0, GROUP_DENIED),
        note="of a group",
    ),
    Kind(
        "find_coordinator",
        3,
        lambda n: FindCoordinatorRequest(n.transactional_id, 1),
        right(Operation.DESCRIBE, TXN, TXN_DENIED),
        note="of a transactional id",
    ),
    Kind("heartbeat", 4, lambda n: HeartbeatRequest(n.group), right(Operation.READ, GROUP, GROUP_DENIED)),
    Kind(
        "init_producer_id",
        4,
        lambda n: InitProducerIdRequest(n.transactional_id, 60_000, -1, -1),
        right(Operation.WRITE, TXN, TXN_DENIED),
        note="of a transactional id",
    ),
    Kind(
        "init_producer_id",
        4,
        lambda n: InitProducerIdRequest(None, 60_000, -1, -1),
        {frozenset({(Operation.WRITE, TOPIC), (Operation.IDEMPOTENT_WRITE, CLUSTER)}): [CLUSTER_DENIED]},
        note="without one",
    ),
    Kind(
        "join_group",
        9,
        lambda n: JoinGroupRequest(
            n.group, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
        ),
        right(Operation.READ, GROUP, GROUP_DENIED),
    ),
    Kind(
        "leave_group",
        5,
        lambda n: LeaveGroupRequest(n.group, members=[MemberIdentity("m")]),
        right(Operation.READ, GROUP, GROUP_DENIED),
    ),
    Kind(
        "list_groups",
        5,
        lambda n: ListGroupsRequest(),
        {frozenset({(Operation.DESCRIBE, CLUSTER), (Operation.DESCRIBE, GROUP)}): [0]},
    ),
    Kind("list_transactions", 1, lambda n: ListTransactionsRequest(), right(Operation.DESCRIBE, TXN, 0)),
    Kind(
        "offset_commit",
        8,
        _commit,
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.READ, TOPIC, TOPIC_DENIED),
        note="by name",
    ),
    Kind(
        "offset_commit",
        10,
        _commit,
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.READ, TOPIC, TOPIC_DENIED),
        note="by id",
    ),
    Kind(
        "offset_delete",
        0,
        lambda n: OffsetDeleteRequest(
            n.group, [OffsetDeleteRequestTopic(n.topic, [OffsetDeleteRequestPartition(0)])]
        ),
        right(Operation.DELETE, GROUP, GROUP_DENIED) | right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
    ),
    Kind(
        "offset_fetch",
        1,
        lambda n: OffsetFetchRequest(n.group, [OffsetFetchRequestTopic(n.topic, [0])]),
        right(Operation.DESCRIBE, GROUP, GROUP_DENIED, 0) | right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED, 0),
        note="of one group, in old versions",
    ),
    Kind(
        "offset_fetch",
        8,
        lambda n: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(n.group, topics=[OffsetFetchRequestTopics(n.topic, n.topic_id, [0])])
            ]
        ),
        right(Operation.DESCRIBE, GROUP, 0, GROUP_DENIED)
        | right(Operation.DESCRIBE, TOPIC, 0, TOPIC_DENIED, 0),
        note="by name",
    ),
    Kind(
        "offset_fetch",
        10,
        lambda n: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(n.group, topics=[OffsetFetchRequestTopics(n.topic, n.topic_id, [0])])
            ]
        ),
        right(Operation.DESCRIBE, GROUP, 0, GROUP_DENIED)
        | right(Operation.DESCRIBE, TOPIC, 0, TOPIC_DENIED, 0),
        note="by id",
    ),
    Kind(
        "offset_fetch",
        8,
        lambda n: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(n.group, topics=None)]),
        right(Operation.DESCRIBE, GROUP, 0, GROUP_DENIED) | right(Operation.DESCRIBE, TOPIC, 0, 0),
        note="of all topics",
    ),
    Kind(
        "alter_share_group_offsets",
        0,
        lambda n: AlterShareGroupOffsetsRequest(
            n.group, [alter_share_group_offsets.RequestTopic(n.topic, [RequestPartition(0, 2)])]
        ),
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
    ),
    Kind(
        "delete_share_group_offsets",
        0,
        lambda n: DeleteShareGroupOffsetsRequest(n.group, [delete_share_group_offsets.RequestTopic(n.topic)]),
        right(Operation.DELETE, GROUP, GROUP_DENIED) | right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
    ),
    Kind(
        "describe_share_group_offsets",
        1,
        lambda n: DescribeShareGroupOffsetsRequest(
            [RequestGroup(n.group, [describe_share_group_offsets.RequestTopic(n.topic, [0])])]
        ),
        right(Operation.DESCRIBE, GROUP, GROUP_DENIED) | right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED, 0),
        note="of named topics",
    ),
    Kind(
        "share_acknowledge",
        2,
        lambda n: ShareAcknowledgeRequest(n.group, "m", 1),
        right(Operation.READ, GROUP, GROUP_DENIED),
    ),
    Kind(
        "share_fetch",
        2,
        lambda n: ShareFetchRequest(
            "sharers",
            "m",
            max_records=10,
            topics=[FetchTopic(n.topic_id, [FetchPartition(0)])],
        ),
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
        note="by id",
    ),
    Kind(
        "share_group_describe",
        1,
        lambda n: ShareGroupDescribeRequest([n.group]),
        right(Operation.DESCRIBE, GROUP, GROUP_DENIED),
    ),
    Kind(
        "share_group_heartbeat",
        1,
        lambda n: ShareGroupHeartbeatRequest("sharers", "m", 0, None, [n.topic]),
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "streams_group_describe",
        0,
        lambda n: StreamsGroupDescribeRequest([n.group]),
        right(Operation.DESCRIBE, GROUP, GROUP_DENIED),
    ),
    Kind(
        "streams_group_heartbeat",
        0,
        lambda n: StreamsGroupHeartbeatRequest(
            "application",
            "m",
            rebalance_timeout_ms=1000,
            topology=Topology(0, [Subtopology("0", [n.topic], [], [TopicInfo("changelog")])]),
            process_id="p",
        ),
        right(Operation.READ, GROUP, GROUP_DENIED) | right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
        frozenset({(Operation.CREATE, CLUSTER), (Operation.CREATE, TOPIC)}),
    ),
    Kind(
        "sync_group",
        5,
        lambda n: SyncGroupRequest(n.group, 1, "m", None, "consumer", "range"),
        right(Operation.READ, GROUP, GROUP_DENIED),
    ),
    Kind(
        "txn_offset_commit",
        3,
        _commit_in_transaction,
        right(Operation.WRITE, TXN, TXN_DENIED)
        | right(Operation.READ, GROUP, GROUP_DENIED)
        | right(Operation.READ, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "write_txn_markers",
        2,
        lambda n: WriteTxnMarkersRequest(
            [WritableTxnMarker(n.producer_id, 0, False, [WritableTxnMarkerTopic(n.topic, [0])], 0, 0)]
        ),
        {frozenset({(Operation.ALTER, CLUSTER), (Operation.CLUSTER_ACTION, CLUSTER)}): [CLUSTER_DENIED]},
    ),
]
