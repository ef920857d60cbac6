"""Settings that a group has of its own (KIP-848, KIP-932, KIP-1071, resource type GROUP), and what holds for it.

    /group-configs/<group id>    {"v": 1, "configs": {"consumer.session.timeout.ms": "50000"}}

A group's own setting replaces the server's, within the limits of the server's configuration.  As in Kafka, clients
may set settings of a group that does not exist, and the settings stay when a group is deleted.  A change takes effect
once it is durable; members learn about it with their next heartbeat.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.base.config import ConfigKey, ConfigSource, ConfigType, Value, format_value
from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, ConfigEntry
from magnetar.broker.policy.stored_configs import StoredConfigs, entry_of
from magnetar.broker.subscriptions.model import ShareRules
from magnetar.metadata.store import MetadataStore

GROUPS_MAX: Final = 10_000  # that have settings of their own
GROUP_ID_CHARS_MAX: Final = 4096
INT_MAX: Final = (1 << 31) - 1
_ROOT: Final = "/group-configs/"
_KINDS: Final = ("consumer", "share", "streams")
_SESSION: Final = "session.timeout.ms"
_HEARTBEAT: Final = "heartbeat.interval.ms"
_ASSIGNMENT: Final = "assignment.interval.ms"
_LOCK: Final = "share.record.lock.duration.ms"
_DELIVERIES: Final = "share.delivery.count.limit"
_LOCKS: Final = "share.partition.max.record.locks"
_RESET: Final = "share.auto.offset.reset"
_ISOLATION: Final = "share.isolation.level"
_RENEW: Final = "share.renew.acknowledge.enable"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_COPY: Final = "errors.deadletterqueue.copy.record.enable"
_STANDBYS: Final = "streams.num.standby.replicas"
_INITIAL_DELAY: Final = "streams.initial.rebalance.delay.ms"
_READ_COMMITTED: Final = "read_committed"
_LATEST: Final = "latest"
_EARLIEST: Final = "earliest"

# Days, hours, minutes and seconds of ISO 8601, in the form that Java's Duration reads.
_DURATION: Final = re.compile(
    r"by_duration:P(?=.)(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.\d{1,9})?S)?)?",
    re.IGNORECASE,
)
_SECONDS: Final = (86_400, 3_600, 60, 1)


class Timing(NamedTuple):
    """The timing, in milliseconds, for members of a group to which the server assigns partitions."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class StreamsRules(NamedTuple):
    """What holds for a streams group: its timing, how many standbys each of its tasks has, and how long its first
    assignment waits for more members.
    """

    timing: Timing
    standbys: int
    initial_delay_ms: int


class _Rules(NamedTuple):
    """All settings in effect for a group."""

    consumer: Timing
    share: Timing
    sharing: ShareRules
    streams: StreamsRules


