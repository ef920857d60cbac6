import dataclasses

import pytest

from magnetar.base.config import ConfigSource, ConfigType
from magnetar.base.server_key import Section
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, TopicConfig
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.broker.policy.topic_keys import TOPIC_KEYS, Effect

SET, DELETE, APPEND, SUBTRACT = AlterOperation
DAY_MS = 86_400_000

# What a freshly started Apache Kafka 4.3.1 shows for a topic without overrides.
KAFKA_4_3_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def alter(overrides: dict[str, str], *changes: tuple[str, AlterOperation, str | None]) -> dict[str, str]:
    return TopicDefaults().alter(overrides, [ConfigChange(*change) for change in changes])


def test_a_topic_without_overrides_shows_what_kafka_shows() -> None:
    entries = TopicDefaults().describe({})
    wanted = KAFKA_4_3_DEFAULTS | {
        "errors.deadletterqueue.group.enable": "false"
    }  # which Kafka has from 4.4 on
    assert {entry.name: entry.value for entry in entries} == wanted
    assert [entry.name for entry in entries] == sorted(wanted)
    for entry in entries:
        assert entry.source is ConfigSource.DEFAULT_CONFIG
        assert len(entry.synonyms) == 1
        assert entry.documentation
        assert not entry.read_only
        assert not entry.sensitive


def test_every_default_is_a_valid_value_in_canonical_form() -> None:
    defaults = TopicDefaults()
    texts = {name: key.default for name, key in TOPIC_KEYS.items()}
    assert defaults.canonical(texts) == texts


def test_effective_values_of_a_plain_topic() -> None:
    assert TopicDefaults().config({}) == TopicConfig(
        compact=False,
        delete=True,
        max_message_bytes=1_048_588,
        log_append_time=False,
        timestamp_before_max_ms=(1 << 63) - 1,
        timestamp_after_max_ms=3_600_000,
        retention_ms=7 * DAY_MS,
        retention_bytes=-1,
        segment_bytes=1 << 30,
        segment_ms=7 * DAY_MS,
        segment_jitter_ms=0,
        compaction_lag_min_ms=0,
        compaction_lag_max_ms=(1 << 63) - 1,
        dirty_share_min=0.5,
        delete_retention_ms=DAY_MS,
    )


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("cleanup.policy", "compact", "compact", True),
        ("cleanup.policy", "compact", "delete", False),
        ("cleanup.policy", "compact,delete", "delete", True),
        ("cleanup.policy", "", "delete", False),
        ("max.message.bytes", "1", "max_message_bytes", 1),
        ("message.timestamp.type", "LogAppendTime", "log_append_time", True),
        ("message.timestamp.before.max.ms", "0", "timestamp_before_max_ms", 0),
        ("message.timestamp.after.max.ms", "5", "timestamp_after_max_ms", 5),
        ("retention.ms", "-1", "retention_ms", -1),
        ("retention.bytes", "4096", "retention_bytes", 4096),
        ("segment.bytes", "1048576", "segment_bytes", 1 << 20),
        ("segment.ms", "1", "segment_ms", 1),
        ("segment.jitter.ms", "7", "segment_jitter_ms", 7),
    ],
)
def test_an_override_has_its_effect_and_no_other(name: str, text: str, field: str, value: object) -> None:
    defaults = TopicDefaults()
    changed = dataclasses.asdict(defaults.config({name: text}))
    plain = dataclasses.asdict(defaults.config({}))
    assert changed[field] == value
    if name != "cleanup.policy":
        assert {k for k in plain if plain[k] != changed[k]} == {field}


def test_equal_overrides_share_one_object() -> None:
    defaults = TopicDefaults()
    assert defaults.config({"retention.ms": "5"}) is defaults.config({"retention.ms": "5"})
    for retention_ms in range(5000):
        assert defaults.config({"retention.ms": str(retention_ms)}).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("broker", "retention_ms", "names"),
    [
        ({"log.retention.hours": "1"}, 3_600_000, ["log.retention.hours", "log.retention.hours"]),
        ({"log.retention.hours": "-1"}, -1, ["log.retention.hours", "log.retention.hours"]),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "2"},
            120_000,
            ["log.retention.minutes", "log.retention.hours", "log.retention.hours"],
        ),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"},
            3,
            ["log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.retention.hours"],
        ),
    ],
)
def test_broker_synonyms_give_the_default_in_kafkas_order(
    broker: dict[str, str], retention_ms: int, names: list[str]
) -> None:
    defaults = TopicDefaults(broker)
    assert defaults.config({}).retention_ms == retention_ms
    (entry,) = defaults.describe({}, ["retention.ms"])
    assert entry.value == str(retention_ms)
    assert entry.source is ConfigSource.STATIC_BROKER_CONFIG
    assert [synonym.name for synonym in entry.synonyms] == names
    assert entry.synonyms[-1].value == "168"
    assert entry.synonyms[-1].source is ConfigSource.DEFAULT_CONFIG


