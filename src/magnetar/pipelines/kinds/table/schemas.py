"""The schemas of a topic, and the columns that a table of the topic has."""

from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from magnetar.client.errors import NotFound
from magnetar.client.rest import RestClient
from magnetar.pipelines.targets.errors import SchemaConflict
from magnetar.pipelines.targets.evolution import merged
from magnetar.pipelines.values.decoding import RAW, Decoder, decoder
from magnetar.pipelines.values.shapes import SchemaUnusable
from magnetar.pipelines.values.topic_schema import TopicSchema

VERSIONS_MAX: Final = 100
"""The newest versions of a topic's schema whose columns a table gets before there is a record of them."""


class Schemas(Protocol):
    """Where schemas come from."""

    def newest(self, topic: str) -> TopicSchema | None: ...

    def version(self, topic: str, version: int) -> TopicSchema | None: ...


@dataclass(frozen=True, slots=True)
class ServerSchemas:
    """The server's.  Raises `magnetar.client.errors`."""

    client: RestClient

    def newest(self, topic: str) -> TopicSchema | None:
        return self._get(topic, None)

    def version(self, topic: str, version: int) -> TopicSchema | None:
        return self._get(topic, version)

    def _get(self, topic: str, version: int | None) -> TopicSchema | None:
        try:
            found = self.client.schema(topic, version)
        except NotFound:
            return None
        return TopicSchema(found.type, found.schema, found.properties, found.version)


@dataclass
class TopicColumns:
    """How the values of one topic are read, as its schemas are now; made for each task.

    `fields` are the columns of a value: those of the table (`known`), and those of every version of the schema.

    Raises:
        SchemaConflict: the versions do not fit together or into the table, or one has no columns at all.
    """

    topic: str
    schemas: Schemas
    known: pa.Schema
    is_raw: bool
    fields: pa.Schema = field(init=False)
    newest: TopicSchema = field(init=False)

    def __post_init__(self) -> None:
        found = None if self.is_raw else self.schemas.newest(self.topic)
        self.newest = RAW if found is None else found
        self._versions: dict[int, TopicSchema] = {self.newest.version: self.newest}
        for version in range(max(0, self.newest.version - VERSIONS_MAX), self.newest.version):
            self._find(version)
        union = pa.schema([])
        for _, schema in sorted(self._versions.items()):
            union = merged(union, self._decoder(schema).fields, whose=self._whose(schema), is_fixed=False)
        self.fields = merged(self.known, union, whose=self._whose(self.newest))

    @property
    def has_versions(self) -> bool:
        """Whether it matters which version a record was written with."""
        return len(self._versions) > 1

    def decoder(self, version: int) -> Decoder:
        """Of a version; of the newest one when there is none such, and for -1."""
        return self._decoder(self._versions.get(version, self.newest))

    def _find(self, version: int) -> None:
        found = self.schemas.version(self.topic, version)
        if found is not None:
            self._versions[version] = found

    def _decoder(self, schema: TopicSchema) -> Decoder:
        try:
            return decoder(schema)
        except SchemaUnusable as error:
            raise SchemaConflict(f"{self._whose(schema)}: {error}") from None

    def _whose(self, schema: TopicSchema) -> str:
        if schema.version < 0:
            return f"topic {self.topic}"
        return f"version {schema.version} of the schema of topic {self.topic}"