class GroupConfigs:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore, settings: GroupSettings) -> None:
        self._stored = StoredConfigs(metadata, _ROOT, self._hold)
        self.load = self._stored.load
        self.of = self._stored.of  # a group's own settings
        keys = [
            *(_limited(settings, f"{kind}.{name}", text) for kind in _KINDS for name, text in _TIMES),
            *(_limited(settings, name, text) for name, text in _SHARED),
            *_streams_keys(settings),
            *_OTHERS,
        ]
        self._keys = {key.name: key for key in sorted(keys, key=lambda key: key.name)}
        self._rules = self._rules_of({})
        self._own_rules: dict[str, _Rules] = {}

    @property
    def names(self) -> list[str]:
        """The groups that have settings of their own."""
        return self._stored.names

    def timing(self, group_id: str) -> Timing:
        """The timing in effect for a group of the consumer protocol: its own settings, else the server's."""
        return self._own_rules.get(group_id, self._rules).consumer

    def share_timing(self, group_id: str) -> Timing:
        """The timing in effect for a share group."""
        return self._own_rules.get(group_id, self._rules).share

    def sharing(self, group_id: str) -> ShareRules:
        """The rules in effect for the records of a share group."""
        return self._own_rules.get(group_id, self._rules).sharing

    def streams_rules(self, group_id: str) -> StreamsRules:
        """What holds for a streams group."""
        return self._own_rules.get(group_id, self._rules).streams

    def describe(self, group_id: str, names: Collection[str] | None) -> list[ConfigEntry]:
        """A group's settings with these names; all if `names` is None."""
        own = self.of(group_id)
        return [_entry(key, own) for name, key in self._keys.items() if names is None or name in names]

    def after(self, group_id: str, changes: Sequence[ConfigChange]) -> dict[str, str]:
        """The group's settings after these changes; removing a setting that the group does not have changes nothing.

        Raises:
            InvalidConfig, InvalidConfigRequest
        """
        if not group_id:
            raise InvalidConfigRequest("Default group resources are not allowed.")
        after = dict(self.of(group_id))
        for change in changes:
            key = self._keys.get(change.name)
            if key is None:
                raise InvalidConfig(f"Unknown group config name: {change.name[:200]}")
            if change.operation is AlterOperation.DELETE:
                after.pop(change.name, None)
            elif change.operation is not AlterOperation.SET:
                raise InvalidConfigRequest(f"{change.operation.name} is for lists, and {change.name} is none")
            else:
                after[change.name] = _checked(key, change.value or "")
        rules = self._rules_of(after)
        for kind, timing in zip(_KINDS, (rules.consumer, rules.share, rules.streams.timing), strict=True):
            if timing.heartbeat_interval_ms >= timing.session_timeout_ms:
                raise InvalidConfig(f"{kind}.{_HEARTBEAT} must be less than {kind}.{_SESSION}")
        return after

    async def change(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Store a group's own settings, as `after` returned them.

        Raises:
            InvalidConfigRequest: `GROUPS_MAX` other groups already have settings.
            MetadataError
        """
        stored = self._stored
        if configs and not stored.has_room(group_id, names_max=GROUPS_MAX, chars_max=GROUP_ID_CHARS_MAX):
            raise InvalidConfigRequest(f"{GROUPS_MAX} groups can have settings of their own, and short names")
        await stored.change(group_id, configs)

    def _hold(self, group_id: str, configs: Mapping[str, str]) -> None:
        if configs:
            self._own_rules[group_id] = self._rules_of(configs)
        else:
            self._own_rules.pop(group_id, None)

    def _rules_of(self, configs: Mapping[str, str]) -> _Rules:
        consumer, share, streams = (
            Timing(*(self._number(configs, f"{kind}.{name}") for name in (_SESSION, _HEARTBEAT, _ASSIGNMENT)))
            for kind in _KINDS
        )
        reset = self._text(configs, _RESET)
        return _Rules(
            consumer,
            share,
            ShareRules(
                self._number(configs, _LOCK),
                self._number(configs, _DELIVERIES),
                self._number(configs, _LOCKS),
                reset == _EARLIEST,
                _duration_s(reset),
                self._text(configs, _ISOLATION) == _READ_COMMITTED,
                self._text(configs, _RENEW) == "true",
                self._text(configs, _DEAD_LETTERS),
                self._text(configs, _COPY) == "true",
            ),
            StreamsRules(streams, self._number(configs, _STANDBYS), self._number(configs, _INITIAL_DELAY)),
        )

    def _number(self, configs: Mapping[str, str], name: str) -> int:
        """A setting within the server's present limits, which may have changed since it was stored."""
        key = self._keys[name]
        assert key.minimum is not None, name
        assert key.maximum is not None, name
        return int(min(max(int(self._text(configs, name)), key.minimum), key.maximum))

    def _text(self, configs: Mapping[str, str], name: str) -> str:
        default = self._keys[name].default
        assert default is not None, name
        return configs.get(name, default)


def _reset_problem(value: Value) -> str | None:
    if value in (_EARLIEST, _LATEST) or (isinstance(value, str) and _DURATION.fullmatch(value)):
        return None
    return f"must be {_EARLIEST}, {_LATEST}, or by_duration: with a duration as ISO 8601 has it, such as PT1H"


def _dead_letters_problem(value: Value) -> str | None:
    if value == "":
        return None
    try:
        name = TopicName.parse(str(value))
    except InvalidTopicName as error:
        return f"must be the name of a topic: {error}"
    return "must not begin with __" if name.local.startswith("__") else None


def _duration_s(reset: str) -> int:
    """The duration in whole seconds, at least 1; 0 if there is none."""
    found = _DURATION.fullmatch(reset)
    if found is None:
        return 0
    parts = zip(found.groups(), _SECONDS, strict=True)
    return max(1, sum(int(number) * seconds for number, seconds in parts if number))


_TIMES: Final = (
    (_ASSIGNMENT, "How long the group goes on with an assignment at least."),
    (_HEARTBEAT, "How often members send heartbeats."),
    (_SESSION, "How long a member may be silent."),
)
_SHARED: Final = (
    (_LOCK, "How long a share consumer has for a record that it was given."),
    (_DELIVERIES, "How often a record is given to share consumers that do not accept it."),
    (_LOCKS, "How many records of a partition share consumers have at a time."),
)
_OTHERS: Final = (
    ConfigKey(
        _RESET,
        ConfigType.STRING,
        _LATEST,
        "Where a share group begins that has no position yet.",
        check=_reset_problem,
    ),
    ConfigKey(
        _ISOLATION,
        ConfigType.STRING,
        "read_uncommitted",
        "Whether share consumers are given records of transactions that are not committed.",
        choices=(_READ_COMMITTED, "read_uncommitted"),
    ),
    ConfigKey(
        _DEAD_LETTERS,
        ConfigType.STRING,
        "",
        "The topic to which a share group's records go that are rejected, or given up after too many deliveries; none"
        " without a name.",
        check=_dead_letters_problem,
    ),
    ConfigKey(
        _COPY,
        ConfigType.BOOLEAN,
        "false",
        "Whether dead letters have the keys and values of their records, or only headers that say which those are.",
    ),
    ConfigKey(
        _RENEW, ConfigType.BOOLEAN, "true", "Whether share consumers may begin the time for a record anew."
    ),
)


def _limited(settings: GroupSettings, name: str, documentation: str) -> ConfigKey:
    """A number with limits; the server's settings have its default and both limits."""

    def of(prefix: str) -> int:
        kind, _, rest = name.partition(".")
        value = getattr(settings, f"group_{kind}.{prefix}{rest}".replace(".", "_"))
        assert isinstance(value, int), name
        return value

    return ConfigKey(name, ConfigType.INT, str(of("")), documentation, of("min."), of("max."))


def _streams_keys(settings: GroupSettings) -> tuple[ConfigKey, ...]:
    """Numbers of which the server's settings have no limits, or only one."""
    return (
        ConfigKey(
            _STANDBYS,
            ConfigType.INT,
            str(settings.group_streams_num_standby_replicas),
            "How many standbys each task with state has.",
            0,
            settings.group_streams_max_standby_replicas,
        ),
        ConfigKey(
            _INITIAL_DELAY,
            ConfigType.INT,
            str(settings.group_streams_initial_rebalance_delay_ms),
            "How long a new streams group waits for more members before it has its first assignment.",
            0,
            INT_MAX,
        ),
    )


def _entry(key: ConfigKey, own: Mapping[str, str]) -> ConfigEntry:
    default_name = (
        "" if key.minimum is None else f"group.{key.name}"
    )  # the server has no setting for the others
    return entry_of(key, own, ConfigSource.GROUP_CONFIG, default_name)


def _checked(key: ConfigKey, text: str) -> str:
    try:
        return format_value(key.parse(text)) or ""
    except ValueError as error:
        raise InvalidConfig(f"Invalid value {text[:200]} for configuration {key.name}: {error}") from None
