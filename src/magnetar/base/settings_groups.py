"""Settings of groups, by Kafka's keys.  Those of the consumer protocol (KIP-848), of share groups (KIP-932) and of
streams groups (KIP-1071) are listed here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.server_key import ServerKey

ASSIGNORS: Final = ("uniform", "range")
_POLICY: Final = "group.consumer.migration.policy"
_ASSIGNORS: Final = "group.consumer.assignors"
_DEAD_LETTERS_MADE: Final = "errors.deadletterqueue.auto.create.topics.enable"
_DEAD_LETTERS_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_NO_NUMBERS: Final = (_POLICY, _ASSIGNORS, _DEAD_LETTERS_MADE, _DEAD_LETTERS_PREFIX)
_SHARE_LIMITED: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "assignment.interval.ms",
    "record.lock.duration.ms",
    "delivery.count.limit",
    "partition.max.record.locks",
)
_STREAMS_LIMITED: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
_STANDBYS: Final = "group.streams.num.standby.replicas"
_STANDBYS_MAX: Final = "group.streams.max.standby.replicas"


def _known_assignors(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if not value or len(set(value)) < len(value) or not set(value) <= set(ASSIGNORS):
        return f"must name assignors of {', '.join(ASSIGNORS)}, each once"
    return None


def _key(name: str, default: int, documentation: str, *, minimum: int = 1) -> ServerKey:
    return ServerKey(f"group.consumer.{name}", ConfigType.INT, str(default), documentation, minimum=minimum)


_CONSUMER_KEYS: Final = (
    _key(
        "session.timeout.ms",
        45_000,
        "How long a member of the consumer protocol may be silent; a group can have its own.",
    ),
    _key("min.session.timeout.ms", 45_000, "The shortest session time-out that a group may have."),
    _key("max.session.timeout.ms", 60_000, "The longest session time-out that a group may have."),
    _key(
        "heartbeat.interval.ms",
        5_000,
        "How often members of the consumer protocol send heartbeats; a group can have its own.",
    ),
    _key("min.heartbeat.interval.ms", 5_000, "The shortest heartbeat interval that a group may have."),
    _key("max.heartbeat.interval.ms", 15_000, "The longest heartbeat interval that a group may have."),
    _key(
        "assignment.interval.ms",
        1_000,
        "How long a group of the consumer protocol goes on with an assignment at least; a group can have its own.",
        minimum=0,
    ),
    _key(
        "min.assignment.interval.ms", 0, "The shortest assignment interval that a group may have.", minimum=0
    ),
    _key(
        "max.assignment.interval.ms",
        15_000,
        "The longest assignment interval that a group may have.",
        minimum=0,
    ),
    _key("max.size", 2_147_483_647, "How many members a group of the consumer protocol may have."),
    ServerKey(
        _POLICY,
        ConfigType.STRING,
        "bidirectional",
        "Whether a group goes over to the other protocol while it has members: from classic to consumer (upgrade) when"
        " a member of that protocol joins, and back (downgrade) when the last one has gone.",
        choices=("bidirectional", "disabled", "downgrade", "upgrade"),
    ),
    ServerKey(
        _ASSIGNORS,
        ConfigType.LIST,
        ",".join(ASSIGNORS),
        "The assignors of the consumer protocol; the first one is used where members do not ask for another.",
        check=_known_assignors,
    ),
)


def _limited_keys(
    name: str,
    what: str,
    limits: tuple[int, int, int],
    documentation: str,
    *,
    kind: str = "share",
    minimum: int = 1,
) -> tuple[ServerKey, ...]:
    """A setting that a group can have of its own, and its limits: the default, the least and the most."""
    texts = (f"{documentation}; a group can have its own.", f"The least {what} that a group may have.",
             f"The greatest {what} that a group may have.")  # fmt: skip
    return tuple(
        ServerKey(f"group.{kind}.{prefix}{name}", ConfigType.INT, str(value), text, minimum=minimum)
        for prefix, value, text in zip(("", "min.", "max."), limits, texts, strict=True)
    )


_SHARE_KEYS: Final = (
    *_limited_keys(
        "session.timeout.ms",
        "session time-out",
        (45_000, 45_000, 60_000),
        "How long a member of a share group may be silent",
    ),
    *_limited_keys(
        "heartbeat.interval.ms",
        "heartbeat interval",
        (5_000, 5_000, 15_000),
        "How often members of share groups send heartbeats",
    ),
    *_limited_keys(
        "assignment.interval.ms",
        "assignment interval",
        (1_000, 0, 15_000),
        "How long a share group goes on with an assignment at least",
        minimum=0,
    ),
    *_limited_keys(
        "record.lock.duration.ms",
        "lock time",
        (30_000, 15_000, 60_000),
        "How long a share consumer has for a record that it was given",
        minimum=1000,
    ),
    *_limited_keys(
        "delivery.count.limit",
        "number of deliveries",
        (5, 2, 10),
        "How often a record is given to share consumers that do not accept it",
        minimum=2,
    ),
    *_limited_keys(
        "partition.max.record.locks",
        "number of records",
        (2_000, 100, 4_000),
        "How many records of a partition share consumers have at a time; the batch that reaches it is given whole",
        minimum=100,
    ),
    ServerKey(
        "group.share.max.size", ConfigType.INT, "200", "How many members a share group may have.", minimum=1
    ),
    ServerKey(
        "group.share.max.share.sessions",
        ConfigType.INT,
        "2000",
        "How many share consumers may fetch at a time.",
        minimum=1,
    ),
    ServerKey(
        _DEAD_LETTERS_MADE,
        ConfigType.BOOLEAN,
        "false",
        "Whether the server creates a share group's topic for dead letters when it writes the first one.",
    ),
    ServerKey(
        _DEAD_LETTERS_PREFIX,
        ConfigType.STRING,
        "dlq.",
        "The beginning of the names of topics that share groups may use for dead letters.",
    ),
)

_STREAMS_KEYS: Final = (
    *_limited_keys(
        "session.timeout.ms",
        "session time-out",
        (45_000, 45_000, 60_000),
        "How long a member of a streams group may be silent",
        kind="streams",
    ),
    *_limited_keys(
        "heartbeat.interval.ms",
        "heartbeat interval",
        (5_000, 5_000, 15_000),
        "How often members of streams groups send heartbeats",
        kind="streams",
    ),
    *_limited_keys(
        "assignment.interval.ms",
        "assignment interval",
        (1_000, 0, 15_000),
        "How long a streams group goes on with an assignment at least",
        kind="streams",
        minimum=0,
    ),
    ServerKey(
        "group.streams.initial.rebalance.delay.ms",
        ConfigType.INT,
        "3000",
        "How long a new streams group waits for more members before it has its first assignment; a group can have its"
        " own.",
        minimum=0,
    ),
    ServerKey(
        _STANDBYS,
        ConfigType.INT,
        "0",
        "How many standbys each task with state has; a group can have its own.",
        minimum=0,
    ),
    ServerKey(
        _STANDBYS_MAX,
        ConfigType.INT,
        "2",
        "The greatest number of standbys that a group may have.",
        minimum=0,
    ),
    ServerKey(
        "group.streams.max.size",
        ConfigType.INT,
        "2147483647",
        "How many members a streams group may have.",
        minimum=1,
    ),
)

GROUP_KEYS: Final = (*_CONSUMER_KEYS, *_SHARE_KEYS, *_STREAMS_KEYS)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Named as the keys, so that the group coordinator's own settings are made of these field by field."""

    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_min_assignment_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_share_session_timeout_ms: int
    group_share_min_session_timeout_ms: int
    group_share_max_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_max_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_min_assignment_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_record_lock_duration_ms: int
    group_share_min_record_lock_duration_ms: int
    group_share_max_record_lock_duration_ms: int
    group_share_delivery_count_limit: int
    group_share_min_delivery_count_limit: int
    group_share_max_delivery_count_limit: int
    group_share_partition_max_record_locks: int
    group_share_min_partition_max_record_locks: int
    group_share_max_partition_max_record_locks: int
    group_share_max_size: int
    group_share_max_share_sessions: int
    group_streams_session_timeout_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_heartbeat_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_assignment_interval_ms: int
    group_streams_min_assignment_interval_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_num_standby_replicas: int
    group_streams_max_standby_replicas: int
    group_streams_max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str


