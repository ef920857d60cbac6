"""Share groups (KIP-932): their members, what these fetch and acknowledge, and their offsets.

v0 of the first four was an early form that Kafka has given up.  ShareFetch and ShareAcknowledge: v2 acquire modes
(KIP-1206) and renewed locks (KIP-1222).  DescribeShareGroupOffsets: v1 the lag (KIP-1226).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORD_PARTS,
    STRING,
    UUID,
    Api,
    F,
    S,
)

_NO_OPERATIONS: Final = -2147483648  # "not asked for", as Kafka says it

SHARE_GROUP_HEARTBEAT: Final = Api(
    name="ShareGroupHeartbeat",
    key=76,
    versions="1",
    flexible="0+",
    request=(
        F("group_id", STRING),
        F("member_id", STRING),
        F("member_epoch", INT32),
        F("rack_id", STRING, nullable="0+", default=None),
        F("subscribed_topic_names", [STRING], nullable="0+", default=None),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("member_id", STRING, nullable="0+", default=None),
        F("member_epoch", INT32),
        F("heartbeat_interval_ms", INT32),
        F("assignment", S(
            "Assignment",
            F("topic_partitions", [S(
                "TopicPartitions",
                F("topic_id", UUID),
                F("partitions", [INT32]),
            )]),
        ), nullable="0+", default=None),
    ),
)  # fmt: skip

SHARE_GROUP_DESCRIBE: Final = Api(
    name="ShareGroupDescribe",
    key=77,
    versions="1",
    flexible="0+",
    request=(
        F("group_ids", [STRING]),
        F("include_authorized_operations", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("groups", [S(
            "DescribedGroup",
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+", default=None),
            F("group_id", STRING),
            F("group_state", STRING),
            F("group_epoch", INT32),
            F("assignment_epoch", INT32),
            F("assignor_name", STRING),
            F("members", [S(
                "Member",
                F("member_id", STRING),
                F("rack_id", STRING, nullable="0+", default=None),
                F("member_epoch", INT32),
                F("client_id", STRING),
                F("client_host", STRING),
                F("subscribed_topic_names", [STRING]),
                F("assignment", S(
                    "Assignment",
                    F("topic_partitions", [S(
                        "TopicPartitions",
                        F("topic_id", UUID),
                        F("topic_name", STRING),
                        F("partitions", [INT32]),
                    )]),
                )),
            )]),
            F("authorized_operations", INT32, default=_NO_OPERATIONS),
        )]),
    ),
)  # fmt: skip

_ACKNOWLEDGEMENT_BATCH: Final = S(
    "AcknowledgementBatch",
    F("first_offset", INT64),
    F("last_offset", INT64),
    F("acknowledge_types", [INT8]),
)

_LEADER: Final = S(
    "LeaderIdAndEpoch",
    F("leader_id", INT32),
    F("leader_epoch", INT32),
)

_NODE_ENDPOINT: Final = S(
    "NodeEndpoint",
    F("node_id", INT32),
    F("host", STRING),
    F("port", INT32),
    F("rack", STRING, nullable="0+", default=None),
)

SHARE_FETCH: Final = Api(
    name="ShareFetch",
    key=78,
    versions="1-2",
    flexible="0+",
    request=(
        F("group_id", STRING, nullable="0+", default=None),
        F("member_id", STRING, nullable="0+"),
        F("share_session_epoch", INT32),
        F("max_wait_ms", INT32),
        F("min_bytes", INT32),
        F("max_bytes", INT32, default=0x7FFFFFFF),
        F("max_records", INT32, "1+"),
        F("batch_size", INT32, "1+"),
        F("share_acquire_mode", INT8, "2+", default=0),
        F("is_renew_ack", BOOLEAN, "2+", default=False),
        F("topics", [S(
            "FetchTopic",
            F("topic_id", UUID),
            F("partitions", [S(
                "FetchPartition",
                F("partition_index", INT32),
                F("acknowledgement_batches", [_ACKNOWLEDGEMENT_BATCH]),
            )]),
        )]),
        F("forgotten_topics_data", [S(
            "ForgottenTopic",
            F("topic_id", UUID),
            F("partitions", [INT32]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("acquisition_lock_timeout_ms", INT32, "1+"),
        F("responses", [S(
            "ShareFetchableTopicResponse",
            F("topic_id", UUID),
            F("partitions", [S(
                "PartitionData",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+", default=None),
                F("acknowledge_error_code", INT16),
                F("acknowledge_error_message", STRING, nullable="0+", default=None),
                F("current_leader", _LEADER),
                F("records", RECORD_PARTS, nullable="0"),
                F("acquired_records", [S(
                    "AcquiredRecords",
                    F("first_offset", INT64),
                    F("last_offset", INT64),
                    F("delivery_count", INT16),
                )]),
            )]),
        )]),
        F("node_endpoints", [_NODE_ENDPOINT]),
    ),
)  # fmt: skip

SHARE_ACKNOWLEDGE: Final = Api(
    name="ShareAcknowledge",
    key=79,
    versions="1-2",
    flexible="0+",
    request=(
        F("group_id", STRING, nullable="0+", default=None),
        F("member_id", STRING, nullable="0+"),
        F("share_session_epoch", INT32),
        F("is_renew_ack", BOOLEAN, "2+", default=False),
        F("topics", [S(
            "AcknowledgeTopic",
            F("topic_id", UUID),
            F("partitions", [S(
                "AcknowledgePartition",
                F("partition_index", INT32),
                F("acknowledgement_batches", [_ACKNOWLEDGEMENT_BATCH]),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("acquisition_lock_timeout_ms", INT32, "2+"),
        F("responses", [S(
            "ShareAcknowledgeTopicResponse",
            F("topic_id", UUID),
            F("partitions", [S(
                "PartitionData",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+", default=None),
                F("current_leader", _LEADER),
            )]),
        )]),
        F("node_endpoints", [_NODE_ENDPOINT]),
    ),
)  # fmt: skip

DESCRIBE_SHARE_GROUP_OFFSETS: Final = Api(
    name="DescribeShareGroupOffsets",
    key=90,
    versions="0-1",
    flexible="0+",
    request=(
        F("groups", [S(
            "RequestGroup",
            F("group_id", STRING),
            F("topics", [S(
                "RequestTopic",
                F("topic_name", STRING),
                F("partitions", [INT32]),
            )], nullable="0+"),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("groups", [S(
            "ResponseGroup",
            F("group_id", STRING),
            F("topics", [S(
                "ResponseTopic",
                F("topic_name", STRING),
                F("topic_id", UUID),
                F("partitions", [S(
                    "ResponsePartition",
                    F("partition_index", INT32),
                    F("start_offset", INT64),
                    F("leader_epoch", INT32),
                    F("lag", INT64, "1+", default=-1),
                    F("error_code", INT16),
                    F("error_message", STRING, nullable="0+", default=None),
                )]),
            )]),
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+", default=None),
        )]),
    ),
)  # fmt: skip

ALTER_SHARE_GROUP_OFFSETS: Final = Api(
    name="AlterShareGroupOffsets",
    key=91,
    versions="0",
    flexible="0+",
    request=(
        F("group_id", STRING),
        F("topics", [S(
            "RequestTopic",
            F("topic_name", STRING),
            F("partitions", [S(
                "RequestPartition",
                F("partition_index", INT32),
                F("start_offset", INT64),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("responses", [S(
            "ResponseTopic",
            F("topic_name", STRING),
            F("topic_id", UUID),
            F("partitions", [S(
                "ResponsePartition",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+", default=None),
            )]),
        )]),
    ),
)  # fmt: skip

DELETE_SHARE_GROUP_OFFSETS: Final = Api(
    name="DeleteShareGroupOffsets",
    key=92,
    versions="0",
    flexible="0+",
    request=(
        F("group_id", STRING),
        F("topics", [S(
            "RequestTopic",
            F("topic_name", STRING),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("responses", [S(
            "ResponseTopic",
            F("topic_name", STRING),
            F("topic_id", UUID),
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+", default=None),
        )]),
    ),
)  # fmt: skip
