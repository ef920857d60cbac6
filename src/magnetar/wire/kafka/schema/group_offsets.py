"""What a group has read: OffsetCommit, OffsetFetch, OffsetDelete.

OffsetCommit: v2-4 retention per commit; v6 leader epochs; v7 static members; v8 flexible; v9 the epochs of
the new group protocol (KIP-848); v10 topics by id.  OffsetFetch: v2 all topics of a group; v7 stable
offsets only (KIP-447); v8 several groups (KIP-709); v9 members and epochs; v10 topics by id.
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT16, INT32, INT64, STRING, UUID, Api, F, S

OFFSET_COMMIT: Final = Api(
    name="OffsetCommit",
    key=8,
    versions="2-10",
    flexible="8+",
    request=(
        F("group_id", STRING),
        F("generation_id_or_member_epoch", INT32, "1+", default=-1),
        F("member_id", STRING, "1+"),
        F("group_instance_id", STRING, "7+", nullable="7+", default=None),
        F("retention_time_ms", INT64, "2-4", default=-1),
        F("topics", [S(
            "OffsetCommitRequestTopic",
            F("name", STRING, "0-9"),
            F("topic_id", UUID, "10+"),
            F("partitions", [S(
                "OffsetCommitRequestPartition",
                F("partition_index", INT32),
                F("committed_offset", INT64),
                F("committed_leader_epoch", INT32, "6+", default=-1),
                F("committed_metadata", STRING, nullable="0+"),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32, "3+"),
        F("topics", [S(
            "OffsetCommitResponseTopic",
            F("name", STRING, "0-9"),
            F("topic_id", UUID, "10+"),
            F("partitions", [S(
                "OffsetCommitResponsePartition",
                F("partition_index", INT32),
                F("error_code", INT16),
            )]),
        )]),
    ),
)  # fmt: skip

OFFSET_FETCH: Final = Api(
    name="OffsetFetch",
    key=9,
    versions="1-10",
    flexible="6+",
    request=(
        F("group_id", STRING, "0-7"),
        F("topics", [S(
            "OffsetFetchRequestTopic",
            F("name", STRING, "0-7"),
            F("partition_indexes", [INT32], "0-7"),
        )], "0-7", nullable="2-7"),
        F("groups", [S(
            "OffsetFetchRequestGroup",
            F("group_id", STRING, "8+"),
            F("member_id", STRING, "9+", nullable="9+", default=None),
            F("member_epoch", INT32, "9+", default=-1),
            F("topics", [S(
                "OffsetFetchRequestTopics",
                F("name", STRING, "8-9"),
                F("topic_id", UUID, "10+"),
                F("partition_indexes", [INT32], "8+"),
            )], "8+", nullable="8+"),
        )], "8+"),
        F("require_stable", BOOLEAN, "7+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "3+"),
        F("topics", [S(
            "OffsetFetchResponseTopic",
            F("name", STRING, "0-7"),
            F("partitions", [S(
                "OffsetFetchResponsePartition",
                F("partition_index", INT32, "0-7"),
                F("committed_offset", INT64, "0-7"),
                F("committed_leader_epoch", INT32, "5-7", default=-1),
                F("metadata", STRING, "0-7", nullable="0-7"),
                F("error_code", INT16, "0-7"),
            )], "0-7"),
        )], "0-7"),
        F("error_code", INT16, "2-7"),
        F("groups", [S(
            "OffsetFetchResponseGroup",
            F("group_id", STRING, "8+"),
            F("topics", [S(
                "OffsetFetchResponseTopics",
                F("name", STRING, "8-9"),
                F("topic_id", UUID, "10+"),
                F("partitions", [S(
                    "OffsetFetchResponsePartitions",
                    F("partition_index", INT32, "8+"),
                    F("committed_offset", INT64, "8+"),
                    F("committed_leader_epoch", INT32, "8+", default=-1),
                    F("metadata", STRING, "8+", nullable="8+"),
                    F("error_code", INT16, "8+"),
                )], "8+"),
            )], "8+"),
            F("error_code", INT16, "8+"),
        )], "8+"),
    ),
)  # fmt: skip

OFFSET_DELETE: Final = Api(
    name="OffsetDelete",
    key=47,
    versions="0",
    flexible="",
    request=(
        F("group_id", STRING),
        F("topics", [S(
            "OffsetDeleteRequestTopic",
            F("name", STRING),
            F("partitions", [S(
                "OffsetDeleteRequestPartition",
                F("partition_index", INT32),
            )]),
        )]),
    ),
    response=(
        F("error_code", INT16),
        F("throttle_time_ms", INT32),
        F("topics", [S(
            "OffsetDeleteResponseTopic",
            F("name", STRING),
            F("partitions", [S(
                "OffsetDeleteResponsePartition",
                F("partition_index", INT32),
                F("error_code", INT16),
            )]),
        )]),
    ),
)  # fmt: skip
