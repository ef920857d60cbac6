"""Settings of consumer groups, with the names of Apache Kafka's broker (dots as underscores) and its defaults.

The initial delay is 0, as in the `server.properties` that Kafka ships; without that file it is 3 s.
"""

from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.ledger.cursor import METADATA_BYTES_MAX

# A client that joins for the first time has no member id for heartbeats, and may have abandoned its request.  So the
# member is dropped after this time, whatever its session time-out; a client that still exists joins again.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
# The most bytes of a member's metadata or assignment: eight times what Kafka by default can store about a whole
# group.
MEMBER_BYTES_MAX: Final = 8 << 20
# The most bytes that all members of all groups take.  When memory is short, small members may still find room.
MEMBERS_BYTES_MAX: Final = 128 << 20
SMALL_MEMBER_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Durations have the unit of their name.  Raises ConfigError if two of them contradict each other."""

    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_delivery_count_limit: int = 5
    group_share_min_delivery_count_limit: int = 2
    group_share_max_delivery_count_limit: int = 10
    group_share_partition_max_record_locks: int = 2_000
    group_share_min_partition_max_record_locks: int = 100
    group_share_max_partition_max_record_locks: int = 4_000
    group_share_max_size: int = 200
    group_share_max_share_sessions: int = 2_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_min_session_timeout_ms: int = 45_000
    group_streams_max_session_timeout_ms: int = 60_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_min_heartbeat_interval_ms: int = 5_000
    group_streams_max_heartbeat_interval_ms: int = 15_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_max_assignment_interval_ms: int = 15_000
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_num_standby_replicas: int = 0
    group_streams_max_standby_replicas: int = 2
    group_streams_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    errors_deadletterqueue_auto_create_topics_enable: bool = False
    errors_deadletterqueue_topic_name_prefix: str = "dlq."

    def __post_init__(self) -> None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms is above group.max.session.timeout.ms:"
                " lower the first or raise the second"
            )
        if not 0 <= self.offset_metadata_max_bytes <= METADATA_BYTES_MAX:
            raise ConfigError(f"offset.metadata.max.bytes must be between 0 and {METADATA_BYTES_MAX}")
        if self.group_max_size < 1:
            raise ConfigError("group.max.size must be at least 1")
        if self.offsets_retention_minutes < 1:
            raise ConfigError("offsets.retention.minutes must be at least 1")

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may migrate to the consumer protocol."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group with members may migrate to the classic protocol."""
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")
