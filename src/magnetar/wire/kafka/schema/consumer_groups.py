"""The group protocol of KIP-848, and what members of the classic one tell each other inside JoinGroup and
SyncGroup.

ConsumerGroupHeartbeat: v1 subscriptions by pattern.  ConsumerGroupDescribe: v1 the kind of member.
ConsumerProtocolSubscription: v1 owned partitions (KIP-429); v2 the generation; v3 racks (KIP-881).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, BYTES, INT8, INT16, INT32, STRING, UUID, Api, Data, F, S

_NO_OPERATIONS: Final = -2147483648  # "not asked for", as Kafka says it

_TOPIC_PARTITIONS: Final = S(
    "TopicPartitions",
    F("topic_id", UUID),
    F("partitions", [INT32]),
)

CONSUMER_GROUP_HEARTBEAT: Final = Api(
    name="ConsumerGroupHeartbeat",
    key=68,
    versions="0-1",
    flexible="0+",
    request=(
        F("group_id", STRING),
        F("member_id", STRING),
        F("member_epoch", INT32),
        F("instance_id", STRING, nullable="0+", default=None),
        F("rack_id", STRING, nullable="0+", default=None),
        F("rebalance_timeout_ms", INT32, default=-1),
        F("subscribed_topic_names", [STRING], nullable="0+", default=None),
        F("subscribed_topic_regex", STRING, "1+", nullable="1+", default=None),
        F("server_assignor", STRING, nullable="0+", default=None),
        F("topic_partitions", [_TOPIC_PARTITIONS], nullable="0+", default=None),
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
            F("topic_partitions", [_TOPIC_PARTITIONS]),
        ), nullable="0+", default=None),
    ),
)  # fmt: skip

_DESCRIBED_ASSIGNMENT: Final = S(
    "Assignment",
    F("topic_partitions", [S(
        "TopicPartitions",
        F("topic_id", UUID),
        F("topic_name", STRING),
        F("partitions", [INT32]),
    )]),
)  # fmt: skip

CONSUMER_GROUP_DESCRIBE: Final = Api(
    name="ConsumerGroupDescribe",
    key=69,
    versions="0-1",
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
                F("instance_id", STRING, nullable="0+", default=None),
                F("rack_id", STRING, nullable="0+", default=None),
                F("member_epoch", INT32),
                F("client_id", STRING),
                F("client_host", STRING),
                F("subscribed_topic_names", [STRING]),
                F("subscribed_topic_regex", STRING, nullable="0+", default=None),
                F("assignment", _DESCRIBED_ASSIGNMENT),
                F("target_assignment", _DESCRIBED_ASSIGNMENT),
                F("member_type", INT8, "1+", default=-1),
            )]),
            F("authorized_operations", INT32, default=_NO_OPERATIONS),
        )]),
    ),
)  # fmt: skip

_OWNED: Final = S(
    "TopicPartition",
    F("topic", STRING),
    F("partitions", [INT32]),
)

CONSUMER_PROTOCOL_SUBSCRIPTION: Final = Data(
    name="ConsumerProtocolSubscription",
    versions="0-3",
    flexible="",
    fields=(
        F("topics", [STRING]),
        F("user_data", BYTES, nullable="0+", default=None),
        F("owned_partitions", [_OWNED], "1+"),
        F("generation_id", INT32, "2+", default=-1),
        F("rack_id", STRING, "3+", nullable="3+", default=None),
    ),
)

CONSUMER_PROTOCOL_ASSIGNMENT: Final = Data(
    name="ConsumerProtocolAssignment",
    versions="0-3",
    flexible="",
    fields=(
        F("assigned_partitions", [_OWNED]),
        F("user_data", BYTES, nullable="0+", default=None),
    ),
)
