"""Every configuration key that Kafka 4.3 has for a topic: type, default, range, broker-wide synonyms, and
what it does here.

`effect` is honest.  `ENFORCED` keys change what the server does.  `NO_EFFECT` keys are validated, stored and shown, so
that tools that set them keep working, and their text says why they have no effect.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from magnetar.base.config import INT_MAX, LONG_MAX, ConfigKey, ConfigType, Value

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000

_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


class Effect(Enum):
    ENFORCED = "enforced"
    NO_EFFECT = "no effect"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that gives the topic key its default; its number counts units of `unit` (1, or ms in an
    hour...).
    """

    name: str
    unit: int = 1


@dataclass(frozen=True, slots=True)
class TopicKey(ConfigKey):
    """A topic-level key.  `synonyms` are in order of precedence."""

    synonyms: tuple[Synonym, ...] = ()
    effect: Effect = Effect.ENFORCED


def _throttled_replicas(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or all(_THROTTLED_REPLICA.fullmatch(item) for item in value):
        return None
    return "must be '*' or a list of <partition>:<broker>"


def _gzip_level(value: Value) -> str | None:
    return "must be -1 or from 1 to 9" if value == 0 else None


def _no_tiered_storage(value: Value) -> str | None:
    return "cannot be true: tiered storage is not available here" if value is True else None


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_NONE = Effect.NO_EFFECT

_KEYS: tuple[TopicKey, ...] = (
    TopicKey(
        "cleanup.policy",
        _LIST,
        "delete",
        "What happens to old data: 'delete' removes it by retention.ms and retention.bytes, 'compact' keeps"
        " the last value of each key, refuses records of Kafka clients without one and keeps those of Pulsar's;"
        " with 'compact' alone nothing is removed by age or size. Empty keeps everything.",
        choices=("compact", "delete"),
        synonyms=(Synonym("log.cleanup.policy"),),
    ),
    TopicKey(
        "compression.gzip.level",
        _I,
        "-1",
        "The gzip level for compression.type=gzip; no effect, because batches stay as their producers"
        " compressed"
        " them.",
        minimum=-1,
        maximum=9,
        check=_gzip_level,
        synonyms=(Synonym("compression.gzip.level"),),
        effect=_NONE,
    ),
    TopicKey(
        "compression.lz4.level",
        _I,
        "9",
        "The lz4 level for compression.type=lz4; no effect, because batches stay as their producers"
        " compressed them.",
        minimum=1,
        maximum=17,
        synonyms=(Synonym("compression.lz4.level"),),
        effect=_NONE,
    ),
    TopicKey(
        "compression.type",
        _S,
        "producer",
        "The codec of the stored batches; no effect, because batches stay as their producers compressed"
        " them, which"
        " is what 'producer' asks for.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(Synonym("compression.type"),),
        effect=_NONE,
    ),
    TopicKey(
        "compression.zstd.level",
        _I,
        "3",
        "The zstd level for compression.type=zstd; no effect, because batches stay as their producers"
        " compressed"
        " them.",
        minimum=-131072,
        maximum=22,
        synonyms=(Synonym("compression.zstd.level"),),
        effect=_NONE,
    ),
    TopicKey(
        "delete.retention.ms",
        _L,
        "86400000",
        "How long a compacted topic keeps tombstones, and markers of transactions, once they were compacted.",
        minimum=0,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    ),
    TopicKey(
        "errors.deadletterqueue.group.enable",
        _B,
        "false",
        "Whether share groups may have this topic for their dead letters.",
    ),
    TopicKey(
        "file.delete.delay.ms",
        _L,
        "60000",
        "How long a deleted segment's file stays; no effect, because nothing reads a file that was deleted.",
        minimum=0,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
        effect=_NONE,
    ),
    TopicKey(
        "flush.messages",
        _L,
        str(LONG_MAX),
        "How many records may wait for a sync; no effect, because the journal is synced before each"
        " acknowledgement.",
        minimum=1,
        synonyms=(Synonym("log.flush.interval.messages"),),
        effect=_NONE,
    ),
    TopicKey(
        "flush.ms",
        _L,
        str(LONG_MAX),
        "How long records may wait for a sync; no effect, because the journal is synced before each"
        " acknowledgement.",
        minimum=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        effect=_NONE,
    ),
    TopicKey(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        "Follower replicas that are throttled; no effect, because brokers do not copy logs from one another.",
        check=_throttled_replicas,
        effect=_NONE,
    ),
    TopicKey(
        "index.interval.bytes",
        _I,
        "4096",
        "How far apart index entries lie; no effect, because every batch has one.",
        minimum=0,
        synonyms=(Synonym("log.index.interval.bytes"),),
        effect=_NONE,
    ),
    TopicKey(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        "Leader replicas that are throttled; no effect, because brokers do not copy logs from one another.",
        check=_throttled_replicas,
        effect=_NONE,
    ),
    TopicKey(
        "local.retention.bytes",
        _L,
        "-2",
        "How much stays local once tiered; no effect, because tiered storage is not available here.",
        minimum=-2,
        synonyms=(Synonym("log.local.retention.bytes"),),
        effect=_NONE,
    ),
    TopicKey(
        "local.retention.ms",
        _L,
        "-2",
        "How long data stays local once tiered; no effect, because tiered storage is not available here.",
        minimum=-2,
        synonyms=(Synonym("log.local.retention.ms"),),
        effect=_NONE,
    ),
    TopicKey(
        "max.compaction.lag.ms",
        _L,
        str(LONG_MAX),
        "How long a record may stay uncompacted, whatever min.cleanable.dirty.ratio says.",
        minimum=1,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    ),
    TopicKey(
        "max.message.bytes",
        _I,
        "1048588",
        "The largest record batch taken, in bytes as it is sent (after compression).",
        minimum=0,
        synonyms=(Synonym("message.max.bytes"),),
    ),
    TopicKey(
        "message.timestamp.after.max.ms",
        _L,
        str(HOUR_MS),
        "How far ahead of the broker's clock a record's own timestamp may be, with"
        " message.timestamp.type=CreateTime.",
        minimum=0,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    ),
    TopicKey(
        "message.timestamp.before.max.ms",
        _L,
        str(LONG_MAX),
        "How far behind the broker's clock a record's own timestamp may be, with"
        " message.timestamp.type=CreateTime.",
        minimum=0,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    ),
    TopicKey(
        "message.timestamp.type",
        _S,
        "CreateTime",
        "Whose time a record carries: its producer's (CreateTime) or that of its arrival (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=(Synonym("log.message.timestamp.type"),),
    ),
    TopicKey(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        "The share of uncompacted data from which on a log is compacted.",
        minimum=0,
        maximum=1,
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
    TopicKey(
        "min.compaction.lag.ms",
        _L,
        "0",
        "How long a record stays uncompacted at least.",
        minimum=0,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    ),
    TopicKey(
        "min.insync.replicas",
        _I,
        "1",
        "How many replicas must be in sync for writes with acks=all; no effect, because a write is on disk before"
        " it is acknowledged, however many replicas the topic has.",
        minimum=1,
        synonyms=(Synonym("min.insync.replicas"),),
        effect=_NONE,
    ),
    TopicKey(
        "preallocate",
        _B,
        "false",
        "Whether segment files get their space in advance; no effect, because the journal always does.",
        synonyms=(Synonym("log.preallocate"),),
        effect=_NONE,
    ),
    TopicKey(
        "remote.log.copy.disable",
        _B,
        "false",
        "Whether tiering stops; no effect, because tiered storage is not available here.",
        effect=_NONE,
    ),
    TopicKey(
        "remote.log.delete.on.disable",
        _B,
        "false",
        "Whether tiered data goes when tiering ends; no effect, because tiered storage is not available"
        " here.",
        effect=_NONE,
    ),
    TopicKey(
        "remote.storage.enable",
        _B,
        "false",
        "Whether the topic is tiered; only false, because tiered storage is not available here.",
        check=_no_tiered_storage,
        effect=_NONE,
    ),
    TopicKey(
        "retention.bytes",
        _L,
        "-1",
        "How many bytes of one partition are kept, in whole segments; a negative number means no limit.",
        synonyms=(Synonym("log.retention.bytes"),),
    ),
    TopicKey(
        "retention.ms",
        _L,
        str(7 * 24 * HOUR_MS),
        "How long data is kept, by the greatest timestamp of a segment; -1 means without end.",
        minimum=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
    ),
    TopicKey(
        "segment.bytes",
        _I,
        str(1 << 30),
        "The size at which a new segment is begun.",
        minimum=1 << 20,
        synonyms=(Synonym("log.segment.bytes"),),
    ),
    TopicKey(
        "segment.index.bytes",
        _I,
        str(10 << 20),
        "The size of a segment's index; no effect, because the index grows as it must.",
        minimum=4,
        maximum=INT_MAX,
        synonyms=(Synonym("log.index.size.max.bytes"),),
        effect=_NONE,
    ),
    TopicKey(
        "segment.jitter.ms",
        _L,
        "0",
        "How much earlier than segment.ms a segment may be closed, at random, so that not all are closed at"
        " once.",
        minimum=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    ),
    TopicKey(
        "segment.ms",
        _L,
        str(7 * 24 * HOUR_MS),
        "The age at which a new segment is begun, so that retention can remove the old one.",
        minimum=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    ),
    TopicKey(
        "unclean.leader.election.enable",
        _B,
        "false",
        "Whether a replica that lags may lead; no effect, because acknowledged data is never given up.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
        effect=_NONE,
    ),
)

TOPIC_KEYS: Final[dict[str, TopicKey]] = {key.name: key for key in _KEYS}
