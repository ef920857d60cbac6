"""Which clients push which of their metrics (KIP-714, resource type CLIENT_METRICS).

    /client-metrics/<name>    {"v": 1, "configs": {"interval.ms": "10000", "metrics": "*", "match": "client_id=app-.*"}}

A subscription exists while it has settings, as in Kafka.  A client must push what all matching subscriptions want
together, with the shortest of their intervals.  A change takes effect once it is durable; clients learn of it with
their next request.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.base.config import ConfigKey, ConfigSource, ConfigType, Value, format_value
from magnetar.base.patterns import whole_matcher
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, ConfigEntry
from magnetar.broker.policy.stored_configs import StoredConfigs, entry_of
from magnetar.broker.telemetry.model import TelemetryClient, Wanted
from magnetar.metadata.store import MetadataStore

SUBSCRIPTIONS_MAX: Final = 100
NAME_CHARS_MAX: Final = 250
PATTERN_CHARS_MAX: Final = 500
ALL_METRICS: Final = "*"
INTERVAL_DEFAULT_MS: Final = 300_000
_INTERVAL: Final = "interval.ms"
_METRICS: Final = "metrics"
_MATCH: Final = "match"
_ROOT: Final = "/client-metrics/"

Matches = Callable[[str], bool]
Reads = Callable[[TelemetryClient, bytes], str]

_SELECTORS: Final[Mapping[str, Reads]] = {
    "client_id": lambda client, _: client.client_id,
    "client_instance_id": lambda _, instance_id: shown(instance_id),
    "client_software_name": lambda client, _: client.software_name,
    "client_software_version": lambda client, _: client.software_version,
    "client_source_address": lambda client, _: client.address,
}


class _Subscription(NamedTuple):
    wanted: Wanted
    match: Mapping[str, Matches]

    def is_for(self, client: TelemetryClient, instance_id: bytes) -> bool:
        return all(matches(_SELECTORS[name](client, instance_id)) for name, matches in self.match.items())


class TelemetrySubscriptions:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._stored = StoredConfigs(metadata, _ROOT, self._hold)
        self.load = self._stored.load
        self.of = self._stored.of  # the settings that a subscription has of its own
        self._subscriptions: dict[str, _Subscription] = {}
        self.version = 0  # grows with each change

    @property
    def names(self) -> list[str]:
        return self._stored.names

    def wanted(self, client: TelemetryClient, instance_id: bytes) -> Wanted:
        """What all subscriptions together want of a client."""
        found = [one.wanted for one in self._subscriptions.values() if one.is_for(client, instance_id)]
        metrics = sorted({name for one in found for name in one.metrics})
        interval_ms = min([one.interval_ms for one in found], default=INTERVAL_DEFAULT_MS)
        return Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics), interval_ms)

    def describe(self, name: str, names: Collection[str] | None) -> list[ConfigEntry]:
        """A subscription's settings with these names; all if `names` is None.  A missing one has none, as in Kafka."""
        own = self.of(name)
        if not own:
            return []
        return [
            entry_of(key, own, ConfigSource.CLIENT_METRICS_CONFIG)
            for key in _KEYS.values()
            if names is None or key.name in names
        ]

    def after(self, name: str, changes: Sequence[ConfigChange]) -> dict[str, str]:
        """The settings after these changes; removing a missing one changes nothing.

        Raises:
            InvalidConfig, InvalidConfigRequest
        """
        if not name:
            raise InvalidConfigRequest("Client metrics subscription name must not be empty")
        after = dict(self.of(name))
        for change in changes:
            key = _KEYS.get(change.name)
            if key is None:
                raise InvalidConfigRequest(f"Unknown client metrics config name: {change.name[:200]}")
            if change.operation is AlterOperation.DELETE:
                after.pop(change.name, None)
            else:
                after[change.name] = _changed(key, after.get(change.name, key.default or ""), change)
        return after

    async def change(self, name: str, configs: Mapping[str, str]) -> None:
        """Store these settings, as `after` returned them; without settings the subscription is gone.

        Raises:
            InvalidConfigRequest: there are too many subscriptions already.
            MetadataError
        """
        stored = self._stored
        if configs and not stored.has_room(name, names_max=SUBSCRIPTIONS_MAX, chars_max=NAME_CHARS_MAX):
            raise InvalidConfigRequest(
                f"There can be {SUBSCRIPTIONS_MAX} client metrics subscriptions, with names of {NAME_CHARS_MAX}"
                " characters"
            )
        await stored.change(name, configs)

    def _hold(self, name: str, configs: Mapping[str, str]) -> None:
        if configs:
            self._subscriptions[name] = _parsed(configs)
        else:
            self._subscriptions.pop(name, None)
        self.version += 1


def _parsed(configs: Mapping[str, str]) -> _Subscription:
    interval_ms, metrics, match = (
        key.parse(configs.get(key.name, key.default or ""))
        for key in (_KEYS[_INTERVAL], _KEYS[_METRICS], _KEYS[_MATCH])
    )
    assert isinstance(interval_ms, int)
    assert isinstance(metrics, tuple)
    assert isinstance(match, tuple)
    return _Subscription(Wanted(metrics, interval_ms), dict(map(_selector, match)))


def _selector(text: str) -> tuple[str, Matches]:
    """One element of `match`, parsed.  Raises ValueError with half a sentence for the client."""
    name, is_there, pattern = (part.strip() for part in text.partition("="))
    if not is_there or name not in _SELECTORS:
        raise ValueError(f"has {text[:200]}, which is not one of {', '.join(_SELECTORS)}, = and a pattern")
    try:
        return name, whole_matcher(pattern, PATTERN_CHARS_MAX)
    except ValueError as error:
        raise ValueError(f"has the pattern {pattern[:200]}: {error}") from None


def _match_problem(value: Value) -> str | None:
    assert isinstance(value, tuple)
    try:
        names = [_selector(text)[0] for text in value]
    except ValueError as error:
        return str(error)
    return None if len(set(names)) == len(names) else "names something twice"


def shown(instance_id: bytes) -> str:
    """An instance's id as Kafka's clients and tools write it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")


def _changed(key: ConfigKey, before: str, change: ConfigChange) -> str:
    value = change.value or ""
    if change.operation is not AlterOperation.SET:
        if key.type is not ConfigType.LIST:
            raise InvalidConfigRequest(f"{change.operation.name} is for lists, and {key.name} is none")
        had, named = ([one.strip() for one in text.split(",") if one.strip()] for text in (before, value))
        kept = (
            [*had, *named]
            if change.operation is AlterOperation.APPEND
            else [one for one in had if one not in named]
        )
        value = ",".join(kept)
    try:
        return format_value(key.parse(value)) or ""
    except ValueError as error:
        raise InvalidConfig(f"Invalid value {value[:200]} for configuration {key.name}: {error}") from None


_KEYS: Final = {
    key.name: key
    for key in (
        ConfigKey(
            _INTERVAL,
            ConfigType.INT,
            str(INTERVAL_DEFAULT_MS),
            "How often a client pushes its metrics.",
            100,
            3_600_000,
        ),
        ConfigKey(
            _MATCH,
            ConfigType.LIST,
            "",
            "Which clients push: each element is what the client is known by, = and a pattern for the whole of that.",
            check=_match_problem,
        ),
        ConfigKey(
            _METRICS,
            ConfigType.LIST,
            "",
            f"Beginnings of the names of metrics that a client pushes; {ALL_METRICS} for all of them.",
        ),
    )
}
