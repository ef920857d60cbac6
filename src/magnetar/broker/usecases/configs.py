"""Settings of topics and brokers, and levels of loggers, as Kafka's tools describe and change them.

A broker's settings hold from its start; to change one is refused.  All nodes are this process, so any of them answers
for every one, unlike a Kafka broker.  Groups and client metrics have no settings here; to name one is no error.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from magnetar.base.masking import masked
from magnetar.broker.cluster.model import Nodes
from magnetar.broker.policy import logger_levels
from magnetar.broker.policy.broker_config import describe_broker
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange, ConfigEntry
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, group_resource
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.usecases.topic_access import TopicAccess

_WORDS: Final = {
    AlterOperation.SET: "set",
    AlterOperation.APPEND: "appended",
    AlterOperation.SUBTRACT: "subtracted",
    AlterOperation.DELETE: "removed",
}
ALL_BROKERS: Final = ""  # as a broker's name: what was set for all of them while they ran, which is nothing


class ConfigCases:
    """See the module's text.  `given` are the server's settings that were set, as text."""

    def __init__(
        self,
        access: AccessControl,
        topic_access: TopicAccess,
        nodes: Nodes,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        given: Mapping[str, str],
    ) -> None:
        self._access = access
        self._topic_access = topic_access
        self._nodes = nodes
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._given = given

    def list(self, caller: Caller) -> tuple[list[str], list[str]]:
        """The names of all topics, and of all nodes.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        topics = [self._kafka_topics.shown(topic.name) for topic in self._kafka_topics]
        return topics, [str(node.node_id) for node in self._nodes.all]

    # --- topics ------------------------------------------------------------------------------------------------------

    def describe_topic(
        self, caller: Caller, kafka_name: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        """A topic's settings of these names, or all of them.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        topic = self._topic_access.get(caller, Operation.DESCRIBE_CONFIGS, kafka_name)
        return self._topics.defaults.describe(topic.overrides, names)

    async def replace_topic(
        self, caller: Caller, kafka_name: str, configs: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        """Set these, and give up all others that were set.

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
            self._access.record(caller, Change.TOPIC_CONFIGS, topic.resource, **_told(changes)) as recording,
            self._topics.changing(topic),
        ):
            overrides = self._topics.defaults.alter(topic.overrides, changes)
            if validate_only:
                recording.is_none()
            elif overrides != topic.overrides:
                await self._topics.set_config(topic, overrides)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def describe_broker(
        self, caller: Caller, node: str, names: Collection[str] | None
    ) -> Sequence[ConfigEntry]:
        """A node's settings of these names, or all of them.

        Raises:
            ClusterNotAuthorized
            InvalidConfigRequest: there is no such node.
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        if node == ALL_BROKERS:
            return []
        node_id = self._node_id(node, "Broker")
        return describe_broker({**self._given, "node.id": str(node_id)}, names)

    def replace_broker(self, caller: Caller, node: str, names: Collection[str]) -> None:
        """Refuse to set these, if there are any.

        Raises:
            ClusterNotAuthorized, InvalidConfigRequest
        """
        with self._change(caller, Change.BROKER_CONFIGS, node=node, set=list(names)) as recording:
            if node != ALL_BROKERS:
                self._node_id(node, "Broker")
            _refuse(names)
            recording.is_none()

    def alter_broker(self, caller: Caller, node: str, changes: Sequence[ConfigChange]) -> None:
        """As `replace_broker`; nothing was ever set that could be taken back, so that changes nothing and succeeds."""
        names = [one.name for one in changes if one.operation is not AlterOperation.DELETE]
        with self._change(caller, Change.BROKER_CONFIGS, node=node, set=names) as recording:
            if node != ALL_BROKERS:
                self._node_id(node, "Node")
            _refuse(names)
            recording.is_none()

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
        with self._change(caller, Change.LOGGER_LEVELS, **_told(changes)) as recording:
            self._node_id(node, "Node")
            logger_levels.change(changes, validate_only)
            if validate_only:
                recording.is_none()

    # --- what has no settings ----------------------------------------------------------------------------------------

    def describe_group(self, caller: Caller, group_id: str) -> None:
        """Raises GroupNotAuthorized; InvalidConfigRequest for a name that is empty."""
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, group_resource(group_id))
        if not group_id:
            raise InvalidConfigRequest("Group name must not be empty")

    def describe_client_metrics(self, caller: Caller, name: str) -> None:
        """Raises ClusterNotAuthorized; InvalidConfigRequest for a name that is empty."""
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        if not name:
            raise InvalidConfigRequest("Client metrics subscription name must not be empty")

    def alter_group(self, caller: Caller, group_id: str, changes: Sequence[ConfigChange]) -> None:
        """Raises GroupNotAuthorized; InvalidConfig for any change."""
        self._access.require(caller, Operation.ALTER_CONFIGS, group_resource(group_id))
        _refuse_unknown("group", changes)

    def alter_client_metrics(self, caller: Caller, changes: Sequence[ConfigChange]) -> None:
        """Raises ClusterNotAuthorized; InvalidConfig for any change."""
        self._access.require(caller, Operation.ALTER_CONFIGS, CLUSTER)
        _refuse_unknown("client metrics", changes)

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


def _told(changes: Sequence[ConfigChange]) -> dict[str, object]:
    """What the audit log has of changes: what was set, by operation, and what was given up."""
    found: dict[str, object] = {}
    for operation, word in _WORDS.items():
        mine = [one for one in changes if one.operation is operation]
        if operation is AlterOperation.DELETE:
            found[word] = [one.name for one in mine]
        elif mine:
            found[word] = masked({one.name: one.value for one in mine})
    return found


def _refuse(names: Collection[str]) -> None:
    if names:
        wanted = ", ".join(names)[:1000]
        raise InvalidConfigRequest(
            f"Cannot update these configs dynamically: [{wanted}].  They take effect at start only."
        )


def _refuse_unknown(kind: str, changes: Sequence[ConfigChange]) -> None:
    if changes:
        raise InvalidConfig(f"Unknown {kind} config name: {changes[0].name[:200]}")
