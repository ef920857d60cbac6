"""What a client asks first: Metadata, ApiVersions, FindCoordinator; and DescribeCluster, DescribeQuorum,
DescribeTopicPartitions.

Metadata: v4 topics may be created on the way; v5 offline replicas; v7 leader epochs (KIP-320); v8
authorized operations (KIP-430); v9 flexible; v10 and v12 topic ids (KIP-516); v13 an error for the whole
answer (KIP-1102). ApiVersions: v3 flexible (the response header never is) with the client's name and the
features (KIP-584). FindCoordinator: v1 transactions; v4 several keys at once (KIP-699); v6 share groups
(KIP-932).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Api,
    F,
    S,
)

_NO_OPERATIONS: Final = -2147483648  # "not asked for", as Kafka says it

METADATA: Final = Api(
    name="Metadata",
    key=3,
    versions="0-13",
    flexible="9+",
    request=(
        F("topics", [S(
            "MetadataRequestTopic",
            F("topic_id", UUID, "10+"),
            F("name", STRING, nullable="10+"),
        )], nullable="1+"),
        F("allow_auto_topic_creation", BOOLEAN, "4+", default=True),
        F("include_cluster_authorized_operations", BOOLEAN, "8-10"),
        F("include_topic_authorized_operations", BOOLEAN, "8+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "3+"),
        F("brokers", [S(
            "MetadataResponseBroker",
            F("node_id", INT32),
            F("host", STRING),
            F("port", INT32),
            F("rack", STRING, "1+", nullable="1+", default=None),
        )]),
        F("cluster_id", STRING, "2+", nullable="2+", default=None),
        F("controller_id", INT32, "1+", default=-1),
        F("topics", [S(
            "MetadataResponseTopic",
            F("error_code", INT16),
            F("name", STRING, nullable="12+"),
            F("topic_id", UUID, "10+"),
            F("is_internal", BOOLEAN, "1+"),
            F("partitions", [S(
                "MetadataResponsePartition",
                F("error_code", INT16),
                F("partition_index", INT32),
                F("leader_id", INT32),
                F("leader_epoch", INT32, "7+", default=-1),
                F("replica_nodes", [INT32]),
                F("isr_nodes", [INT32]),
                F("offline_replicas", [INT32], "5+"),
            )]),
            F("topic_authorized_operations", INT32, "8+", default=_NO_OPERATIONS),
        )]),
        F("cluster_authorized_operations", INT32, "8-10", default=_NO_OPERATIONS),
        F("error_code", INT16, "13+"),
    ),
)  # fmt: skip

API_VERSIONS: Final = Api(
    name="ApiVersions",
    key=18,
    versions="0-4",
    flexible="3+",
    request=(
        F("client_software_name", STRING, "3+"),
        F("client_software_version", STRING, "3+"),
    ),
    response=(
        F("error_code", INT16),
        F("api_keys", [S(
            "ApiVersion",
            F("api_key", INT16),
            F("min_version", INT16),
            F("max_version", INT16),
        )]),
        F("throttle_time_ms", INT32, "1+"),
        F("supported_features", [S(
            "SupportedFeatureKey",
            F("name", STRING, "3+"),
            F("min_version", INT16, "3+"),
            F("max_version", INT16, "3+"),
        )], "3+", tag=0, tagged="3+"),
        F("finalized_features_epoch", INT64, "3+", default=-1, tag=1, tagged="3+"),
        F("finalized_features", [S(
            "FinalizedFeatureKey",
            F("name", STRING, "3+"),
            F("max_version_level", INT16, "3+"),
            F("min_version_level", INT16, "3+"),
        )], "3+", tag=2, tagged="3+"),
        F("zk_migration_ready", BOOLEAN, "3+", tag=3, tagged="3+"),
    ),
)  # fmt: skip

FIND_COORDINATOR: Final = Api(
    name="FindCoordinator",
    key=10,
    versions="0-6",
    flexible="3+",
    request=(
        F("key", STRING, "0-3"),
        F("key_type", INT8, "1+"),
        F("coordinator_keys", [STRING], "4+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("error_code", INT16, "0-3"),
        F("error_message", STRING, "1-3", nullable="1-3"),
        F("node_id", INT32, "0-3"),
        F("host", STRING, "0-3"),
        F("port", INT32, "0-3"),
        F("coordinators", [S(
            "Coordinator",
            F("key", STRING, "4+"),
            F("node_id", INT32, "4+"),
            F("host", STRING, "4+"),
            F("port", INT32, "4+"),
            F("error_code", INT16, "4+"),
            F("error_message", STRING, "4+", nullable="4+"),
        )], "4+"),
    ),
)  # fmt: skip

DESCRIBE_CLUSTER: Final = Api(
    name="DescribeCluster",
    key=60,
    versions="0-2",
    flexible="0+",
    request=(
        F("include_cluster_authorized_operations", BOOLEAN),
        F("endpoint_type", INT8, "1+", default=1),
        F("include_fenced_brokers", BOOLEAN, "2+"),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("endpoint_type", INT8, "1+", default=1),
        F("cluster_id", STRING),
        F("controller_id", INT32, default=-1),
        F("brokers", [S(
            "DescribeClusterBroker",
            F("broker_id", INT32),
            F("host", STRING),
            F("port", INT32),
            F("rack", STRING, nullable="0+", default=None),
            F("is_fenced", BOOLEAN, "2+"),
        )]),
        F("cluster_authorized_operations", INT32, default=_NO_OPERATIONS),
    ),
)  # fmt: skip

_REPLICA_STATES: Final = [S(
    "ReplicaState",
    F("replica_id", INT32),
    F("replica_directory_id", UUID, "2+"),
    F("log_end_offset", INT64),
    F("last_fetch_timestamp", INT64, "1+", default=-1),
    F("last_caught_up_timestamp", INT64, "1+", default=-1),
)]  # fmt: skip

DESCRIBE_QUORUM: Final = Api(
    name="DescribeQuorum",
    key=55,
    versions="0-2",
    flexible="0+",
    request=(
        F("topics", [S(
            "DescribeQuorumTopic",
            F("topic_name", STRING),
            F("partitions", [S(
                "DescribeQuorumPartition",
                F("partition_index", INT32),
            )]),
        )]),
    ),
    response=(
        F("error_code", INT16),
        F("error_message", STRING, "2+", nullable="2+", default=None),
        F("topics", [S(
            "DescribeQuorumResponseTopic",
            F("topic_name", STRING),
            F("partitions", [S(
                "DescribeQuorumResponsePartition",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("error_message", STRING, "2+", nullable="2+", default=None),
                F("leader_id", INT32),
                F("leader_epoch", INT32),
                F("high_watermark", INT64),
                F("current_voters", _REPLICA_STATES),
                F("observers", _REPLICA_STATES),
            )]),
        )]),
        F("nodes", [S(
            "DescribeQuorumNode",
            F("node_id", INT32),
            F("listeners", [S(
                "DescribeQuorumListener",
                F("name", STRING),
                F("host", STRING),
                F("port", UINT16),
            )]),
        )], "2+"),
    ),
)  # fmt: skip

_CURSOR: Final = S(
    "Cursor",
    F("topic_name", STRING),
    F("partition_index", INT32),
)

DESCRIBE_TOPIC_PARTITIONS: Final = Api(
    name="DescribeTopicPartitions",
    key=75,
    versions="0",
    flexible="0+",
    request=(
        F("topics", [S(
            "TopicRequest",
            F("name", STRING),
        )]),
        F("response_partition_limit", INT32, default=2000),
        F("cursor", _CURSOR, nullable="0+", default=None),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("topics", [S(
            "DescribeTopicPartitionsResponseTopic",
            F("error_code", INT16),
            F("name", STRING, nullable="0+"),
            F("topic_id", UUID),
            F("is_internal", BOOLEAN),
            F("partitions", [S(
                "DescribeTopicPartitionsResponsePartition",
                F("error_code", INT16),
                F("partition_index", INT32),
                F("leader_id", INT32),
                F("leader_epoch", INT32, default=-1),
                F("replica_nodes", [INT32]),
                F("isr_nodes", [INT32]),
                F("eligible_leader_replicas", [INT32], nullable="0+", default=None),
                F("last_known_elr", [INT32], nullable="0+", default=None),
                F("offline_replicas", [INT32]),
            )]),
            F("topic_authorized_operations", INT32, default=_NO_OPERATIONS),
        )]),
        F("next_cursor", _CURSOR, nullable="0+", default=None),
    ),
)  # fmt: skip
