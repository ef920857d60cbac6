"""The server's keys that are defaults of topic configurations; the topic key documents each of them.

`broker/policy/topic_keys.py` has the same keys from the other side; a test holds the two together.
"""

from typing import Final

from magnetar.base.config import LONG_MAX, ConfigType, Value
from magnetar.base.server_key import ServerKey, aliases

MIB: Final = 1 << 20
_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_SYNCED: Final = "the journal is synced before each acknowledgement"
_AS_PRODUCED: Final = "batches stay as their producers compressed them"
_NOT_TIERED: Final = "tiered storage is not available here"


def _not_zero(value: Value) -> str | None:
    return "must not be 0: use -1 for no limit" if value == 0 else None


TOPIC_DEFAULT_KEYS: Final = (
    ServerKey(
        "log.retention.ms",
        _L,
        None,
        "retention.ms; before log.retention.minutes and .hours.",
        minimum=-1,
        check=_not_zero,
    ),
    ServerKey(
        "log.retention.minutes",
        _I,
        None,
        "retention.ms in minutes; before log.retention.hours.",
        minimum=-1,
        check=_not_zero,
    ),
    ServerKey("log.retention.hours", _I, "168", "retention.ms in hours.", minimum=-1, check=_not_zero),
    ServerKey("log.retention.bytes", _L, "-1", "retention.bytes."),
    ServerKey("log.segment.bytes", _I, str(1 << 30), "segment.bytes.", minimum=MIB),
    ServerKey("log.roll.ms", _L, None, "segment.ms; before log.roll.hours.", minimum=1),
    ServerKey("log.roll.hours", _I, "168", "segment.ms in hours.", minimum=1),
    ServerKey("log.roll.jitter.ms", _L, None, "segment.jitter.ms; before log.roll.jitter.hours.", minimum=0),
    ServerKey("log.roll.jitter.hours", _I, "0", "segment.jitter.ms in hours.", minimum=0),
    ServerKey("log.cleanup.policy", _LIST, "delete", "cleanup.policy.", choices=("compact", "delete")),
    ServerKey(
        "log.message.timestamp.type",
        _S,
        "CreateTime",
        "message.timestamp.type.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ServerKey(
        "log.message.timestamp.before.max.ms",
        _L,
        str(LONG_MAX),
        "message.timestamp.before.max.ms.",
        minimum=0,
    ),
    ServerKey(
        "log.message.timestamp.after.max.ms", _L, "3600000", "message.timestamp.after.max.ms.", minimum=0
    ),
    ServerKey(
        "message.max.bytes", _I, "1048588", "max.message.bytes.", minimum=0, aliases=aliases("maxMessageSize")
    ),
    ServerKey("min.insync.replicas", _I, "1", "min.insync.replicas.", minimum=1, no_effect=_SYNCED),
    ServerKey(
        "compression.type",
        _S,
        "producer",
        "compression.type.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        no_effect=_AS_PRODUCED,
    ),
    ServerKey(
        "compression.gzip.level",
        _I,
        "-1",
        "compression.gzip.level.",
        minimum=-1,
        maximum=9,
        no_effect=_AS_PRODUCED,
    ),
    ServerKey(
        "compression.lz4.level",
        _I,
        "9",
        "compression.lz4.level.",
        minimum=1,
        maximum=17,
        no_effect=_AS_PRODUCED,
    ),
    ServerKey(
        "compression.zstd.level",
        _I,
        "3",
        "compression.zstd.level.",
        minimum=-131072,
        maximum=22,
        no_effect=_AS_PRODUCED,
    ),
    ServerKey(
        "log.cleaner.delete.retention.ms",
        _L,
        "86400000",
        "delete.retention.ms.",
        minimum=0,
    ),
    ServerKey(
        "log.cleaner.max.compaction.lag.ms",
        _L,
        str(LONG_MAX),
        "max.compaction.lag.ms.",
        minimum=1,
    ),
    ServerKey(
        "log.cleaner.min.cleanable.ratio",
        _D,
        "0.5",
        "min.cleanable.dirty.ratio.",
        minimum=0,
        maximum=1,
    ),
    ServerKey(
        "log.cleaner.min.compaction.lag.ms",
        _L,
        "0",
        "min.compaction.lag.ms.",
        minimum=0,
    ),
    ServerKey(
        "log.flush.interval.messages", _L, str(LONG_MAX), "flush.messages.", minimum=1, no_effect=_SYNCED
    ),
    ServerKey(
        "log.flush.interval.ms",
        _L,
        None,
        "flush.ms; before log.flush.scheduler.interval.ms.",
        minimum=0,
        no_effect=_SYNCED,
    ),
    ServerKey(
        "log.flush.scheduler.interval.ms", _L, str(LONG_MAX), "flush.ms.", minimum=0, no_effect=_SYNCED
    ),
    ServerKey(
        "log.index.interval.bytes",
        _I,
        "4096",
        "index.interval.bytes.",
        minimum=0,
        no_effect="every batch has an index entry",
    ),
    ServerKey(
        "log.index.size.max.bytes",
        _I,
        str(10 * MIB),
        "segment.index.bytes.",
        minimum=4,
        no_effect="the index grows as it must",
    ),
    ServerKey(
        "log.local.retention.bytes", _L, "-2", "local.retention.bytes.", minimum=-2, no_effect=_NOT_TIERED
    ),
    ServerKey("log.local.retention.ms", _L, "-2", "local.retention.ms.", minimum=-2, no_effect=_NOT_TIERED),
    ServerKey("log.preallocate", _B, "false", "preallocate.", no_effect="the journal is always preallocated"),
    ServerKey(
        "log.segment.delete.delay.ms",
        _L,
        "60000",
        "file.delete.delay.ms.",
        minimum=0,
        no_effect="nothing reads a deleted file",
    ),
    ServerKey(
        "unclean.leader.election.enable",
        _B,
        "false",
        "unclean.leader.election.enable.",
        no_effect="acknowledged data is never given up",
    ),
)

# Keys of one meaning in different units or forms: if a later layer sets one of them, the others no longer count.
# Inside one layer the first of those that are given holds, as in Kafka.
KEY_FAMILIES: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