def test_an_override_is_shown_before_what_it_hides() -> None:
    defaults = TopicDefaults({"log.segment.bytes": "2000000"})
    (entry,) = defaults.describe({"segment.bytes": "3000000"}, ["segment.bytes", "no.such.key"])
    assert (entry.value, entry.source, entry.type) == (
        "3000000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigType.INT,
    )
    assert [(s.name, s.value, int(s.source)) for s in entry.synonyms] == [
        ("segment.bytes", "3000000", 1),
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_message_max_bytes_of_the_broker_is_the_topics_default() -> None:
    assert TopicDefaults({"message.max.bytes": "5"}).config({}).max_message_bytes == 5


# The same values were put to Apache Kafka 4.3.1, which refuses each with INVALID_CONFIG.
@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "abc", "whole number"),
        ("retention.ms", "", "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "\u0661", "whole number"),
        ("retention.ms", "9223372036854775808", "9223372036854775807"),
        ("retention.ms", "9" * 5000, "whole number"),
        ("cleanup.policy", "x", "compact, delete"),
        ("cleanup.policy", "delete,Compact", "compact, delete"),
        ("compression.type", "ZSTD", "zstd"),
        ("max.message.bytes", "2147483648", "2147483647"),
        ("max.message.bytes", "-1", "at least 0"),
        ("segment.bytes", "1", "1048576"),
        ("min.cleanable.dirty.ratio", "1.5", "0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "number"),
        ("preallocate", "yes", "true or false"),
        ("compression.gzip.level", "0", "-1"),
        ("compression.gzip.level", "10", "9"),
        ("compression.lz4.level", "18", "17"),
        ("compression.zstd.level", "23", "22"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("remote.storage.enable", "true", "not available"),
        ("follower.replication.throttled.replicas", "a", "<partition>:<broker>"),
        ("segment.jitter.ms", "-1", "at least 0"),
        ("max.compaction.lag.ms", "0", "at least 1"),
    ],
)
def test_bad_values_are_refused_with_key_value_and_range(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TopicDefaults().canonical({name: text})
    message = str(caught.value)
    assert name in message
    assert reason in message
    assert repr(text[:200]) in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("name", "text", "canonical"),
    [
        ("retention.ms", " 100 ", "100"),
        ("retention.ms", "+5", "5"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", " delete , compact ", "delete,compact"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", "", ""),
        ("retention.bytes", "-5", "-5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("follower.replication.throttled.replicas", "*", "*"),
        ("follower.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
    ],
)
def test_good_values_are_kept_in_canonical_form(name: str, text: str, canonical: str) -> None:
    assert TopicDefaults().canonical({name: text}) == {name: canonical}


def test_an_unknown_key_is_refused_with_the_closest_known_one() -> None:
    with pytest.raises(InvalidConfig, match=r"'retention.sm': did you mean retention.ms\?"):
        TopicDefaults().config({"retention.sm": "5"})
    with pytest.raises(InvalidConfig, match=r"unknown topic configuration 'zzz'$"):
        alter({}, ("zzz", SET, "1"))


def test_compaction_lags_that_contradict_each_other_are_refused_together() -> None:
    assert alter({}, ("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "100"))
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms \(101\).*max.compaction.lag.ms \(100\)"):
        alter({"max.compaction.lag.ms": "100"}, ("min.compaction.lag.ms", SET, "101"))


@pytest.mark.parametrize(
    ("overrides", "change", "after"),
    [
        ({}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        (
            {"retention.ms": "4", "preallocate": "true"},
            ("retention.ms", DELETE, None),
            {"preallocate": "true"},
        ),
        ({}, ("retention.ms", DELETE, None), {}),
        ({}, ("no.such.key", DELETE, None), {}),
        ({}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": ""}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        (
            {"cleanup.policy": "delete,compact"},
            ("cleanup.policy", SUBTRACT, "delete"),
            {"cleanup.policy": "compact"},
        ),
        (
            {"cleanup.policy": "compact"},
            ("cleanup.policy", SUBTRACT, "compact,delete"),
            {"cleanup.policy": ""},
        ),
        ({}, ("cleanup.policy", SUBTRACT, "compact"), {"cleanup.policy": "delete"}),
    ],
)
def test_incremental_changes(
    overrides: dict[str, str], change: tuple[str, AlterOperation, str | None], after: dict[str, str]
) -> None:
    before = dict(overrides)
    assert alter(overrides, change) == after
    assert overrides == before


def test_append_starts_from_what_the_broker_was_started_with() -> None:
    defaults = TopicDefaults({"log.cleanup.policy": "compact"})
    assert defaults.alter({}, [ConfigChange("cleanup.policy", APPEND, "delete")]) == {
        "cleanup.policy": "compact,delete"
    }


def test_incremental_changes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="not a list"):
        alter({}, ("retention.ms", APPEND, "5"))
    with pytest.raises(InvalidConfig, match="not a list"):
        alter({}, ("retention.ms", SUBTRACT, "5"))
    with pytest.raises(InvalidConfig, match="compact, delete"):
        alter({}, ("cleanup.policy", APPEND, "nope"))
    with pytest.raises(InvalidConfigRequest, match="needs a value"):
        alter({}, ("retention.ms", SET, None))
    with pytest.raises(InvalidConfigRequest, match="named twice"):
        alter({}, ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    with pytest.raises(InvalidConfigRequest, match="no value"):
        TopicDefaults().canonical({"retention.ms": None})


def test_the_servers_table_agrees_with_the_topics_table() -> None:
    behind = set()
    for key in TOPIC_KEYS.values():
        for synonym in key.synonyms:
            server_key = SERVER_KEYS[synonym.name]
            behind.add(synonym.name)
            assert server_key.section is Section.TOPIC_DEFAULTS
            assert bool(server_key.no_effect) == (key.effect is Effect.NO_EFFECT), synonym.name
            if synonym.unit == 1:
                assert server_key.type is key.type
                assert server_key.choices == key.choices
                assert server_key.minimum == key.minimum
            if synonym is key.synonyms[-1]:
                assert server_key.default is not None
                assert key.default is not None
                if synonym.unit == 1:
                    assert server_key.default == key.default
                else:
                    assert int(server_key.default) * synonym.unit == int(key.default)
            else:
                assert server_key.default is None
    assert behind == {key.name for key in SERVER_KEYS.values() if key.section is Section.TOPIC_DEFAULTS}
