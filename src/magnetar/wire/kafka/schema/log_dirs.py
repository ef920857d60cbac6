"""Where replicas lie on disk: AlterReplicaLogDirs, DescribeLogDirs.

DescribeLogDirs: v3 an error for the whole answer; v4 the volume's size (KIP-827); v5 cordoned directories
(KIP-1066).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT16, INT32, INT64, STRING, Api, F, S

ALTER_REPLICA_LOG_DIRS: Final = Api(
    name="AlterReplicaLogDirs",
    key=34,
    versions="1-2",
    flexible="2+",
    request=(
        F("dirs", [S(
            "AlterReplicaLogDir",
            F("path", STRING),
            F("topics", [S(
                "AlterReplicaLogDirTopic",
                F("name", STRING),
                F("partitions", [INT32]),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("results", [S(
            "AlterReplicaLogDirTopicResult",
            F("topic_name", STRING),
            F("partitions", [S(
                "AlterReplicaLogDirPartitionResult",
                F("partition_index", INT32),
                F("error_code", INT16),
            )]),
        )]),
    ),
)  # fmt: skip

DESCRIBE_LOG_DIRS: Final = Api(
    name="DescribeLogDirs",
    key=35,
    versions="1-5",
    flexible="2+",
    request=(
        F("topics", [S(
            "DescribableLogDirTopic",
            F("topic", STRING),
            F("partitions", [INT32]),
        )], nullable="0+"),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "3+"),
        F("results", [S(
            "DescribeLogDirsResult",
            F("error_code", INT16),
            F("log_dir", STRING),
            F("topics", [S(
                "DescribeLogDirsTopic",
                F("name", STRING),
                F("partitions", [S(
                    "DescribeLogDirsPartition",
                    F("partition_index", INT32),
                    F("partition_size", INT64),
                    F("offset_lag", INT64),
                    F("is_future_key", BOOLEAN),
                )]),
            )]),
            F("total_bytes", INT64, "4+", default=-1),
            F("usable_bytes", INT64, "4+", default=-1),
            F("is_cordoned", BOOLEAN, "5+"),
        )]),
    ),
)  # fmt: skip
