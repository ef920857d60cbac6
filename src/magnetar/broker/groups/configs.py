"""Settings that a group has of its own (KIP-848, resource type GROUP), and what holds for it.

    /group-configs/<group id>    {"v": 1, "configs": {"consumer.session.timeout.ms": "50000"}}

A group's own setting replaces the server's, within the limits of the server's configuration.  Clients may give settings
to a group that does not exist, and a group keeps its settings when it is deleted, as in Kafka.  A change takes effect
once it is durable; members learn of it with their next heartbeat.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.base.config import ConfigKey, ConfigSource, ConfigType, format_value
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, ConfigEntry, ConfigSynonym
from magnetar.ledger.cursor_store import escape, unescape
from magnetar.metadata.store import Delete, MetadataStore, Put

GROUPS_MAX: Final = 10_000  # with settings of their own
GROUP_ID_CHARS_MAX: Final = 4096
_ROOT: Final = "/group-configs/"
_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_ASSIGNMENT: Final = "consumer.assignment.interval.ms"


class Timing(NamedTuple):
    """Timing that the members of a group of the consumer protocol follow, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class GroupConfigs:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore, settings: GroupSettings) -> None:
        self._metadata = metadata
        self._configs: dict[str, dict[str, str]] = {}
        self._keys = {
            name: self._key(settings, name, documentation)
            for name, documentation in (
                (_ASSIGNMENT, "How long the group goes on with an assignment at least."),
                (_HEARTBEAT, "How often members send heartbeats."),
                (_SESSION, "How long a member may be silent."),
            )
        }
        self._timing = self._timing_of({})
        self._own_timing: dict[str, Timing] = {}

    @staticmethod
    def _key(settings: GroupSettings, name: str, documentation: str) -> ConfigKey:
        def of(prefix: str) -> int:
            value = getattr(
                settings, f"group_{name.replace('consumer.', f'consumer.{prefix}').replace('.', '_')}"
            )
            assert isinstance(value, int), name
            return value

        return ConfigKey(name, ConfigType.INT, str(of("")), documentation, of("min."), of("max."))

    async def load(self) -> None:
        for path, one in await self._metadata.scan(_ROOT):
            self._hold(unescape(path.removeprefix(_ROOT)), json.loads(one.value)["configs"])

    @property
    def names(self) -> list[str]:
        """Groups with settings of their own."""
        return list(self._configs)

    def of(self, group_id: str) -> Mapping[str, str]:
        """The settings that a group has of its own."""
        return self._configs.get(group_id, {})

    def timing(self, group_id: str) -> Timing:
        """The timing in effect for a group: its own settings, else the server's."""
        return self._own_timing.get(group_id, self._timing)

    def describe(self, group_id: str, names: Collection[str] | None) -> list[ConfigEntry]:
        """A group's settings of these names, or all of them."""
        own = self.of(group_id)
        return [self._entry(key, own) for name, key in self._keys.items() if names is None or name in names]

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
        timing = self._timing_of(after)
        if timing.heartbeat_interval_ms >= timing.session_timeout_ms:
            raise InvalidConfig(f"{_HEARTBEAT} must be less than {_SESSION}")
        return after

    async def change(self, group_id: str, configs: Mapping[str, str]) -> None:
        """From now on these are set for the group, as `after` gave them.

        Raises:
            InvalidConfigRequest: so many groups have settings already that this one can have none.
            MetadataError
        """
        is_new = group_id not in self._configs
        if configs and is_new and (len(self._configs) >= GROUPS_MAX or len(group_id) > GROUP_ID_CHARS_MAX):
            raise InvalidConfigRequest(f"{GROUPS_MAX} groups can have settings of their own, and short names")
        path = _ROOT + escape(group_id)
        document = json.dumps({"v": 1, "configs": dict(configs)}).encode()
        await self._metadata.commit([Put(path, document) if configs else Delete(path)])
        self._hold(group_id, configs)

    def _hold(self, group_id: str, configs: Mapping[str, str]) -> None:
        if configs:
            self._configs[group_id] = dict(configs)
            self._own_timing[group_id] = self._timing_of(configs)
        else:
            self._configs.pop(group_id, None)
            self._own_timing.pop(group_id, None)

    def _timing_of(self, configs: Mapping[str, str]) -> Timing:
        """Within the server's limits, which may have been others when a setting was stored."""
        values = []
        for name in (_SESSION, _HEARTBEAT, _ASSIGNMENT):
            key = self._keys[name]
            assert key.default is not None, name
            assert key.minimum is not None, name
            assert key.maximum is not None, name
            value = int(configs.get(name, key.default))
            values.append(int(min(max(value, key.minimum), key.maximum)))
        return Timing(*values)

    @staticmethod
    def _entry(key: ConfigKey, own: Mapping[str, str]) -> ConfigEntry:
        default = ConfigSynonym(f"group.{key.name}", key.default, ConfigSource.DEFAULT_CONFIG)
        synonyms = [default]
        if key.name in own:
            synonyms.insert(0, ConfigSynonym(key.name, own[key.name], ConfigSource.GROUP_CONFIG))
        return ConfigEntry(
            key.name, synonyms[0].value, synonyms[0].source, key.type, key.doc, tuple(synonyms)
        )


def _checked(key: ConfigKey, text: str) -> str:
    try:
        return format_value(key.parse(text)) or ""
    except ValueError as error:
        raise InvalidConfig(f"Invalid value {text[:200]} for configuration {key.name}: {error}") from None