def groups(
    text: Callable[[str], str],
    integer: Callable[[str], int],
    listed: Callable[[str], tuple[str, ...]],
) -> GroupSettings:
    """Read the keys with `text`, `integer` and `listed`.

    Raises:
        ConfigError: two of them contradict each other.
    """
    keys = {name: name.replace("_", ".") for name in GroupSettings.__dataclass_fields__}
    numbers = {name: integer(key) for name, key in keys.items() if key not in _NO_NUMBERS}
    of = {keys[name]: number for name, number in numbers.items()}
    _check_order(of, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        _check_order(of, f"group.consumer.min.{what}", f"group.consumer.{what}")
        _check_order(of, f"group.consumer.{what}", f"group.consumer.max.{what}")
    for kind, limited in (("share", _SHARE_LIMITED), ("streams", _STREAMS_LIMITED)):
        for what in limited:
            _check_order(of, f"group.{kind}.min.{what}", f"group.{kind}.{what}")
            _check_order(of, f"group.{kind}.{what}", f"group.{kind}.max.{what}")
    _check_order(of, _STANDBYS, _STANDBYS_MAX)
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if of[heartbeat] >= of[session]:
            raise ConfigError(f"{heartbeat} is not less than {session}: no member could be known to live")
    return GroupSettings(
        **numbers,
        group_consumer_assignors=listed(_ASSIGNORS),
        group_consumer_migration_policy=text(_POLICY),
        errors_deadletterqueue_auto_create_topics_enable=text(_DEAD_LETTERS_MADE) == "true",
        errors_deadletterqueue_topic_name_prefix=text(_DEAD_LETTERS_PREFIX),
    )


def _check_order(of: Mapping[str, int], low: str, high: str) -> None:
    if of[low] > of[high]:
        raise ConfigError(f"{low} is greater than {high}: lower the first or raise the second")
