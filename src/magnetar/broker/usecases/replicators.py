"""Replicators (PIP-18): configurations of a namespace, and the replicators of a topic.

A configuration belongs to the policies of its namespace, and takes the right to change these.  What is done to a
topic's replicators changes the topic: they hold its messages back.  A replicator runs for whom its configuration was
added, and reads only what that principal may read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from magnetar.base.errors import ConfigError
from magnetar.base.masking import HIDDEN
from magnetar.base.names import TopicName
from magnetar.broker.history.replicator_rates import ReplicatorRates
from magnetar.broker.jobs.errors import InvalidReplicator
from magnetar.broker.jobs.model import State
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.jobs.replicators import Replicator, Replicators
from magnetar.broker.policy.model import (
    REPLICATION_MAPPING,
    REPLICATION_PROPERTIES,
    Region,
    ReplicatorConfig,
)
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, namespace_resource, topic_resource
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.replicators.naming import WORD_CHARS_MAX, is_word
from magnetar.replicators.policies import is_topic_name, matcher

MAPPING_MAX: Final = 1000
EXPRESSIONS_MAX: Final = 20  # each new topic of the namespace is compared with all of them
TARGET_CHARS_MAX: Final = 1024
PROPERTIES_MAX: Final = 200
TEXT_CHARS_MAX: Final = 8192
# Of a namespace, whose document has to fit one value of the metadata store.
CONFIGS_MAX: Final = 16
CONFIG_BYTES_MAX: Final = 24 << 10
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Action(Enum):
    """What a user does to a replicator, as PIP-18 calls it."""

    START = "Start"
    STOP = "Stop"
    RESTART = "Restart"


@dataclass(frozen=True, slots=True)
class ReplicatorStatistics:
    """`state` is what the replicator's pipeline does, and `reason` why, if that is not what is wanted.  `backlog` is
    what its subscription has not acknowledged, `consumers` how many read by it.  `status` are the worker's numbers,
    as of `reported_ms`; None if it has reported none.  `is_held`: it runs, and a dispatch rate holds it back.
    """

    replicator: Replicator
    state: State
    reason: str
    backlog: int
    consumers: int
    is_held: bool
    status: Mapping[str, Any]
    reported_ms: int | None


class ReplicatorCases:
    """See the module's text.  `region` None stands for all regions of a type."""

    def __init__(
        self,
        access: AccessControl,
        namespaces: Namespaces,
        pulsar_topics: PulsarTopics,
        replicators: Replicators,
        pipelines: Pipelines,
        subscriptions: Subscriptions,
        admin: SubscriptionAdmin,
        rates: ReplicatorRates,
    ) -> None:
        self._access = access
        self._rates = rates
        self._namespaces = namespaces
        self._pulsar_topics = pulsar_topics
        self._replicators = replicators
        self._pipelines = pipelines
        self._subscriptions = subscriptions
        self._admin = admin

    # --- configurations ----------------------------------------------------------------------------------------------

    def configs(self, caller: Caller, namespace: str) -> Sequence[ReplicatorConfig]:
        """The configurations of a namespace, without credentials.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, namespace_resource(namespace))
        found = self._namespaces.require(namespace).replicators.values()
        return [one for one in found if not one.is_removed]

    async def add_config(
        self,
        caller: Caller,
        namespace: str,
        region: Region,
        properties: Mapping[str, Any],
        topic_names: Mapping[str, str],
        key_store: str = "",
        auth_param: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a configuration, or replace the one of its type and region, and start a replicator of each topic that it
        means; they run for the caller.

        Raises:
            NamespaceNotAuthorized, ClusterNotAuthorized, NamespaceNotFound, InvalidReplicator, ReplicatorBusy,
            MetadataError
        """
        async with self._access.change(
            caller,
            Operation.ALTER_CONFIGS,
            namespace_resource(namespace),
            Change.REPLICATOR_ADD,
            replicator=region.type,
            region=region.name,
        ):
            self._access.require_lasting(caller)
            others = self._namespaces.require(namespace).replicators.keys() - {region}
            if len(others) >= CONFIGS_MAX:
                raise InvalidReplicator(
                    f"a namespace has at most {CONFIGS_MAX} configurations of replicators"
                )
            _check(region, properties, topic_names)
            config = ReplicatorConfig(region, properties, topic_names, key_store, caller.principal, 0)
            size = len(json.dumps(config.document()))
            if size > CONFIG_BYTES_MAX:
                raise InvalidReplicator(
                    f"a configuration of {size} bytes is too large: {CONFIG_BYTES_MAX} are allowed"
                )
            await self._replicators.add(namespace, config, auth_param)

    async def remove_config(self, caller: Caller, namespace: str, region: Region) -> None:
        """Remove a configuration, its credentials and its replicators with their subscriptions.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound, ReplicatorNotFound, InvalidReplicator, MetadataError
        """
        async with self._access.change(
            caller,
            Operation.ALTER_CONFIGS,
            namespace_resource(namespace),
            Change.REPLICATOR_REMOVE,
            replicator=region.type,
            region=region.name,
        ):
            await self._replicators.remove(namespace, region)

    # --- replicators of a topic --------------------------------------------------------------------------------------

    async def register(self, caller: Caller, topic: TopicName, kind: str, region: str | None = None) -> None:
        """Have a mapped topic replicated that was taken out before; from its present end on.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic
            ReplicatorNotFound: no configuration means the topic.
            ReplicatorExists, ReplicatorBusy, InvalidReplicator, MetadataError
        """
        async with self._access.change(
            caller,
            Operation.ALTER,
            topic_resource(topic.full),
            Change.REPLICATOR_REGISTER,
            replicator=kind,
            region=region,
        ):
            await self._replicators.register(self._pulsar_topics.get(topic), kind, region)

    async def deregister(
        self, caller: Caller, topic: TopicName, kind: str, region: str | None = None
    ) -> None:
        """Stop replicators of a topic for good, and drop their subscriptions.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic, ReplicatorNotFound, MetadataError
        """
        async with self._access.change(
            caller,
            Operation.ALTER,
            topic_resource(topic.full),
            Change.REPLICATOR_DEREGISTER,
            replicator=kind,
            region=region,
        ):
            await self._replicators.deregister(self._pulsar_topics.get(topic), kind, region)

    async def act(
        self, caller: Caller, topic: TopicName, kind: str, action: Action, region: str | None = None
    ) -> None:
        """Start, stop or restart replicators of a topic; a stopped one keeps its place.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic, ReplicatorNotFound, MetadataError
            InvalidReplicator: its credentials cannot be had.
        """
        async with self._access.change(
            caller,
            Operation.ALTER,
            topic_resource(topic.full),
            Change.REPLICATOR_UPDATE,
            replicator=kind,
            region=region,
            action=action.value,
        ):
            self._pulsar_topics.get(topic)
            match action:
                case Action.START:
                    await self._replicators.start(topic, kind, region)
                case Action.STOP:
                    await self._replicators.stop(topic, kind, region)
                case Action.RESTART:
                    await self._replicators.restart(topic, kind, region)

    def statistics(self, caller: Caller, topic: TopicName) -> Sequence[ReplicatorStatistics]:
        """What the replicators of a topic do, and how far they are.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic, StorageError
        """
        self._access.require(caller, Operation.DESCRIBE, topic_resource(topic.full))
        self._pulsar_topics.get(topic)
        return [self._statistics(one) for one in self._replicators.of_topic(topic)]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _statistics(self, replicator: Replicator) -> ReplicatorStatistics:
        backlog = consumers = 0
        is_held = False
        for partition in self._pulsar_topics.partitions(replicator.topic.full):
            try:
                backlog += self._admin.backlog(partition, replicator.subscription)
            except SubscriptionNotFound:
                continue  # a user has dropped it; the replicator makes it again
            is_held = is_held or self._rates.holds(partition, replicator.subscription)
            opened = self._subscriptions.find(partition, replicator.subscription)
            # One consumer of a partitioned topic reads all of its partitions.
            consumers = max(consumers, 0 if opened is None else len(opened.consumers))
        state, reason = self._pipelines.state(replicator.pipeline)
        is_held = is_held and state is State.RUNNING
        report = self._pipelines.report(replicator.pipeline)
        status, at_ms = ({}, None) if report is None else (report.status, report.at_ms)
        return ReplicatorStatistics(replicator, state, reason, backlog, consumers, is_held, status, at_ms)


