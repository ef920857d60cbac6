"""Consumer groups of the classic protocol: finding the members, sharing out the partitions, and looking at
it.

JoinGroup: v4 a member gets its id before it joins (KIP-394); v5 static members (KIP-345); v6 flexible; v7
the protocol type; v8 reasons (KIP-800); v9 the leader may skip the assignment (KIP-814).  ListGroups: v4 by
state; v5 by type. DescribeGroups: v6 GROUP_ID_NOT_FOUND with a message (KIP-1043).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, BYTES, INT16, INT32, STRING, Api, F, S

_NO_OPERATIONS: Final = -2147483648  # "not asked for", as Kafka says it

JOIN_GROUP: Final = Api(
    name="JoinGroup",
    key=11,
    versions="0-9",
    flexible="6+",
    request=(
        F("group_id", STRING),
        F("session_timeout_ms", INT32),
        F("rebalance_timeout_ms", INT32, "1+", default=-1),
        F("member_id", STRING),
        F("group_instance_id", STRING, "5+", nullable="5+", default=None),
        F("protocol_type", STRING),
        F("protocols", [S(
            "JoinGroupRequestProtocol",
            F("name", STRING),
            F("metadata", BYTES),
        )]),
        F("reason", STRING, "8+", nullable="8+", default=None),
    ),
    response=(
        F("throttle_time_ms", INT32, "2+"),
        F("error_code", INT16),
        F("generation_id", INT32, default=-1),
        F("protocol_type", STRING, "7+", nullable="7+", default=None),
        F("protocol_name", STRING, nullable="7+"),
        F("leader", STRING),
        F("skip_assignment", BOOLEAN, "9+"),
        F("member_id", STRING),
        F("members", [S(
            "JoinGroupResponseMember",
            F("member_id", STRING),
            F("group_instance_id", STRING, "5+", nullable="5+", default=None),
            F("metadata", BYTES),
        )]),
    ),
)  # fmt: skip

SYNC_GROUP: Final = Api(
    name="SyncGroup",
    key=14,
    versions="0-5",
    flexible="4+",
    request=(
        F("group_id", STRING),
        F("generation_id", INT32),
        F("member_id", STRING),
        F("group_instance_id", STRING, "3+", nullable="3+", default=None),
        F("protocol_type", STRING, "5+", nullable="5+", default=None),
        F("protocol_name", STRING, "5+", nullable="5+", default=None),
        F("assignments", [S(
            "SyncGroupRequestAssignment",
            F("member_id", STRING),
            F("assignment", BYTES),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("error_code", INT16),
        F("protocol_type", STRING, "5+", nullable="5+", default=None),
        F("protocol_name", STRING, "5+", nullable="5+", default=None),
        F("assignment", BYTES),
    ),
)  # fmt: skip

HEARTBEAT: Final = Api(
    name="Heartbeat",
    key=12,
    versions="0-4",
    flexible="4+",
    request=(
        F("group_id", STRING),
        F("generation_id", INT32),
        F("member_id", STRING),
        F("group_instance_id", STRING, "3+", nullable="3+", default=None),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("error_code", INT16),
    ),
)

LEAVE_GROUP: Final = Api(
    name="LeaveGroup",
    key=13,
    versions="0-5",
    flexible="4+",
    request=(
        F("group_id", STRING),
        F("member_id", STRING, "0-2"),
        F("members", [S(
            "MemberIdentity",
            F("member_id", STRING, "3+"),
            F("group_instance_id", STRING, "3+", nullable="3+", default=None),
            F("reason", STRING, "5+", nullable="5+", default=None),
        )], "3+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("error_code", INT16),
        F("members", [S(
            "MemberResponse",
            F("member_id", STRING, "3+"),
            F("group_instance_id", STRING, "3+", nullable="3+"),
            F("error_code", INT16, "3+"),
        )], "3+"),
    ),
)  # fmt: skip

DESCRIBE_GROUPS: Final = Api(
    name="DescribeGroups",
    key=15,
    versions="0-6",
    flexible="5+",
    request=(
        F("groups", [STRING]),
        F("include_authorized_operations", BOOLEAN, "3+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("groups", [S(
            "DescribedGroup",
            F("error_code", INT16),
            F("error_message", STRING, "6+", nullable="6+", default=None),
            F("group_id", STRING),
            F("group_state", STRING),
            F("protocol_type", STRING),
            F("protocol_data", STRING),
            F("members", [S(
                "DescribedGroupMember",
                F("member_id", STRING),
                F("group_instance_id", STRING, "4+", nullable="4+", default=None),
                F("client_id", STRING),
                F("client_host", STRING),
                F("member_metadata", BYTES),
                F("member_assignment", BYTES),
            )]),
            F("authorized_operations", INT32, "3+", default=_NO_OPERATIONS),
        )]),
    ),
)  # fmt: skip

LIST_GROUPS: Final = Api(
    name="ListGroups",
    key=16,
    versions="0-5",
    flexible="3+",
    request=(
        F("states_filter", [STRING], "4+"),
        F("types_filter", [STRING], "5+"),
    ),
    response=(
        F("throttle_time_ms", INT32, "1+"),
        F("error_code", INT16),
        F("groups", [S(
            "ListedGroup",
            F("group_id", STRING),
            F("protocol_type", STRING),
            F("group_state", STRING, "4+"),
            F("group_type", STRING, "5+"),
        )]),
    ),
)  # fmt: skip

DELETE_GROUPS: Final = Api(
    name="DeleteGroups",
    key=42,
    versions="0-2",
    flexible="2+",
    request=(F("groups_names", [STRING]),),
    response=(
        F("throttle_time_ms", INT32),
        F("results", [S(
            "DeletableGroupResult",
            F("group_id", STRING),
            F("error_code", INT16),
        )]),
    ),
)  # fmt: skip
