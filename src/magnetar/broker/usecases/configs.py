"""Settings of topics, groups and brokers, and levels of loggers, as Kafka's tools describe and change them.

A few of a broker's settings can change while it runs (`policy/dynamic_config.py`).  All nodes are this process, so
each of them answers for all, unlike a Kafka broker.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from magnetar.base.lane import cut
from magnetar.base.masking import masked
from magnetar.base.settings_connections import DYNAMIC_NAMES
from magnetar.broker.cluster.model import Nodes
from magnetar.broker.groups.configs import GroupConfigs
from magnetar.broker.policy import logger_levels
from magnetar.broker.policy.broker_config import describe_all_brokers, describe_broker
from magnetar.broker.policy.dynamic_config import BrokerConfigs, Texts, checked, dynamic_key
from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, ConfigEntry
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.model import CLUSTER, Caller, Operation, group_resource
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions
from magnetar.broker.usecases.topic_access import TopicAccess

_WORDS: Final = {
    AlterOperation.SET: "set",
    AlterOperation.APPEND: "appended",
    AlterOperation.SUBTRACT: "subtracted",
    AlterOperation.DELETE: "removed",
}
ALL_BROKERS: Final = ""  # as a broker's name: what was set for all of them while they ran


class ConfigCases:
    """See the module's text.  `given` are the settings that the operator set at the start, as text."""

    def __init__(
        self,
        topic_access: TopicAccess,
        nodes: Nodes,
        given: Mapping[str, str],
        broker_configs: BrokerConfigs,
        group_configs: GroupConfigs,
        telemetry_subscriptions: TelemetrySubscriptions,
    ) -> None:
        self._topic_access = topic_access
        self._access = topic_access.access
        self._topics = topic_access.topics
        self._kafka_topics = topic_access.kafka_topics
        self._nodes = nodes
        self._given = given
        self._broker_configs = broker_configs
        self._group_configs = group_configs
        self._telemetry_subscriptions = telemetry_subscriptions
        self._changing_groups = asyncio.Lock()  # as the next ones
        self._changing_client_metrics = asyncio.Lock()
        self._changing_brokers = asyncio.Lock()  # held from a look at what is set to the end of its change

    def _topic_names(self, page_size: int) -> Iterator[list[str]]:
        for page in cut(self._kafka_topics, page_size):
            yield [self._kafka_topics.shown(topic.name) for topic in page if not topic.is_deleted]

    def list(
        self, caller: Caller, page_size: int
    ) -> tuple[Iterator[list[str]], list[str], list[str], list[str]]:
        """The names of all topics, of all nodes, of the groups that have settings of their own, and of subscriptions
        to clients' metrics.  Those of topics come in pages, between which others may have turns: a topic that exists
        all the while is in one of them.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        topics = self._topic_names(page_size)
        nodes = [str(node.node_id) for node in self._nodes.all]
        return topics, nodes, self._group_configs.names, self._telemetry_subscriptions.names

    # --- topics ------------------------------------------------------------------------------------------------------

    def describe_topic(
        self, caller: Caller, kafka_name: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        """The topic's settings with these names, or all of them.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        topic = self._topic_access.get(caller, Operation.DESCRIBE_CONFIGS, kafka_name)
        return self._topics.defaults.describe(topic.overrides, names)

    async def replace_topic(
        self, caller: Caller, kafka_name: str, configs: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        """Set these settings, and reset all others that were set.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic, InvalidConfig, InvalidConfigRequest,
            MetadataError
        """
        topic = self._topic_access.get(caller, Operation.ALTER_CONFIGS, kafka_name)
        async with (
            self._access.record(
                caller, Change.TOPIC_CONFIGS, topic.resource, set=masked(configs), others="reset"
            ) as recording,
            self._topics.changing(topic),
        ):
            overrides = self._topics.defaults.canonical(configs)
            if validate_only:
                recording.is_none()
            else:
                await self._topics.set_config(topic, overrides)

    async def alter_topic(
        self, caller: Caller, kafka_name: str, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Change single settings.  Raises as `replace_topic`."""
        topic = self._topic_access.get(caller, Operation.ALTER_CONFIGS, kafka_name)
        async with (
            self._access.record(
                caller, Change.TOPIC_CONFIGS, topic.resource, **_audited(changes)
            ) as recording,
            self._topics.changing(topic),
        ):
            overrides = self._topics.defaults.alter(topic.overrides, changes)
            if validate_only:
                recording.is_none()
            elif overrides != topic.overrides:
                await self._topics.set_config(topic, overrides)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def dynamic_names(self, caller: Caller) -> Sequence[str]:
        """The settings that can change while the server runs.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        return sorted(DYNAMIC_NAMES)

    def describe_broker(
        self, caller: Caller, node: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        """The node's settings with these names, or all of them.

        Raises:
            ClusterNotAuthorized
            InvalidConfigRequest: there is no such node.
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        configs = self._broker_configs
        if node == ALL_BROKERS:
            return describe_all_brokers(configs.of_all(), names)
        node_id = self._node_id(node, "Broker")
        given = {**self._given, "node.id": str(node_id)}
        return describe_broker(given, names, configs.of_node(), configs.of_all())

    async def replace_broker(
        self, caller: Caller, node: str, wanted: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        """Set these settings, and reset all others that were set while the node ran.

        Raises:
            ClusterNotAuthorized, InvalidConfig, InvalidConfigRequest, MetadataError
        """
        changes = [ConfigChange(name, AlterOperation.SET, text) for name, text in wanted.items()]
        await self._change_broker(caller, node, "Broker", changes, validate_only, others="reset")

    async def alter_broker(
        self, caller: Caller, node: str, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Change single settings; resetting one that was never set changes nothing.  Raises as `replace_broker`."""
        await self._change_broker(caller, node, "Node", changes, validate_only)

    async def _change_broker(
        self,
        caller: Caller,
        node: str,
        kind: str,
        changes: Sequence[ConfigChange],
        validate_only: bool,
        **details: str,
    ) -> None:
        told = _audited(changes) | details
        async with (
            self._change(caller, Change.BROKER_CONFIGS, node=node, **told) as recording,
            self._changing_brokers,
        ):
            for_all = node == ALL_BROKERS
            if not for_all:
                self._node_id(node, kind)
            configs = self._broker_configs
            now = configs.of_all() if for_all else configs.of_node()
            after = self._after({} if details else now, changes)
            if after and not for_all and len(self._nodes.all) > 1:
                raise InvalidConfigRequest(
                    "All nodes are one process: set this for all of them (the default)"
                )
            configs.check(after, for_all=for_all)
            if validate_only or after == now:
                recording.is_none()
            else:
                await configs.change(after, for_all=for_all)

    def _after(self, texts: Mapping[str, str], changes: Sequence[ConfigChange]) -> Texts:
        after = dict(texts)
        fixed = []
        for change in changes:
            name, key = change.name, dynamic_key(change.name)
            if change.operation is AlterOperation.DELETE:
                after.pop(name, None)
            elif key is None:
                fixed.append(name)
            elif change.operation is not AlterOperation.SET:
                raise InvalidConfigRequest(f"{change.operation.name} is for lists, and {name} is none")
            elif change.value is None:
                raise InvalidConfigRequest(f"Null value not supported for : {name}")
            else:
                after[name] = checked(name, key, change.value)
        if fixed:
            wanted = ", ".join(fixed)[:1000]
            raise InvalidConfigRequest(
                f"Cannot update these configs dynamically: [{wanted}].  They take effect at start only."
            )
        return after

    # --- loggers -----------------------------------------------------------------------------------------------------

    def describe_loggers(self, caller: Caller, node: str, names: Collection[str] | None) -> Mapping[str, str]:
        """The levels of these loggers, or of all.

        Raises:
            ClusterNotAuthorized, InvalidConfigRequest
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        self._node_id(node, "Broker")
        levels = logger_levels.levels()
        return levels if names is None else {name: levels[name] for name in levels if name in names}

    def alter_loggers(
        self, caller: Caller, node: str, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Set and unset levels.

        Raises:
            ClusterNotAuthorized, InvalidConfig, InvalidConfigRequest
        """
        with self._change(caller, Change.LOGGER_LEVELS, **_audited(changes)) as recording:
            self._node_id(node, "Node")
            logger_levels.change(changes, validate_only)
            if validate_only:
                recording.is_none()

    # --- groups ------------------------------------------------------------------------------------------------------

    def describe_group(
        self, caller: Caller, group_id: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        """The group's settings with these names, or all of them; the group need not exist.

        Raises:
            GroupNotAuthorized
            InvalidConfigRequest: the name is empty.
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, group_resource(group_id))
        if not group_id:
            raise InvalidConfigRequest("Group name must not be empty")
        return self._group_configs.describe(group_id, names)

    async def alter_group(
        self, caller: Caller, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Change single settings.

        Raises:
            GroupNotAuthorized, InvalidConfig, InvalidConfigRequest, MetadataError
        """
        resource = group_resource(group_id)
        async with (
            self._access.change(
                caller, Operation.ALTER_CONFIGS, resource, Change.GROUP_CONFIGS, **_audited(changes)
            ) as recording,
            self._changing_groups,
        ):
            after = self._group_configs.after(group_id, changes)
            if validate_only or after == self._group_configs.of(group_id):
                recording.is_none()
            else:
                await self._group_configs.change(group_id, after)

    # --- subscriptions to clients' metrics ---------------------------------------------------------------------------

    def describe_client_metrics(
        self, caller: Caller, name: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        """A subscription's settings of these names, or all of them; it need not be there.

        Raises:
            ClusterNotAuthorized
            InvalidConfigRequest: the name is empty.
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        if not name:
            raise InvalidConfigRequest("Client metrics subscription name must not be empty")
        return self._telemetry_subscriptions.describe(name, names)

    async def alter_client_metrics(
        self, caller: Caller, name: str, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Change single settings; a subscription without any is gone.

        Raises:
            ClusterNotAuthorized, InvalidConfig, InvalidConfigRequest, MetadataError
        """
        async with (
            self._change(
                caller, Change.CLIENT_METRICS_CONFIGS, subscription=name, **_audited(changes)
            ) as recording,
            self._changing_client_metrics,
        ):
            after = self._telemetry_subscriptions.after(name, changes)
            if validate_only or after == self._telemetry_subscriptions.of(name):
                recording.is_none()
            else:
                await self._telemetry_subscriptions.change(name, after)

    def _change(self, caller: Caller, change: Change, **details: object) -> Recording:
        return self._access.change(caller, Operation.ALTER_CONFIGS, CLUSTER, change, **details)

    def _node_id(self, name: str, kind: str) -> int:
        if not (name.isascii() and name.isdigit()) or len(name) > 10:
            raise InvalidConfigRequest(f"{kind} id must be an integer, but it is: {name[:200]}")
        if int(name) not in self._nodes.by_id:
            known = ", ".join(map(str, self._nodes.by_id))
            raise InvalidConfigRequest(
                f"Unexpected {kind.lower()} id, expected one of {known}, but received {name}"
            )
        return int(name)


def is_dynamic(name: str) -> bool:
    """Whether the setting with this name can change while the server runs."""
    return dynamic_key(name) is not None


def _audited(changes: Sequence[ConfigChange]) -> dict[str, object]:
    """What the audit log says of changes: the settings that were set, by operation, and those that were reset."""
    found: dict[str, object] = {}
    for operation, word in _WORDS.items():
        mine = [one for one in changes if one.operation is operation]
        if operation is AlterOperation.DELETE:
            found[word] = [one.name for one in mine]
        elif mine:
            found[word] = masked({one.name: one.value for one in mine})
    return found
