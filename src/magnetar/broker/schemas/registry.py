"""The schemas of all topics: each is stored once, and has a global id and a version in each topic.

A definition gets a global id when it first comes, in any topic (`/schemas/<id>`).  Ids are never used again, because
other registries give such ids to clients.  A topic's history is a list of ids; the index in it, from 0, is Pulsar's
version (`/topic-schemas/<tenant>/<namespace>/<topic>`).  All partitions of a topic share its schemas, and so do the
persistent and the non-persistent topic of one name.  JSON documents::

    /schemas/0000000007     {"v": 1, "type": "AVRO", "name": "...", "properties": {...}, "data": "<base64>"}
    /topic-schemas/a/b/c    {"v": 1, "versions": [[7, created_ms], [-1, created_ms], ...]}       -1: deleted up to here

A definition is deleted when the last topic that names it is deleted, or loses its versions.  That is a step of its own
after the one that removes the name, so a topic that gets the same definition in between keeps it.  The newest
definition stays, because the next id follows from it.  A start deletes none: it cannot know whether a deletion or
damage has taken the names.

Definitions are metadata, which is in memory.  So the definitions of a topic have a limit together.  So have the
definitions that the topics of one tenant were the first to have, as far as this process knows.

What must stay true: a version never changes its meaning, the same schema has the same version, and memory shows only
what is durable.  Definitions are decoded when a caller first asks for them.

A linked topic (`usecases/links.py`) has the versions of its source, which its messages name.  Until a user cuts it
loose, only `copy` adds versions; otherwise they would have other numbers here.
"""

import asyncio
import base64
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.errors import TopicLinked, UnknownTopic
from magnetar.broker.incarnations import Incarnations
from magnetar.broker.policy.model import Compatibility, Policies
from magnetar.broker.schemas.compatibility import check, meaning, validate
from magnetar.broker.schemas.model import (
    DEFINITION_BYTES_MAX,
    TENANT_BYTES_MAX,
    TOPIC_BYTES_MAX,
    VERSIONS_MAX,
    IncompatibleSchema,
    InvalidSchema,
    Schema,
    SchemaNotFound,
    SchemaType,
    SchemaVersion,
    encode_version,
)
from magnetar.metadata.store import Delete, MetadataStore, Put

_log = logging.getLogger(__name__)

SCHEMAS_ROOT: Final = "/schemas/"
TOPIC_SCHEMAS_ROOT: Final = "/topic-schemas/"
_DELETED: Final = -1
_LATEST_ONLY: Final = frozenset(
    (
        Compatibility.BACKWARD,
        Compatibility.FORWARD,
        Compatibility.FORWARD_TRANSITIVE,
        Compatibility.FULL,
    )
)


