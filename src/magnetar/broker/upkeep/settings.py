"""The settings of what the broker does by itself."""

from dataclasses import dataclass

from magnetar.base.settings_compaction import CompactionSettings


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """`producer_ids_max` idempotent producers are remembered, each for `producer_id_expiration_ms` after its last
    record.
    """

    retention_check_interval_ms: int
    producer_id_expiration_ms: int
    producer_ids_max: int
    compaction: CompactionSettings
