"""Policies of namespaces and topics: show and change.

A set of policies is {key: JSON value} of `broker/policy/policies.py`.  A topic's policy takes precedence over its
namespace's.

A change is checked and stored (`broker/policy/namespaces.py`).  Apart from the limits that each partition keeps
(`broker/upkeep/partition_limits.py`), nothing is carried out then: code that acts on a policy reads it when it decides,
by `Namespaces.policies_of`, as `broker/upkeep/retention_pass.py` does.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from magnetar.base.masking import masked
from magnetar.base.names import TopicName
from magnetar.broker.policy.in_effect import in_effect
from magnetar.broker.policy.model import JsonValue, Level, Namespace
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.policy.policies import POLICIES, SUBSCRIPTION_AUTH_MODE, checked
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change, shallow
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    Caller,
    Operation,
    namespace_resource,
    tenant_resource,
    topic_resource,
)
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.topics.topic import Topic

Update = Callable[[dict[str, JsonValue]], Mapping[str, JsonValue]]
PROPERTIES: Final = "properties"  # the policy that keeps what users have said of a namespace or topic


def is_policy(key: str) -> bool:
    """Whether there is a policy with this name that has an effect here."""
    return key in POLICIES


def checked_properties(content: JsonValue) -> Mapping[str, str]:
    """Properties of a topic as they will be stored; raises InvalidPolicy if they are invalid."""
    properties: Mapping[str, str] = checked(PROPERTIES, content, Level.TOPIC)
    return properties


class PolicyCases:
    """See the module's text."""

    def __init__(self, access: AccessControl, namespaces: Namespaces, pulsar_topics: PulsarTopics) -> None:
        self._access = access
        self._namespaces = namespaces
        self._pulsar_topics = pulsar_topics

    # --- of a namespace ----------------------------------------------------------------------------------------------

    def of_namespace(self, caller: Caller, name: str) -> Namespace:
        """A namespace, for its `policies`.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, namespace_resource(name))
        return self._namespaces.require(name)

    def check_namespace_change(self, caller: Caller, name: str) -> None:
        """Check that the caller may change policies of a namespace.  Raises as `of_namespace`."""
        self._access.require(caller, Operation.ALTER_CONFIGS, namespace_resource(name))
        self._namespaces.require(name)

    async def change_namespace(self, caller: Caller, name: str, update: Update) -> None:
        """Replace a namespace's policies by what `update` returns for a copy of them; a value of None removes a
        policy.  To set which roles may use which subscriptions, a caller needs the right to grant rights.

        Raises:
            NamespaceNotAuthorized, TenantNotAuthorized, NamespaceNotFound, InvalidPolicy, MetadataError: nothing has
                changed.
        """

        def updated(values: dict[str, JsonValue]) -> Mapping[str, JsonValue]:
            before = values.get(SUBSCRIPTION_AUTH_MODE)
            after = _compared(update, recording, values)
            if after.get(SUBSCRIPTION_AUTH_MODE) != before:
                self._access.require(caller, Operation.ALTER, tenant_resource(name.partition("/")[0]))
            return after

        async with self._access.change(
            caller, Operation.ALTER_CONFIGS, namespace_resource(name), Change.NAMESPACE_POLICIES
        ) as recording:
            await self._namespaces.change(name, updated)

    async def remove_namespace_property(self, caller: Caller, name: str, key: str) -> str:
        """Remove one property of a namespace; returns what it was, empty if it was not set.

        Raises as `change_namespace`.
        """
        async with self._access.change(
            caller,
            Operation.ALTER_CONFIGS,
            namespace_resource(name),
            Change.NAMESPACE_POLICIES,
            removed_property=key,
        ):
            had: str = self._namespaces.require(name).policies.get(PROPERTIES, {}).get(key, "")
            await self._namespaces.change(name, lambda values: without_property(values, key))
            return had

    # --- of a topic --------------------------------------------------------------------------------------------------

    def of_topic(self, caller: Caller, topic: TopicName) -> Mapping[str, JsonValue]:
        """The policies that are set for a topic itself.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic
        """
        self._described(caller, topic)
        return self._namespaces.topic_policies(topic)

    def in_effect(self, caller: Caller, topic: TopicName, key: str) -> JsonValue:
        """The value of a policy that holds for a topic, wherever it is set.  Raises as `of_topic`."""
        its, namespace = self._described(caller, topic)
        return in_effect(
            key,
            self._namespaces.topic_policies(topic),
            namespace.policies,
            self._namespaces.server,
            its.config,
        )

    def _described(self, caller: Caller, topic: TopicName) -> tuple[Topic, Namespace]:
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, topic_resource(topic.full))
        its = self._pulsar_topics.get(topic)
        return its, self._namespaces.require(topic.namespace_name)

    async def change_topic(self, caller: Caller, topic: TopicName, update: Update) -> None:
        """As `change_namespace`, for the policies of one topic.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic, InvalidPolicy, MetadataError: nothing has changed.
        """
        async with self._access.change(
            caller, Operation.ALTER_CONFIGS, topic_resource(topic.full), Change.TOPIC_POLICIES
        ) as recording:
            self._pulsar_topics.get(topic)
            await self._namespaces.change_topic(topic, partial(_compared, update, recording))

    def check_topic_change(self, caller: Caller, topic: TopicName) -> None:
        """Check that the caller may change policies of a topic.  Raises as `of_topic`."""
        self._access.require(caller, Operation.ALTER_CONFIGS, topic_resource(topic.full))
        self._pulsar_topics.get(topic)

    def topic_properties(self, caller: Caller, topic: TopicName) -> Mapping[str, str]:
        """The properties that users have given a topic.  Raises as `of_topic`."""
        self._access.require(caller, Operation.DESCRIBE, topic_resource(topic.full))
        self._pulsar_topics.get(topic)
        return self._properties(topic)

    async def add_topic_properties(self, caller: Caller, topic: TopicName, added: Mapping[str, str]) -> None:
        """Add properties to a topic, or change some.  Raises as `change_topic`."""
        async with self._access.change(
            caller,
            Operation.ALTER,
            topic_resource(topic.full),
            Change.TOPIC_POLICIES,
            properties=sorted(added),
        ):
            self._pulsar_topics.get(topic)
            await self._namespaces.change_topic(topic, lambda values: with_properties(values, added))

    async def remove_topic_property(self, caller: Caller, topic: TopicName, key: str) -> None:
        """Remove one property of a topic, if it is set.  Raises as `change_topic`."""
        async with self._access.change(
            caller, Operation.ALTER, topic_resource(topic.full), Change.TOPIC_POLICIES, removed_property=key
        ):
            self._pulsar_topics.get(topic)
            if key in self._properties(topic):
                await self._namespaces.change_topic(topic, lambda values: without_property(values, key))

    def _properties(self, topic: TopicName) -> Mapping[str, str]:
        found: Mapping[str, str] = self._namespaces.topic_policies(topic).get(PROPERTIES, {})
        return found


def audited(policies: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """What the audit log says of policies, which may be invalid: of properties only the names, because users may
    write anything into the values.
    """
    found: dict[str, JsonValue] = masked(shallow(policies))
    if PROPERTIES in found:
        found[PROPERTIES] = [*found[PROPERTIES]] if isinstance(found[PROPERTIES], Mapping) else "..."
    return found


def _compared(update: Update, recording: Recording, values: dict[str, JsonValue]) -> Mapping[str, JsonValue]:
    """As `update`, and reports what has changed."""
    before = copy.deepcopy(values)
    after = update(values)
    changed = {key: value for key, value in after.items() if value != before.get(key)}
    recording.details["set"] = audited({key: value for key, value in changed.items() if value is not None})
    recording.details["removed"] = [key for key in before if after.get(key) is None]
    return after


def with_properties(values: Mapping[str, JsonValue], added: Mapping[str, str]) -> dict[str, JsonValue]:
    """Policies with these properties added."""
    return {**values, PROPERTIES: {**values.get(PROPERTIES, {}), **added} or None}


def without_policies(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The properties alone, without all other policies: users do not count properties as policies."""
    return {PROPERTIES: values.get(PROPERTIES)}


def without_property(values: Mapping[str, JsonValue], key: str) -> dict[str, JsonValue]:
    """Policies without one of their properties."""
    left = {name: text for name, text in values.get(PROPERTIES, {}).items() if name != key}
    return {**values, PROPERTIES: left or None}
