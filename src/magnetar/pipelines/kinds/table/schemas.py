"""The columns that a table of the topic has."""

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from magnetar.pipelines.kinds.topic_schemas import Schemas
from magnetar.pipelines.targets.errors import SchemaConflict
from magnetar.pipelines.targets.evolution import merged
from magnetar.pipelines.values.decoding import RAW, Decoder, decoder
from magnetar.pipelines.values.shapes import SchemaUnusable
from magnetar.pipelines.values.topic_schema import TopicSchema

VERSIONS_MAX: Final = 100
"""How many of the newest versions of a topic's schema give a table their columns before a record of them comes."""


@dataclass
class TopicColumns:
    """How to read the values of one topic, with its present schemas; each task creates one.

    `fields` are the columns of a value: those of the table (`known`), and those of the versions of the schema.

    Raises:
        SchemaConflict: the versions contradict each other or the table, or one has no columns.
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
        """Whether decoding depends on the schema version of a record."""
        return len(self._versions) > 1

    def decoder(self, version: int) -> Decoder:
        """The decoder of a version; that of the newest one for -1, or if the version does not exist."""
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
