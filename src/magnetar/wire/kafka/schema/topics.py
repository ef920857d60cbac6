"""Making and unmaking topics and partitions, and moving them.

CreateTopics: v4 default partitions and replication (KIP-464); v5 flexible, the settings come back
(KIP-525); v7 topic ids. DeleteTopics: v6 by id.  ElectLeaders: v1 unclean elections (KIP-460).
AlterPartitionReassignments: v1 may refuse a change of the replication factor (KIP-860).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT8, INT16, INT32, STRING, UUID, Api, F, S

CREATE_TOPICS: Final = Api(
    name="CreateTopics",
    key=19,
    versions="2-7",
    flexible="5+",
    request=(
        F("topics", [S(
            "CreatableTopic",
            F("name", STRING),
            F("num_partitions", INT32),
            F("replication_factor", INT16),
            F("assignments", [S(
                "CreatableReplicaAssignment",
                F("partition_index", INT32),
                F("broker_ids", [INT32]),
            )]),
            F("configs", [S(
                "CreatableTopicConfig",
                F("name", STRING),
                F("value", STRING, nullable="0+"),
            )]),
        )]),
        F("timeout_ms", INT32, default=60000),
        F("validate_only", BOOLEAN, "1+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "2+"),
        F("topics", [S(
            "CreatableTopicResult",
            F("name", STRING),
            F("topic_id", UUID, "7+"),
            F("error_code", INT16),
            F("error_message", STRING, "1+", nullable="0+"),
            F("topic_config_error_code", INT16, "5+", tag=0, tagged="5+"),
            F("num_partitions", INT32, "5+", default=-1),
            F("replication_factor", INT16, "5+", default=-1),
            F("configs", [S(
                "CreatableTopicConfigs",
                F("name", STRING, "5+"),
                F("value", STRING, "5+", nullable="5+"),
                F("read_only", BOOLEAN, "5+"),
                F("config_source", INT8, "5+", default=-1),
                F("is_sensitive", BOOLEAN, "5+"),
            )], "5+", nullable="5+"),
        )]),
    ),
)  # fmt: skip

DELETE_TOPICS: Final = Api(
    name="DeleteTopics",
    key=20,
    versions="1-6",
    flexible="4+",
    request=(
        F("topics", [S(
            "DeleteTopicState",
            F("name", STRING, "6+", nullable="6+", default=None),
            F("topic_id", UUID, "6+"),
        )], "6+"),
        F("topic_names", [STRING], "0-5"),
        F("timeout_ms", INT32),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("responses", [S(
            "DeletableTopicResult",
            F("name", STRING, nullable="6+"),
            F("topic_id", UUID, "6+"),
            F("error_code", INT16),
            F("error_message", STRING, "5+", nullable="5+", default=None),
        )]),
    ),
)  # fmt: skip

CREATE_PARTITIONS: Final = Api(
    name="CreatePartitions",
    key=37,
    versions="0-3",
    flexible="2+",
    request=(
        F("topics", [S(
            "CreatePartitionsTopic",
            F("name", STRING),
            F("count", INT32),
            F("assignments", [S(
                "CreatePartitionsAssignment",
                F("broker_ids", [INT32]),
            )], nullable="0+"),
        )]),
        F("timeout_ms", INT32),
        F("validate_only", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("results", [S(
            "CreatePartitionsTopicResult",
            F("name", STRING),
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+", default=None),
        )]),
    ),
)  # fmt: skip

ELECT_LEADERS: Final = Api(
    name="ElectLeaders",
    key=43,
    versions="0-2",
    flexible="2+",
    request=(
        F("election_type", INT8, "1+"),
        F("topic_partitions", [S(
            "TopicPartitions",
            F("topic", STRING),
            F("partitions", [INT32]),
        )], nullable="0+"),
        F("timeout_ms", INT32, default=60000),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "1+"),
        F("replica_election_results", [S(
            "ReplicaElectionResult",
            F("topic", STRING),
            F("partition_result", [S(
                "PartitionResult",
                F("partition_id", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+"),
            )]),
        )]),
    ),
)  # fmt: skip

ALTER_PARTITION_REASSIGNMENTS: Final = Api(
    name="AlterPartitionReassignments",
    key=45,
    versions="0-1",
    flexible="0+",
    request=(
        F("timeout_ms", INT32, default=60000),
        F("allow_replication_factor_change", BOOLEAN, "1+", default=True),
        F("topics", [S(
            "ReassignableTopic",
            F("name", STRING),
            F("partitions", [S(
                "ReassignablePartition",
                F("partition_index", INT32),
                F("replicas", [INT32], nullable="0+", default=None),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("allow_replication_factor_change", BOOLEAN, "1+", default=True),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+"),
        F("responses", [S(
            "ReassignableTopicResponse",
            F("name", STRING),
            F("partitions", [S(
                "ReassignablePartitionResponse",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+"),
            )]),
        )]),
    ),
)  # fmt: skip

LIST_PARTITION_REASSIGNMENTS: Final = Api(
    name="ListPartitionReassignments",
    key=46,
    versions="0",
    flexible="0+",
    request=(
        F("timeout_ms", INT32, default=60000),
        F("topics", [S(
            "ListPartitionReassignmentsTopics",
            F("name", STRING),
            F("partition_indexes", [INT32]),
        )], nullable="0+", default=None),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+"),
        F("topics", [S(
            "OngoingTopicReassignment",
            F("name", STRING),
            F("partitions", [S(
                "OngoingPartitionReassignment",
                F("partition_index", INT32),
                F("replicas", [INT32]),
                F("adding_replicas", [INT32]),
                F("removing_replicas", [INT32]),
            )]),
        )]),
    ),
)  # fmt: skip