class SchemaRegistry:
    """See the module's text.  All methods except the coroutines answer from memory."""

    def __init__(
        self,
        metadata: MetadataStore,
        clock: Clock,
        policies_of: Callable[[TopicName], Policies],
        is_linked: Callable[[TopicName], bool],
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._policies_of = policies_of
        self._is_linked = is_linked
        self._stored: dict[int, bytes] = {}  # definitions in their stored form, by id
        self._decoded: dict[int, Schema] = {}
        self._meanings: dict[int, bytes] = {}
        self._names: Counter[int] = Counter()  # how many versions of topics name each definition
        self._unnamed: set[int] = (
            set()
        )  # definitions that no topic names any more, and that are not deleted yet
        self._bringers: dict[int, str] = {}  # the tenants whose topics had each definition first
        self._brought: Counter[str] = Counter()  # bytes of definitions by these tenants
        self._ids: dict[bytes, int] | None = None  # by digest; built when a client first registers a schema
        self._topics: dict[str, list[tuple[int, int]]] = {}  # (id, created_ms) by `tenant/namespace/topic`
        self._next_id = 1
        self._incarnations: Incarnations[str] = Incarnations()
        self._changing = asyncio.Lock()  # two clients with the same new schema must get one version

    async def load(self) -> None:
        """Read the stored schemas; call this once, before anything else."""
        for path, stored in await self._metadata.scan(SCHEMAS_ROOT):
            self._stored[int(path[len(SCHEMAS_ROOT) :])] = stored.value
        self._next_id = max(self._stored, default=0) + 1
        for path, stored in await self._metadata.scan(TOPIC_SCHEMAS_ROOT):
            versions = json.loads(stored.value)["versions"]
            self._topics[path[len(TOPIC_SCHEMAS_ROOT) :]] = [(one[0], one[1]) for one in versions]
        for key, history in self._topics.items():
            for schema_id, _ in history:
                if schema_id != _DELETED and not self._names[schema_id]:
                    self._bring(schema_id, key.partition("/")[0])
                self._names[schema_id] += 1

    # --- reading -----------------------------------------------------------------------------------------------------

    def by_id(self, schema_id: int) -> Schema:
        """The schema with a global id.  Raises SchemaNotFound."""
        found = self._decoded.get(schema_id)
        if found is None:
            stored = self._stored.get(schema_id)
            if stored is None:
                raise SchemaNotFound(f"there is no schema with the id {schema_id}")
            found = self._decoded[schema_id] = _decode(stored)
        return found

    def history(self, topic: TopicName) -> list[SchemaVersion]:
        """All versions that the topic ever had, including deletions."""
        return [
            SchemaVersion(version, schema_id, created_ms, None if schema_id < 0 else self.by_id(schema_id))
            for version, (schema_id, created_ms) in enumerate(self._topics.get(_key(topic), ()))
        ]

    def versions(self, topic: TopicName) -> list[SchemaVersion]:
        """The versions since the last deletion."""
        history = self.history(topic)
        deleted = max((one.version for one in history if one.schema is None), default=-1)
        return history[deleted + 1 :]

    def version_count(self, topic: TopicName) -> int:
        """How many versions the topic has had, including deletions; it only grows, until all are purged."""
        return len(self._topics.get(_key(topic), ()))

    def has_schema(self, topic: TopicName) -> bool:
        stored = self._topics.get(_key(topic), [])
        return bool(stored and stored[-1][0] != _DELETED)

    def get(self, topic: TopicName, version: int | None = None) -> SchemaVersion:
        """One version, or (None) the latest one.  Raises SchemaNotFound if there is none, or it was deleted."""
        stored = self._topics.get(_key(topic), [])
        if version is None:
            version = len(stored) - 1
        if not 0 <= version < len(stored) or any(schema_id == _DELETED for schema_id, _ in stored[version:]):
            raise SchemaNotFound("Topic not found or no-schema")
        schema_id, created_ms = stored[version]
        return SchemaVersion(version, schema_id, created_ms, self.by_id(schema_id))

    def find(self, topic: TopicName, schema: Schema) -> SchemaVersion | None:
        """The version that `schema` has in the topic; None if it has none."""
        wanted = meaning(schema)
        stored = self._topics.get(_key(topic), ())
        for version in range(len(stored) - 1, -1, -1):
            schema_id, created_ms = stored[version]
            if schema_id == _DELETED:
                break
            if self._meaning_of(schema_id) == wanted:
                return SchemaVersion(version, schema_id, created_ms, self.by_id(schema_id))
        return None

    def check_compatible(self, topic: TopicName, schema: Schema) -> None:
        """Raise IncompatibleSchema or InvalidSchema unless the topic would accept `schema` now."""
        validate(schema)
        existing = [one.schema for one in self.versions(topic) if one.schema is not None]
        check(existing, schema, self._policies_of(topic).schema_compatibility)

    # --- what clients bring ------------------------------------------------------------------------------------------

    async def check_producer(self, topic: TopicName, schema: Schema | None) -> bytes:
        """The version, as bytes, with which a producer with `schema` writes; empty for a producer without one.

        A new schema becomes the topic's next version if the policies allow it.

        Raises:
            IncompatibleSchema, InvalidSchema, TopicLinked
        """
        if schema is None:
            if self.has_schema(topic) and self._policies_of(topic).schema_validation_enforced:
                raise IncompatibleSchema(
                    "Producers cannot connect or send message without a schema to topics with a schema"
                    " when SchemaValidationEnforced is enabled"
                )
            return b""
        return encode_version(await self.register(topic, schema))

    async def check_consumer(
        self, topic: TopicName, schema: Schema | None, *, is_idle: bool, has_producers: bool
    ) -> None:
        """Check that a consumer with `schema` may read the topic.

        `is_idle`: the topic has no data, no producer and no consumer; then the consumer's schema becomes its first,
        unless the topic is linked, which may get data and schemas yet.  If there is data but no schema, a consumer may
        use any schema, unless a producer without a schema is connected.  Kafka clients send no schema, and consumers
        must be able to read their records.

        Raises:
            IncompatibleSchema, InvalidSchema
        """
        if schema is None or schema.type is SchemaType.AUTO_CONSUME:
            return
        versions = self.versions(topic)
        if not versions and is_idle and not self._is_linked(topic):
            await self.register(topic, schema)
            return
        validate(schema)
        strategy = self._policies_of(topic).schema_compatibility
        if strategy is Compatibility.ALWAYS_COMPATIBLE:
            return
        if not versions:
            if has_producers:
                raise IncompatibleSchema("Topic does not have schema to check")
            return
        existing = [one.schema for one in versions if one.schema is not None]
        if strategy in _LATEST_ONLY:  # as in Pulsar, although older data may have any earlier version
            check(existing[-1:], schema, Compatibility.BACKWARD)
        else:
            for one in existing:
                check([one], schema, strategy)

    async def register(self, topic: TopicName, schema: Schema, *, may_update: bool | None = None) -> int:
        """The version of `schema` in the topic; a new one if there is none yet and the policies allow it.

        `may_update` overrides the policy: an administrator may always add a schema.

        Raises:
            IncompatibleSchema, InvalidSchema
            TopicLinked: it would be a new one of a linked topic.
            UnknownTopic: the topic was deleted meanwhile.
        """
        validate(schema)
        found = self.find(topic, schema)
        if found is not None:
            return found.version
        mark = self._incarnations.mark(_key(topic))
        async with self._changing:
            if mark.is_void:
                raise UnknownTopic(f"Topic {topic.full} not found")
            found = self.find(topic, schema)  # another client may have registered it meanwhile
            if found is not None:
                return found.version
            self._check_own(topic)
            if not (self._policies_of(topic).schema_auto_update if may_update is None else may_update):
                raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
            self.check_compatible(topic, schema)
            return await self._add(topic, schema)

    async def copy(self, topic: TopicName, first: int, schemas: Sequence[Schema | None]) -> int:
        """Append versions that the topic has in another cluster, which has judged them, the next of which is `first`;
        None for one that was deleted there.  Versions that are here already are passed over.  Returns how many there
        are then.

        Raises:
            InvalidSchema: a definition is too large.
            IncompatibleSchema: a version in between is missing, or there would be too many, or too large ones.
            UnknownTopic: the topic was deleted meanwhile.
        """
        if any(one is not None and len(one.data) > DEFINITION_BYTES_MAX for one in schemas):
            raise InvalidSchema(f"a definition has at most {DEFINITION_BYTES_MAX} bytes")
        mark = self._incarnations.mark(_key(topic))
        async with self._changing:
            count = self.version_count(topic)
            if first > count:
                raise IncompatibleSchema(f"the topic has {count} versions, so the next one is not {first}")
            for one in schemas[count - first :]:
                if mark.is_void:
                    raise UnknownTopic(f"Topic {topic.full} not found")
                await (self._append(topic, _DELETED, []) if one is None else self._add(topic, one))
            return self.version_count(topic)

    async def delete(self, topic: TopicName) -> int:
        """Hide all versions of the topic, so that the next schema is not compared with any.  The deletion counts as a
        version; returns it.  Raises TopicLinked.
        """
        async with self._changing:
            self._check_own(topic)
            return await self._append(topic, _DELETED, [])

    async def purge(self, topic: TopicName) -> None:
        """Delete all versions: the next schema gets version 0.  Raises TopicLinked."""
        async with self._changing:
            self._check_own(topic)
            await self._metadata.commit(self.deletion_of(topic))
            self._forget_versions(_key(topic))
            await self._drop_unnamed()

    def deletion_of(self, topic: TopicName) -> list[Delete]:
        """The operations for the transaction that deletes the topic; the caller calls `forget` once that is durable."""
        return [Delete(TOPIC_SCHEMAS_ROOT + _key(topic))]

    def forget(self, topic: TopicName) -> None:
        """Forget a deleted topic, so that a new one of the same name starts with version 0.  The caller calls
        `drop_unnamed` later.
        """
        key = _key(topic)
        self._forget_versions(key)
        self._incarnations.end(key)

    async def drop_unnamed(self) -> None:
        """Delete the definitions that only deleted topics had."""
        async with self._changing:
            await self._drop_unnamed()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_own(self, topic: TopicName) -> None:
        """Raise TopicLinked if the topic has the versions of its source."""
        if self._is_linked(topic):
            raise TopicLinked(
                f"Topic {topic.full} is linked: it has the schemas of its source until it is cut loose"
            )

    def _forget_versions(self, key: str) -> None:
        for schema_id, _ in self._topics.pop(key, ()):
            self._names[schema_id] -= 1
            if schema_id != _DELETED and not self._names[schema_id]:
                self._unnamed.add(schema_id)

    def _bring(self, schema_id: int, tenant: str) -> None:
        """Count a definition's bytes for a tenant, whose topic has it first."""
        self._bringers[schema_id] = tenant
        self._brought[tenant] += len(self._stored[schema_id])

    async def _drop_unnamed(self) -> None:
        """Delete definitions that no topic names any more; if that fails, the next call does it.  The caller holds
        `_changing`, so no topic gets one of them meanwhile.
        """
        unnamed = sorted(one for one in self._unnamed if one != self._next_id - 1)
        if not unnamed:
            return
        try:
            await self._metadata.commit([Delete(_path(one)) for one in unnamed])
        except MetadataError as error:
            _log.warning("the server keeps %d schemas that no topic has for now: %s", len(unnamed), error)
            return
        for schema_id in unnamed:
            if self._ids is not None:
                del self._ids[self.by_id(schema_id).digest()]
            stored = self._stored.pop(schema_id)
            if schema_id in self._bringers:
                self._brought[self._bringers.pop(schema_id)] -= len(stored)
            self._decoded.pop(schema_id, None)
            self._meanings.pop(schema_id, None)
            del self._names[schema_id]
        self._unnamed.difference_update(unnamed)

    def _meaning_of(self, schema_id: int) -> bytes:
        """Found once for each definition: a client that brings one is compared with all that its topic has."""
        found = self._meanings.get(schema_id)
        if found is None:
            found = self._meanings[schema_id] = meaning(self.by_id(schema_id))
        return found

    def _check_room(self, topic: TopicName, size: int) -> None:
        """Raise IncompatibleSchema if there is no room for one more definition of so many bytes."""
        ids = {schema_id for schema_id, _ in self._topics.get(_key(topic), ()) if schema_id != _DELETED}
        if size + sum(len(self._stored[one]) for one in ids) > TOPIC_BYTES_MAX:
            raise IncompatibleSchema(f"the schemas of a topic have at most {TOPIC_BYTES_MAX} bytes together")
        if size + self._brought[topic.tenant] > TENANT_BYTES_MAX:
            raise IncompatibleSchema(
                f"the schemas of a tenant have at most {TENANT_BYTES_MAX} bytes together"
            )

    async def _add(self, topic: TopicName, schema: Schema) -> int:
        if self._ids is None:
            self._ids = {self.by_id(schema_id).digest(): schema_id for schema_id in self._stored}
        digest = schema.digest()
        schema_id = self._ids.get(digest)
        if schema_id is not None:
            # If the answer to its deletion was lost, it may be stored no more.
            again = [Put(_path(schema_id), self._stored[schema_id])] if schema_id in self._unnamed else []
            return await self._append(topic, schema_id, again)
        await self._drop_unnamed()
        schema_id, encoded = self._next_id, _encode(schema)
        self._check_room(topic, len(encoded))
        version = await self._append(topic, schema_id, [Put(_path(schema_id), encoded)])
        self._next_id += 1
        self._stored[schema_id], self._decoded[schema_id], self._ids[digest] = encoded, schema, schema_id
        self._bring(schema_id, topic.tenant)
        return version

    async def _append(self, topic: TopicName, schema_id: int, also: list[Put]) -> int:
        key = _key(topic)
        versions = [*self._topics.get(key, ()), (schema_id, self._clock.now_ms())]
        if len(versions) > VERSIONS_MAX:
            raise IncompatibleSchema(f"a topic has at most {VERSIONS_MAX} schema versions")
        document = json.dumps({"v": 1, "versions": versions}).encode()
        await self._metadata.commit([*also, Put(TOPIC_SCHEMAS_ROOT + key, document)])
        self._topics[key] = versions
        self._names[schema_id] += 1
        self._unnamed.discard(schema_id)
        return len(versions) - 1


def _path(schema_id: int) -> str:
    return f"{SCHEMAS_ROOT}{schema_id:010}"


def _key(topic: TopicName) -> str:
    return f"{topic.tenant}/{topic.namespace}/{topic.local}"


def _encode(schema: Schema) -> bytes:
    document = {
        "v": 1,
        "type": schema.type.name,
        "name": schema.name,
        "properties": dict(schema.properties),
        "data": base64.b64encode(schema.data).decode(),
    }
    return json.dumps(document).encode()


def _decode(stored: bytes) -> Schema:
    document = json.loads(stored)
    return Schema(
        SchemaType[document["type"]],
        base64.b64decode(document["data"]),
        document["properties"],
        document["name"],
    )
