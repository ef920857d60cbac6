"""A topic's configuration: overrides over the broker's defaults, and how clients see and change it.

A topic stores only its *overrides* ({name: text}, canonical text).  `TopicDefaults` is made once from the settings with
which the broker was started.  It turns overrides into the typed `TopicConfig` that the log and the publish path read,
and into the entries that DescribeConfigs shows.  Changes (AlterConfigs, IncrementalAlterConfigs) are pure functions
from overrides to overrides; what they return is valid as a whole, or they raise and nothing has changed.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from magnetar.base.config import LONG_MAX, ConfigSource, ConfigType, Value, closest, format_value
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, ConfigEntry, ConfigSynonym, TopicConfig
from magnetar.broker.policy.topic_keys import TOPIC_KEYS, Synonym, TopicKey

_SHARED_CONFIGS_MAX: Final = 1024


class TopicDefaults:
    """The broker's defaults for topics: what it was started with, over Kafka's own.

    `broker` holds the broker keys that were set, {name: text}, already validated.
    """

    def __init__(self, broker: Mapping[str, str] | None = None) -> None:
        given = broker or {}
        self._synonyms = {name: _broker_synonyms(key, given) for name, key in TOPIC_KEYS.items()}
        self._texts = {name: _default_text(key, given) for name, key in TOPIC_KEYS.items()}
        self._values = {name: _parse(TOPIC_KEYS[name], text) for name, text in self._texts.items()}
        self._shared: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The effective configuration; equal overrides share one object, so that 10,000 plain topics cost
        one.

        Raises:
            InvalidConfig: an override is unknown or not allowed.
        """
        identity = frozenset(overrides.items())
        found = self._shared.get(identity)
        if found is None:
            found = _typed(self._validated(overrides))
            if len(self._shared) >= _SHARED_CONFIGS_MAX:
                self._shared.clear()
            self._shared[identity] = found
        return found

    def canonical(self, overrides: Mapping[str, str | None]) -> dict[str, str]:
        """`overrides` in canonical text: what CreateTopics and (not incremental) AlterConfigs store.

        Raises:
            InvalidConfig: a key is unknown, or a value is not allowed by itself or next to the others.
            InvalidConfigRequest: a value is null.
        """
        given: dict[str, str] = {}
        for name, text in overrides.items():
            _key(name)
            if text is None:
                raise InvalidConfigRequest(
                    f"configuration {name} has no value: leave it out to have the default"
                )
            given[name] = text
        values = self._validated(given)
        return {name: format_value(values[name]) or "" for name in given}

    def alter(self, overrides: Mapping[str, str], changes: Iterable[ConfigChange]) -> dict[str, str]:
        """The overrides after IncrementalAlterConfigs.

        APPEND and SUBTRACT work on the effective value when there is no override; adding what is there, or
        removing what is not, changes nothing.

        Raises:
            InvalidConfig: as for `canonical`, or APPEND and SUBTRACT on a key that is not a list.
            InvalidConfigRequest: a key is named twice, or an operation that needs a value has none.
        """
        altered: dict[str, str | None] = dict(overrides)
        seen: set[str] = set()
        for change in changes:
            name = change.name
            if name in seen:
                raise InvalidConfigRequest(f"configuration {name[:200]} is named twice in one request")
            seen.add(name)
            if change.operation is AlterOperation.DELETE:
                # Kafka takes this for unknown names, too: it mends what a newer broker left.
                altered.pop(name, None)
                continue
            key = _key(name)
            if change.value is None:
                raise InvalidConfigRequest(f"configuration {name} needs a value for {change.operation.name}")
            if change.operation is AlterOperation.SET:
                altered[name] = change.value
                continue
            if key.type is not ConfigType.LIST:
                raise InvalidConfig(
                    f"configuration {name} is not a list: use SET, not {change.operation.name}"
                )
            override = altered.get(name)
            current = _parse(key, self._texts[name] if override is None else override)
            wanted = _parse(key, change.value)
            assert isinstance(current, tuple)
            assert isinstance(wanted, tuple)
            if change.operation is AlterOperation.APPEND:
                altered[name] = ",".join((*current, *(item for item in wanted if item not in current)))
            else:
                altered[name] = ",".join(item for item in current if item not in wanted)
        return self.canonical(altered)

    def describe(
        self, overrides: Mapping[str, str], names: Collection[str] | None = None
    ) -> list[ConfigEntry]:
        """Every key (or those of `names` that exist), in order of name, as DescribeConfigs shows it."""
        wanted = TOPIC_KEYS if names is None else TOPIC_KEYS.keys() & set(names)
        return [self._entry(TOPIC_KEYS[name], overrides) for name in sorted(wanted)]

    def _entry(self, key: TopicKey, overrides: Mapping[str, str]) -> ConfigEntry:
        synonyms = self._synonyms[key.name]
        if key.name in overrides:
            override = ConfigSynonym(key.name, overrides[key.name], ConfigSource.DYNAMIC_TOPIC_CONFIG)
            return ConfigEntry(
                key.name, override.value, override.source, key.type, key.doc, (override, *synonyms)
            )
        return ConfigEntry(key.name, self._texts[key.name], synonyms[0].source, key.type, key.doc, synonyms)

    def _validated(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        values = dict(self._values)
        for name, text in overrides.items():
            values[name] = _parse(_key(name), text)
        lag_min, lag_max = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
        assert isinstance(lag_min, int)
        assert isinstance(lag_max, int)
        if lag_min > lag_max:
            raise InvalidConfig(
                f"configuration min.compaction.lag.ms ({lag_min}) is greater than max.compaction.lag.ms"
                f" ({lag_max})"
            )
        return values


def _typed(values: Mapping[str, Value]) -> TopicConfig:
    def integer(name: str) -> int:
        value = values[name]
        assert isinstance(value, int), name
        return value

    policies = values["cleanup.policy"]
    assert isinstance(policies, tuple)
    return TopicConfig(
        compact="compact" in policies,
        delete="delete" in policies,
        max_message_bytes=integer("max.message.bytes"),
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=integer("message.timestamp.after.max.ms"),
        retention_ms=integer("retention.ms"),
        retention_bytes=integer("retention.bytes"),
        segment_bytes=integer("segment.bytes"),
        segment_ms=integer("segment.ms"),
        segment_jitter_ms=integer("segment.jitter.ms"),
        compaction_lag_min_ms=integer("min.compaction.lag.ms"),
        compaction_lag_max_ms=integer("max.compaction.lag.ms"),
        dirty_share_min=_share(values["min.cleanable.dirty.ratio"]),
        delete_retention_ms=integer("delete.retention.ms"),
    )


def _share(value: Value) -> float:
    assert isinstance(value, int | float), value
    return float(value)


def _key(name: str) -> TopicKey:
    key = TOPIC_KEYS.get(name)
    if key is None:
        meant = closest(name, TOPIC_KEYS)
        hint = f": did you mean {meant}?" if meant is not None else ""
        raise InvalidConfig(f"unknown topic configuration {name[:200]!r}{hint}")
    return key


def _parse(key: TopicKey, text: str) -> Value:
    try:
        return key.parse(text)
    except ValueError as error:
        raise InvalidConfig(f"configuration {key.name} {error}, not {text[:200]!r}") from None


def _default_text(key: TopicKey, broker: Mapping[str, str]) -> str:
    for synonym in key.synonyms:
        if synonym.name in broker:
            return _converted(key, synonym, broker[synonym.name])
    assert key.default is not None, key.name
    return key.default


def _converted(key: TopicKey, synonym: Synonym, text: str) -> str:
    if synonym.unit == 1:
        return format_value(_parse(key, text)) or ""
    count = int(text)
    # -1 hours is "without end", as -1 ms is.
    return str(count if count < 0 else min(count * synonym.unit, LONG_MAX))


def _broker_synonyms(key: TopicKey, broker: Mapping[str, str]) -> tuple[ConfigSynonym, ...]:
    """What was set, in order of precedence, then Kafka's own default under the last synonym's name."""
    given = [
        ConfigSynonym(synonym.name, broker[synonym.name], ConfigSource.STATIC_BROKER_CONFIG)
        for synonym in key.synonyms
        if synonym.name in broker
    ]
    last = key.synonyms[-1] if key.synonyms else Synonym(key.name)
    assert key.default is not None, key.name
    default = key.default if last.unit == 1 else str(int(key.default) // last.unit)
    return (*given, ConfigSynonym(last.name, default, ConfigSource.DEFAULT_CONFIG))
