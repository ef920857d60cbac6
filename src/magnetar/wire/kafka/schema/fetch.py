"""Fetch: key 1.

v4 isolation levels and record batches of magic 2; v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320);
v11 reads from followers (KIP-392); v12 flexible, diverging epochs; v13 topics by id; v15 the replica's
state (KIP-903); v16 the new leader's address (KIP-951); v17 directory ids (KIP-853); v18 the replica's high
watermark (KIP-1166).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import INT8, INT16, INT32, INT64, RECORD_PARTS, STRING, UUID, Api, F, S

FETCH: Final = Api(
    name="Fetch",
    key=1,
    versions="4-18",
    flexible="12+",
    request=(
        F("cluster_id", STRING, "12+", nullable="12+", default=None, tag=0, tagged="12+"),
        F("replica_id", INT32, "0-14", default=-1),
        F("replica_state", S(
            "ReplicaState",
            F("replica_id", INT32, "15+", default=-1),
            F("replica_epoch", INT64, "15+", default=-1),
        ), "15+", tag=1, tagged="15+"),
        F("max_wait_ms", INT32),
        F("min_bytes", INT32),
        F("max_bytes", INT32, "3+", default=0x7FFFFFFF),
        F("isolation_level", INT8, "4+"),
        F("session_id", INT32, "7+"),
        F("session_epoch", INT32, "7+", default=-1),
        F("topics", [S(
            "FetchTopic",
            F("topic", STRING, "0-12"),
            F("topic_id", UUID, "13+"),
            F("partitions", [S(
                "FetchPartition",
                F("partition", INT32),
                F("current_leader_epoch", INT32, "9+", default=-1),
                F("fetch_offset", INT64),
                F("last_fetched_epoch", INT32, "12+", default=-1),
                F("log_start_offset", INT64, "5+", default=-1),
                F("partition_max_bytes", INT32),
                F("replica_directory_id", UUID, "17+", tag=0, tagged="17+"),
                F("high_watermark", INT64, "18+", default=0x7FFFFFFFFFFFFFFF, tag=1, tagged="18+"),
            )]),
        )]),
        F("forgotten_topics_data", [S(
            "ForgottenTopic",
            F("topic", STRING, "7-12"),
            F("topic_id", UUID, "13+"),
            F("partitions", [INT32], "7+"),
        )], "7+"),
        F("rack_id", STRING, "11+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("error_code", INT16, "7+"),
        F("session_id", INT32, "7+"),
        F("responses", [S(
            "FetchableTopicResponse",
            F("topic", STRING, "0-12"),
            F("topic_id", UUID, "13+"),
            F("partitions", [S(
                "PartitionData",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("high_watermark", INT64),
                F("last_stable_offset", INT64, "4+", default=-1),
                F("log_start_offset", INT64, "5+", default=-1),
                F("diverging_epoch", S(
                    "EpochEndOffset",
                    F("epoch", INT32, "12+", default=-1),
                    F("end_offset", INT64, "12+", default=-1),
                ), "12+", tag=0, tagged="12+"),
                F("current_leader", S(
                    "LeaderIdAndEpoch",
                    F("leader_id", INT32, "12+", default=-1),
                    F("leader_epoch", INT32, "12+", default=-1),
                ), "12+", tag=1, tagged="12+"),
                F("snapshot_id", S(
                    "SnapshotId",
                    F("end_offset", INT64, default=-1),
                    F("epoch", INT32, default=-1),
                ), "12+", tag=2, tagged="12+"),
                F("aborted_transactions", [S(
                    "AbortedTransaction",
                    F("producer_id", INT64, "4+"),
                    F("first_offset", INT64, "4+"),
                )], "4+", nullable="4+"),
                F("preferred_read_replica", INT32, "11+", default=-1),
                F("records", RECORD_PARTS, nullable="0+"),
            )]),
        )]),
        F("node_endpoints", [S(
            "NodeEndpoint",
            F("node_id", INT32, "16+"),
            F("host", STRING, "16+"),
            F("port", INT32, "16+"),
            F("rack", STRING, "16+", nullable="16+", default=None),
        )], "16+", tag=0, tagged="16+"),
    ),
)  # fmt: skip
