"""Where a partition's data lies: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

ListOffsets: v1 one offset per partition; v2 isolation levels; v4 leader epochs; v6 flexible; v7 max
timestamp; v8 and v9 tiered storage (KIP-405, KIP-1005); v10 a time limit (KIP-1075); v11 earliest pending
upload (KIP-1023).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import INT8, INT16, INT32, INT64, STRING, Api, F, S

LIST_OFFSETS: Final = Api(
    name="ListOffsets",
    key=2,
    versions="1-11",
    flexible="6+",
    request=(
        F("replica_id", INT32, default=-1),
        F("isolation_level", INT8, "2+"),
        F("topics", [S(
            "ListOffsetsTopic",
            F("name", STRING),
            F("partitions", [S(
                "ListOffsetsPartition",
                F("partition_index", INT32),
                F("current_leader_epoch", INT32, "4+", default=-1),
                F("timestamp", INT64),
            )]),
        )]),
        F("timeout_ms", INT32, "10+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "2+"),
        F("topics", [S(
            "ListOffsetsTopicResponse",
            F("name", STRING),
            F("partitions", [S(
                "ListOffsetsPartitionResponse",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("timestamp", INT64, "1+", default=-1),
                F("offset", INT64, "1+", default=-1),
                F("leader_epoch", INT32, "4+", default=-1),
            )]),
        )]),
    ),
)  # fmt: skip

OFFSET_FOR_LEADER_EPOCH: Final = Api(
    name="OffsetForLeaderEpoch",
    key=23,
    versions="2-4",
    flexible="4+",
    request=(
        F("replica_id", INT32, "3+", default=-2),
        F("topics", [S(
            "OffsetForLeaderTopic",
            F("topic", STRING),
            F("partitions", [S(
                "OffsetForLeaderPartition",
                F("partition", INT32),
                F("current_leader_epoch", INT32, "2+", default=-1),
                F("leader_epoch", INT32),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32, "2+"),
        F("topics", [S(
            "OffsetForLeaderTopicResult",
            F("topic", STRING),
            F("partitions", [S(
                "EpochEndOffset",
                F("error_code", INT16),
                F("partition", INT32),
                F("leader_epoch", INT32, "1+", default=-1),
                F("end_offset", INT64, default=-1),
            )]),
        )]),
    ),
)  # fmt: skip

DELETE_RECORDS: Final = Api(
    name="DeleteRecords",
    key=21,
    versions="0-2",
    flexible="2+",
    request=(
        F("topics", [S(
            "DeleteRecordsTopic",
            F("name", STRING),
            F("partitions", [S(
                "DeleteRecordsPartition",
                F("partition_index", INT32),
                F("offset", INT64),
            )]),
        )]),
        F("timeout_ms", INT32),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("topics", [S(
            "DeleteRecordsTopicResult",
            F("name", STRING),
            F("partitions", [S(
                "DeleteRecordsPartitionResult",
                F("partition_index", INT32),
                F("low_watermark", INT64),
                F("error_code", INT16),
            )]),
        )]),
    ),
)  # fmt: skip
