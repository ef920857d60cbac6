"""The smallest request of each kind, see `authorized_kinds.py`."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from magnetar.broker.security.authorizer import OPERATIONS
from magnetar.broker.security.model import Operation
from magnetar.protocols.kafka.admin_configs import ResourceType as ConfigType
from magnetar.wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from magnetar.wire.kafka.messages.alter_client_quotas import EntityData as QuotaEntity
from magnetar.wire.kafka.messages.alter_client_quotas import EntryData as QuotaEntry
from magnetar.wire.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
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
from magnetar.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.describe_acls import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from magnetar.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from magnetar.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from magnetar.wire.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from magnetar.wire.kafka.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from magnetar.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from magnetar.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.expire_delegation_token import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from magnetar.wire.kafka.messages.incremental_alter_configs import AlterableConfig as Change
from magnetar.wire.kafka.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from magnetar.wire.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from magnetar.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magnetar.wire.kafka.messages.push_telemetry import PushTelemetryRequest
from magnetar.wire.kafka.messages.renew_delegation_token import RenewDelegationTokenRequest
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.unit.protocols.kafka.authorized_group_requests import GROUP_KINDS
from tests.unit.protocols.kafka.authorized_kinds import (
    CLUSTER,
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    INSTANCE_ID,
    TELEMETRY_ID,
    TOKEN,
    TOKEN_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TXN,
    TXN_DENIED,
    USER,
    Kind,
    Names,
    right,
)


def _config(kind: ConfigType, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])


def _change(kind: ConfigType, name: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest([ChangedResource(kind, name, [Change(key, 0, value)])])


def _fetch(**topic: Any) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(partitions=[partition], **topic)],
    )


def _produce(names: Names, **fields: Any) -> ProduceRequest:
    data = [PartitionProduceData(0, names.batch)]
    topic = TopicProduceData(names.topic, names.topic_id, data)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic], **fields)


_CREATE: Final = frozenset({(Operation.CREATE, CLUSTER), (Operation.CREATE, TOPIC)})
_SHOWN: Final = frozenset(
    (one, TOPIC) for one in OPERATIONS[TOPIC] if one is not Operation.DESCRIBE
)  # as bits
_BROKER: Final = "1"
_LOGGER: Final = logging.getLogger("magnetar.tests.denied")  # its own: its level stays as it is set
TO_BE_MADE: Final = "to-be-made"  # a topic that is not there

KINDS: Final = [
    *GROUP_KINDS,
    Kind(
        "alter_configs",
        2,
        lambda n: AlterConfigsRequest(
            [AlterConfigsResource(ConfigType.TOPIC, n.topic, [AlterableConfig("retention.ms", "9")])]
        ),
        right(Operation.ALTER_CONFIGS, TOPIC, TOPIC_DENIED),
        note="of a topic",
    ),
    Kind(
        "alter_configs",
        2,
        lambda n: AlterConfigsRequest([AlterConfigsResource(ConfigType.BROKER, _BROKER)]),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
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
        "alter_replica_log_dirs",
        2,
        lambda n: AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir(n.data_dir, [AlterReplicaLogDirTopic(n.topic, [0])])]
        ),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "create_partitions",
        3,
        lambda n: CreatePartitionsRequest([CreatePartitionsTopic(n.topic, 5, None)], 1000),
        right(Operation.ALTER, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "create_topics",
        7,
        lambda n: CreateTopicsRequest([CreatableTopic(n.topic, 1, 1)], 1000),
        {_CREATE: [TOPIC_DENIED]},
        frozenset({(Operation.DESCRIBE_CONFIGS, TOPIC)}),
    ),
    Kind(
        "delete_records",
        2,
        lambda n: DeleteRecordsRequest([DeleteRecordsTopic(n.topic, [DeleteRecordsPartition(0, 1)])], 1000),
        right(Operation.DELETE, TOPIC, TOPIC_DENIED),
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
        "describe_configs",
        4,
        lambda n: _config(ConfigType.TOPIC, n.topic),
        right(Operation.DESCRIBE_CONFIGS, TOPIC, TOPIC_DENIED),
        note="of a topic",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.BROKER, _BROKER),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.BROKER, ""),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of all brokers",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.BROKER_LOGGER, _BROKER),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of loggers",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.CLIENT_METRICS, "m"),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of client metrics",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.GROUP, n.group),
        right(Operation.DESCRIBE_CONFIGS, GROUP, GROUP_DENIED),
        note="of a group",
    ),
    Kind(
        "describe_log_dirs",
        4,
        lambda n: DescribeLogDirsRequest(None),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_producers",
        0,
        lambda n: DescribeProducersRequest([TopicRequest(n.topic, [0])]),
        right(Operation.READ, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "create_acls",
        3,
        lambda n: CreateAclsRequest([AclCreation(2, n.topic, 3, "User:ann", "*", 3, 3)]),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "delete_acls",
        3,
        lambda n: DeleteAclsRequest([DeleteAclsFilter(2, n.topic, 1, None, None, 1, 1)]),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_acls",
        3,
        lambda n: DescribeAclsRequest(1, None, 1, None, None, 1, 1),
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
        "alter_client_quotas",
        1,
        lambda n: AlterClientQuotasRequest(
            [QuotaEntry([QuotaEntity("user", "u")], [OpData("producer_byte_rate", 1.0)])]
        ),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_client_quotas",
        1,
        lambda n: DescribeClientQuotasRequest(),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "alter_user_scram_credentials",
        0,
        lambda n: AlterUserScramCredentialsRequest([], [ScramCredentialUpsertion("u", 1, 4096, b"s", b"p")]),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_user_scram_credentials",
        0,
        lambda n: DescribeUserScramCredentialsRequest(None),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "create_delegation_token",
        3,
        lambda n: CreateDelegationTokenRequest("User", "bob", [], -1),
        right(Operation.CREATE_TOKENS, USER, TOKEN_DENIED),
    ),
    Kind(
        "describe_delegation_token",
        3,
        lambda n: DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "bob")]),
        {frozenset({(Operation.DESCRIBE, TOKEN), (Operation.DESCRIBE_TOKENS, USER)}): [0]},
    ),
    # A token's owner and its renewers need no rule for these.
    Kind("renew_delegation_token", 2, lambda n: RenewDelegationTokenRequest(n.token_hmac, -1), {}),
    Kind("expire_delegation_token", 2, lambda n: ExpireDelegationTokenRequest(n.token_hmac, -1), {}),
    Kind(
        "elect_leaders",
        2,
        lambda n: ElectLeadersRequest(0, [TopicPartitions(n.topic, [0])], 1000),
        right(Operation.ALTER, CLUSTER, CLUSTER_DENIED, CLUSTER_DENIED),
    ),
    Kind(
        "fetch",
        12,
        lambda n: _fetch(topic=n.topic),
        right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
        note="by name",
    ),
    Kind(
        "fetch",
        13,
        lambda n: _fetch(topic_id=n.topic_id),
        right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
        note="by id",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: _change(ConfigType.TOPIC, n.topic, "retention.ms", "9"),
        right(Operation.ALTER_CONFIGS, TOPIC, TOPIC_DENIED),
        note="of a topic",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: IncrementalAlterConfigsRequest([ChangedResource(ConfigType.BROKER, _BROKER)]),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: _change(ConfigType.BROKER_LOGGER, _BROKER, _LOGGER.name, "ERROR"),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of loggers",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: IncrementalAlterConfigsRequest(
            [ChangedResource(ConfigType.CLIENT_METRICS, "m", [Change("interval.ms", 0, "50000")])]
        ),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of client metrics",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: IncrementalAlterConfigsRequest(
            [ChangedResource(ConfigType.GROUP, n.group, [Change("consumer.session.timeout.ms", 0, "50000")])]
        ),
        right(Operation.ALTER_CONFIGS, GROUP, GROUP_DENIED),
        note="of a group",
    ),
    Kind(
        "list_config_resources",
        1,
        lambda n: ListConfigResourcesRequest([]),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "list_offsets",
        7,
        lambda n: ListOffsetsRequest(
            topics=[ListOffsetsTopic(n.topic, [ListOffsetsPartition(0, timestamp=-1)])]
        ),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "list_partition_reassignments",
        0,
        lambda n: ListPartitionReassignmentsRequest(1000, None),
        right(Operation.DESCRIBE, CLUSTER, CLUSTER_DENIED),
    ),
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
        "offset_for_leader_epoch",
        4,
        lambda n: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(n.topic, [OffsetForLeaderPartition(0, leader_epoch=0)])]
        ),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    ),
    Kind("produce", 9, _produce, right(Operation.WRITE, TOPIC, TOPIC_DENIED), note="by name"),
    Kind("produce", 13, _produce, right(Operation.WRITE, TOPIC, TOPIC_DENIED), note="by id"),
    Kind(
        "produce",
        9,
        lambda n: _produce(n, transactional_id=n.transactional_id),
        right(Operation.WRITE, TXN, TXN_DENIED) | right(Operation.WRITE, TOPIC, TOPIC_DENIED),
        note="in a transaction",
    ),
]

ASKS_NOTHING: Final[Mapping[str, tuple[int, Any, str]]] = {
    "sasl_handshake": (1, SaslHandshakeRequest("PLAIN"), "a client that logs in has no rights yet"),
    "sasl_authenticate": (2, SaslAuthenticateRequest(b"x"), "a client that logs in has no rights yet"),
    "api_versions": (
        0,
        ApiVersionsRequest(),
        "a client has to know what is served before it can say who it is",
    ),
    "describe_cluster": (
        1,
        DescribeClusterRequest(),
        "every client has to find the nodes, and is told of them by Metadata as well",
    ),
    "get_telemetry_subscriptions": (
        0,
        GetTelemetrySubscriptionsRequest(),
        "a client is told what it is to push itself, and of no other client",
    ),
    "push_telemetry": (
        0,
        PushTelemetryRequest(INSTANCE_ID, TELEMETRY_ID),
        "what a client says of itself is bounded, and shown to who may see the server's metrics",
    ),
}
