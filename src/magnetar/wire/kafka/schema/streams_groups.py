"""The group protocol of Kafka Streams (KIP-1071): StreamsGroupHeartbeat and StreamsGroupDescribe, both v0."""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT8, INT16, INT32, INT64, STRING, UINT16, Api, F, S

_NO_OPERATIONS: Final = -2147483648  # "not asked for", as Kafka says it

_KEY_VALUE: Final = S(
    "KeyValue",
    F("key", STRING),
    F("value", STRING),
)

_TOPIC_INFO: Final = S(
    "TopicInfo",
    F("name", STRING),
    F("partitions", INT32),
    F("replication_factor", INT16),
    F("topic_configs", [_KEY_VALUE]),
)

_ENDPOINT: Final = S(
    "Endpoint",
    F("host", STRING),
    F("port", UINT16),
)

_TASK_IDS: Final = S(
    "TaskIds",
    F("subtopology_id", STRING),
    F("partitions", [INT32]),
)

_TASK_OFFSET: Final = S(
    "TaskOffset",
    F("subtopology_id", STRING),
    F("partition", INT32),
    F("offset", INT64),
)

_TOPIC_PARTITION: Final = S(
    "TopicPartition",
    F("topic", STRING),
    F("partitions", [INT32]),
)

STREAMS_GROUP_HEARTBEAT: Final = Api(
    name="StreamsGroupHeartbeat",
    key=88,
    versions="0",
    flexible="0+",
    request=(
        F("group_id", STRING),
        F("member_id", STRING),
        F("member_epoch", INT32),
        F("endpoint_information_epoch", INT32),
        F("instance_id", STRING, nullable="0+", default=None),
        F("rack_id", STRING, nullable="0+", default=None),
        F("rebalance_timeout_ms", INT32, default=-1),
        F("topology", S(
            "Topology",
            F("epoch", INT32),
            F("subtopologies", [S(
                "Subtopology",
                F("subtopology_id", STRING),
                F("source_topics", [STRING]),
                F("source_topic_regex", [STRING]),
                F("state_changelog_topics", [_TOPIC_INFO]),
                F("repartition_sink_topics", [STRING]),
                F("repartition_source_topics", [_TOPIC_INFO]),
                F("copartition_groups", [S(
                    "CopartitionGroup",
                    F("source_topics", [INT16]),
                    F("source_topic_regex", [INT16]),
                    F("repartition_source_topics", [INT16]),
                )]),
            )]),
        ), nullable="0+", default=None),
        F("active_tasks", [_TASK_IDS], nullable="0+", default=None),
        F("standby_tasks", [_TASK_IDS], nullable="0+", default=None),
        F("warmup_tasks", [_TASK_IDS], nullable="0+", default=None),
        F("process_id", STRING, nullable="0+", default=None),
        F("user_endpoint", _ENDPOINT, nullable="0+", default=None),
        F("client_tags", [_KEY_VALUE], nullable="0+", default=None),
        F("task_offsets", [_TASK_OFFSET], nullable="0+", default=None),
        F("task_end_offsets", [_TASK_OFFSET], nullable="0+", default=None),
        F("shutdown_application", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+", default=None),
        F("member_id", STRING),
        F("member_epoch", INT32),
        F("heartbeat_interval_ms", INT32),
        F("acceptable_recovery_lag", INT32),
        F("task_offset_interval_ms", INT32),
        F("status", [S(
            "Status",
            F("status_code", INT8),
            F("status_detail", STRING),
        )], nullable="0+", default=None),
        F("active_tasks", [_TASK_IDS], nullable="0+", default=None),
        F("standby_tasks", [_TASK_IDS], nullable="0+", default=None),
        F("warmup_tasks", [_TASK_IDS], nullable="0+", default=None),
        F("endpoint_information_epoch", INT32),
        F("partitions_by_user_endpoint", [S(
            "EndpointToPartitions",
            F("user_endpoint", _ENDPOINT),
            F("active_partitions", [_TOPIC_PARTITION]),
            F("standby_partitions", [_TOPIC_PARTITION]),
        )], nullable="0+", default=None),
    ),
)  # fmt: skip

_ASSIGNMENT: Final = S(
    "Assignment",
    F("active_tasks", [_TASK_IDS]),
    F("standby_tasks", [_TASK_IDS]),
    F("warmup_tasks", [_TASK_IDS]),
)

STREAMS_GROUP_DESCRIBE: Final = Api(
    name="StreamsGroupDescribe",
    key=89,
    versions="0",
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
            F("topology", S(
                "Topology",
                F("epoch", INT32),
                F("subtopologies", [S(
                    "Subtopology",
                    F("subtopology_id", STRING),
                    F("source_topics", [STRING]),
                    F("repartition_sink_topics", [STRING]),
                    F("state_changelog_topics", [_TOPIC_INFO]),
                    F("repartition_source_topics", [_TOPIC_INFO]),
                )], nullable="0+", default=None),
            ), nullable="0+", default=None),
            F("members", [S(
                "Member",
                F("member_id", STRING),
                F("member_epoch", INT32),
                F("instance_id", STRING, nullable="0+", default=None),
                F("rack_id", STRING, nullable="0+", default=None),
                F("client_id", STRING),
                F("client_host", STRING),
                F("topology_epoch", INT32),
                F("process_id", STRING),
                F("user_endpoint", _ENDPOINT, nullable="0+", default=None),
                F("client_tags", [_KEY_VALUE]),
                F("task_offsets", [_TASK_OFFSET]),
                F("task_end_offsets", [_TASK_OFFSET]),
                F("assignment", _ASSIGNMENT),
                F("target_assignment", _ASSIGNMENT),
                F("is_classic", BOOLEAN),
            )]),
            F("authorized_operations", INT32, default=_NO_OPERATIONS),
        )]),
    ),
)  # fmt: skip