def _check(region: Region, properties: Mapping[str, Any], topic_names: Mapping[str, str]) -> None:
    """What no provider has to look at.  Raises InvalidReplicator."""
    for what, word in (("type", region.type), ("region", region.name)):
        if not is_word(word):
            raise InvalidReplicator(
                f"the {what} {word[:100]!r} must have 1 to {WORD_CHARS_MAX} ASCII letters, digits and the characters"
                " _ -"
            )
    if len(properties) > PROPERTIES_MAX:
        raise InvalidReplicator(
            f"{REPLICATION_PROPERTIES} may have {PROPERTIES_MAX} properties, not {len(properties)}"
        )
    for name, value in properties.items():
        if not isinstance(value, str | int | float | bool) or len(str(value)) > TEXT_CHARS_MAX:
            raise InvalidReplicator(
                f"{REPLICATION_PROPERTIES}: {name[:100]!r} must be a text, a number, true or false"
            )
        if value == HIDDEN:
            raise InvalidReplicator(
                f"{REPLICATION_PROPERTIES}: {name[:100]!r} is {HIDDEN}: give the value itself"
            )
    if not topic_names or len(topic_names) > MAPPING_MAX:
        raise InvalidReplicator(
            f"{REPLICATION_MAPPING} must name 1 to {MAPPING_MAX} topics, not {len(topic_names)}"
        )
    expressions = [key for key in topic_names if not is_topic_name(key)]
    if len(expressions) > EXPRESSIONS_MAX:
        raise InvalidReplicator(
            f"{REPLICATION_MAPPING} may have {EXPRESSIONS_MAX} expressions, not {len(expressions)}"
        )
    for key, target in topic_names.items():
        if not isinstance(target, str) or not 0 < len(target) <= TARGET_CHARS_MAX or _CONTROL.search(target):
            raise InvalidReplicator(
                f"{REPLICATION_MAPPING}: {key[:100]!r} must have the name of where its records go, of"
                f" {TARGET_CHARS_MAX} characters at most"
            )
    try:
        for expression in expressions:
            matcher(expression)
    except ConfigError as error:
        raise InvalidReplicator(str(error)) from None
