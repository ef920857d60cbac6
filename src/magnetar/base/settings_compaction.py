"""Settings of compaction, by the keys of Kafka's log cleaner and of Pulsar's broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.errors import ConfigError
from magnetar.base.server_key import ServerKey

_ENABLE: Final = "log.cleaner.enable"
_INTERVAL: Final = "log.cleaner.backoff.ms"
_TABLE: Final = "log.cleaner.dedupe.buffer.size"
_RATE: Final = "log.cleaner.io.max.bytes.per.second"
_THRESHOLD: Final = "brokerServiceCompactionThresholdInBytes"
_THRESHOLD_INTERVAL: Final = "brokerServiceCompactionMonitorIntervalInSeconds"
_LAG_MIN: Final = "log.cleaner.min.compaction.lag.ms"
_LAG_MAX: Final = "log.cleaner.max.compaction.lag.ms"

COMPACTION_KEYS: Final = (
    ServerKey(
        _ENABLE,
        ConfigType.BOOLEAN,
        "true",
        "Whether topics with cleanup.policy=compact are compacted at all.",
    ),
    ServerKey(
        _INTERVAL,
        ConfigType.LONG,
        "15000",
        "How often the server looks for topics to compact.",
        minimum=1,
    ),
    ServerKey(
        _TABLE,
        ConfigType.LONG,
        str(128 << 20),
        "The memory for the keys of a log while it is compacted, 48 MiB at least; more keys take several runs.",
        minimum=1,
        maximum=1 << 36,
    ),
    ServerKey(
        _RATE,
        ConfigType.DOUBLE,
        "1.7976931348623157e+308",
        "How many bytes compaction may read and write per second.",
        minimum=1,
        default_words="no limit",
    ),
    ServerKey(
        _THRESHOLD,
        ConfigType.LONG,
        "0",
        "How many bytes may come into a topic until Pulsar's compaction of it begins by itself, where no policy says"
        " so; 0 is for never.",
        minimum=0,
    ),
    ServerKey(
        _THRESHOLD_INTERVAL,
        ConfigType.INT,
        "60",
        "How often the server looks for topics that are due for Pulsar's compaction.",
        minimum=1,
    ),
)


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Times in milliseconds, sizes in bytes.

    is_on             whether logs are compacted at all
    interval_ms       between two looks at all logs
    table_bytes       of memory for the keys of a run
    bytes_per_second  that a run reads and writes at most
    threshold_bytes   that a topic may get until Pulsar's compaction begins; 0 for never
    threshold_interval_s  between two looks whether one has
    """

    is_on: bool = True
    interval_ms: int = 15_000
    table_bytes: int = 128 << 20
    bytes_per_second: float = float("inf")
    threshold_bytes: int = 0
    threshold_interval_s: int = 60


def compaction(text: Callable[[str], str], integer: Callable[[str], int]) -> CompactionSettings:
    """Read the keys with `text` and `integer`.

    Raises:
        ConfigError: two of them contradict each other.
    """
    if integer(_LAG_MIN) > integer(_LAG_MAX):
        raise ConfigError(f"{_LAG_MIN} is greater than {_LAG_MAX}: lower the first or raise the second")
    return CompactionSettings(
        text(_ENABLE) == "true",
        integer(_INTERVAL),
        integer(_TABLE),
        float(text(_RATE)),
        integer(_THRESHOLD),
        integer(_THRESHOLD_INTERVAL),
    )
