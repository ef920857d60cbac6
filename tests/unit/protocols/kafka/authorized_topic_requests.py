"""The smallest request of each kind about topics, and about the nodes and disks that have their partitions, see
`authorized_kinds.py`.
"""

from typing import Final

from magnetar.broker.security.authorizer import OPERATIONS
from magnetar.broker.security.model import Operation
from magnetar.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from magnetar.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from magnetar.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from magnetar.wire.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from magnetar.wire.kafka.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from magnetar.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.protocols.kafka.authorized_kinds import (
    CLUSTER,
    CLUSTER_DENIED,
    TOPIC,
    TOPIC_DENIED,
    Kind,
    right,
)

_CREATE: Final = frozenset({(Operation.CREATE, CLUSTER), (Operation.CREATE, TOPIC)})
_SHOWN: Final = frozenset(
    (one, TOPIC) for one in OPERATIONS[TOPIC] if one is not Operation.DESCRIBE
)  # as bits
TO_BE_MADE: Final = "to-be-made"  # a topic that is not there

TOPIC_KINDS: Final = [
    Kind(
        "metadata",
        12,
        lambda n: MetadataRequest([MetadataRequestTopic(name=n.topic)], True),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED, 0),
        note="by name",
    ),
    Kind(
        "metadata",
        12,
        lambda n: MetadataRequest([MetadataRequestTopic(name=TO_BE_MADE)], True),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED, 0) | {_CREATE: [TOPIC_DENIED, 0]},
        note="of a topic that is made",
    ),
    Kind(
        "metadata",
        12,
        lambda n: MetadataRequest([MetadataRequestTopic(n.topic_id, None)]),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED, 0),
        note="by id",
    ),
    Kind(
        "metadata",
        12,
        lambda n: MetadataRequest(None),
        right(Operation.DESCRIBE, TOPIC, 0),
        note="of all topics",
    ),
    Kind(
        "create_topics",
        7,
        lambda n: CreateTopicsRequest([CreatableTopic(n.topic, 1, 1)], 1000),
        {_CREATE: [TOPIC_DENIED]},
        frozenset({(Operation.DESCRIBE_CONFIGS, TOPIC)}),
    ),
    Kind(
        "create_partitions",
        3,
        lambda n: CreatePartitionsRequest([CreatePartitionsTopic(n.topic, 5, None)], 1000),
        right(Operation.ALTER, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "delete_topics",
        5,
        lambda n: DeleteTopicsRequest(topic_names=[n.topic]),
        right(Operation.DELETE, TOPIC, TOPIC_DENIED),
        note="by name",
    ),
    Kind(
        "delete_topics",
        6,
        lambda n: DeleteTopicsRequest([DeleteTopicState(None, n.topic_id)]),
        right(Operation.DELETE, TOPIC, TOPIC_DENIED),
        note="by id",
    ),
    Kind(
        "describe_topic_partitions",
        0,
        lambda n: DescribeTopicPartitionsRequest([DescribedTopic(n.topic)], 10),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
        _SHOWN,
        note="by name",
    ),
    Kind(
        "describe_topic_partitions",
        0,
        lambda n: DescribeTopicPartitionsRequest([], 10),
        right(Operation.DESCRIBE, TOPIC),
        _SHOWN,
        note="of all topics",
    ),
    Kind(
        "elect_leaders",
        2,
        lambda n: ElectLeadersRequest(0, [TopicPartitions(n.topic, [0])], 1000),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED, CLUSTER_DENIED),
    ),
    Kind(
        "alter_partition_reassignments",
        1,
        lambda n: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(n.topic, [ReassignablePartition(0, None)])]
        ),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "list_partition_reassignments",
        0,
        lambda n: ListPartitionReassignmentsRequest(1000, None),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "alter_replica_log_dirs",
        2,
        lambda n: AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir(n.data_dir, [AlterReplicaLogDirTopic(n.topic, [0])])]
        ),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_log_dirs",
        4,
        lambda n: DescribeLogDirsRequest(None),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_quorum",
        2,
        lambda n: DescribeQuorumRequest(
            [DescribeQuorumTopic("__cluster_metadata", [DescribeQuorumPartition(0)])]
        ),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
]
