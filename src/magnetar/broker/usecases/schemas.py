"""Schemas of topics: clients bring them; administrators show, add and delete them.

The persistent and the non-persistent topic of one name share their schemas.  The caller needs the right to the one
that it names.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.policy.model import Compatibility
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.schemas.model import (
    IncompatibleSchema,
    Schema,
    SchemaType,
    SchemaVersion,
    decode_version,
    encode_version,
)
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, topic_resource
from magnetar.broker.topics.pulsar import PulsarTopics

_PLAIN_BYTES: Final = Schema(SchemaType.NONE, b"", {})


class SchemaCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        schemas: SchemaRegistry,
        pulsar_topics: PulsarTopics,
        namespaces: Namespaces,
    ) -> None:
        self._access = access
        self._schemas = schemas
        self._pulsar_topics = pulsar_topics
        self._namespaces = namespaces

    # --- shown -------------------------------------------------------------------------------------------------------

    def get(self, caller: Caller, topic: TopicName, version: int | None = None) -> SchemaVersion:
        """One version of a topic's schema, or the latest one.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, SchemaNotFound
        """
        self._require(caller, Operation.DESCRIBE, topic)
        return self._schemas.get(topic, version)

    def latest(self, caller: Caller, topic: TopicName) -> tuple[Schema, bytes]:
        """A topic's latest schema, and its version in the form that messages contain.  Raises as `get`."""
        return _with_version(self.get(caller, topic))

    def of_messages(self, caller: Caller, topic: TopicName, version: bytes) -> tuple[Schema, bytes]:
        """As `latest`, for the version in a message, which is empty for plain bytes."""
        self._require(caller, Operation.DESCRIBE, topic)
        if not version:
            return _PLAIN_BYTES, b""
        return _with_version(self._schemas.get(topic, decode_version(version)))

    def versions(self, caller: Caller, topic: TopicName) -> list[SchemaVersion]:
        """All versions since the last deletion.

        Raises:
            TopicNotAuthorized, NamespaceNotFound
        """
        self._require(caller, Operation.DESCRIBE, topic)
        return self._schemas.versions(topic)

    def find(self, caller: Caller, topic: TopicName, schema: Schema) -> SchemaVersion | None:
        """The version that `schema` has in the topic.

        Raises:
            TopicNotAuthorized, NamespaceNotFound
        """
        self._require(caller, Operation.DESCRIBE, topic)
        return self._schemas.find(topic, schema)

    def compare(self, caller: Caller, topic: TopicName, schema: Schema) -> tuple[Compatibility, bool]:
        """The rule by which the topic accepts schemas, and whether it would accept `schema` now.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, InvalidSchema
        """
        self._require(caller, Operation.DESCRIBE, topic)
        strategy = self._namespaces.policies_of(topic).schema_compatibility
        try:
            self._schemas.check_compatible(topic, schema)
        except IncompatibleSchema:
            return strategy, False
        return strategy, True

    # --- changed -----------------------------------------------------------------------------------------------------

    async def register(self, caller: Caller, topic: TopicName, schema: Schema | None) -> bytes:
        """The version of a producer's schema, in the form that messages contain; a new one if the policies allow it.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic, IncompatibleSchema, InvalidSchema, TopicLinked,
            MetadataError
        """
        self._access.require(caller, Operation.WRITE, topic_resource(topic.full))
        self._pulsar_topics.get(topic)
        if schema is None:
            return b""
        async with noting_new_schema(self._access, self._schemas, caller, topic):
            return encode_version(await self._schemas.register(topic, schema))

    async def add(self, caller: Caller, topic: TopicName, schema: Schema) -> int:
        """The version of an administrator's schema, which may be new even if clients may not bring new ones.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, IncompatibleSchema, InvalidSchema, TopicLinked, MetadataError
        """
        async with self._change(caller, topic, Change.SCHEMA_ADD, type=schema.type.name) as recording:
            version = await self._schemas.register(topic, schema, may_update=True)
            recording.details["version"] = version
            return version

    async def delete(self, caller: Caller, topic: TopicName) -> int:
        """Hide all versions; the deletion is a version itself.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, TopicLinked, MetadataError
        """
        async with self._change(caller, topic, Change.SCHEMA_DELETE):
            return await self._schemas.delete(topic)

    async def purge(self, caller: Caller, topic: TopicName) -> None:
        """Delete all versions without a trace: the next schema has version 0.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, TopicLinked, MetadataError
        """
        async with self._change(caller, topic, Change.SCHEMA_DELETE, without_trace=True):
            await self._schemas.purge(topic)

    @asynccontextmanager
    async def _change(
        self, caller: Caller, topic: TopicName, change: Change, **details: object
    ) -> AsyncIterator[Recording]:
        resource = topic_resource(topic.full)
        async with self._access.change(caller, Operation.ALTER, resource, change, **details) as recording:
            self._namespaces.require(topic.namespace_name)
            yield recording

    def _require(self, caller: Caller, operation: Operation, topic: TopicName) -> None:
        self._access.require(caller, operation, topic_resource(topic.full))
        self._namespaces.require(topic.namespace_name)


@asynccontextmanager
async def noting_new_schema(
    access: AccessControl, schemas: SchemaRegistry, caller: Caller, topic: TopicName
) -> AsyncIterator[None]:
    """A client brings a schema: if that gives the topic a new version, it is a change."""
    count = schemas.version_count(topic)
    yield
    if schemas.version_count(topic) > count:
        await access.note(caller, Change.SCHEMA_ADD, topic_resource(topic.full), version=count)


def _with_version(found: SchemaVersion) -> tuple[Schema, bytes]:
    assert found.schema is not None
    return found.schema, found.encoded
