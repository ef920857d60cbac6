"""The fields of values by their topic's schema, for targets that want them.

A value is read with the version of the schema that its record names, or with the newest one.  A value that does not
follow it has no fields: the target gets it as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from magnetar.pipelines.kinds.topic_schemas import Schemas
from magnetar.pipelines.values.decoding import Decoder, decoder
from magnetar.pipelines.values.shapes import SchemaUnusable
from magnetar.pipelines.values.topic_schema import TopicSchema
from magnetar.wire.columns.schema_versions import NO_VERSION

VERSION: Final = "__schemaVersion"
_RAW: Final = frozenset(("BYTES", "NONE"))

Fields = Mapping[str, Any] | None


@dataclass
class FieldReader:
    """Reads the values of one task."""

    schemas: Schemas
    _decoders: dict[tuple[str, int], Decoder | None] = field(default_factory=dict)

    def read(self, topic: str, rows: pa.RecordBatch) -> list[Fields]:
        """The fields of each value.  `rows` has values, keys and versions.

        Raises errors of `magnetar.client.errors`: the server does not say what the schema is.
        """
        found: list[Fields] = [None] * rows.num_rows
        versions = rows.column(VERSION).to_numpy(zero_copy_only=False)
        for version in np.unique(versions):
            reader = self._decoder(topic, int(version))
            if reader is None:
                continue
            places = np.flatnonzero(versions == version)
            values = rows.column("value").take(pa.array(places))
            decoded = reader.decode(values, rows.column("key").take(pa.array(places)))
            missing = {*decoded.undecodable, *np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))}
            for row, content in enumerate(decoded.columns.to_pylist(maps_as_pydicts="lossy")):
                if row not in missing:
                    found[places[row]] = content
        return found

    def _decoder(self, topic: str, version: int) -> Decoder | None:
        """None if values of this version have no fields."""
        place = (topic, version)
        if place not in self._decoders:
            self._decoders[place] = _made(self._schema(topic, version))
        return self._decoders[place]

    def _schema(self, topic: str, version: int) -> TopicSchema | None:
        found = None if version == NO_VERSION else self.schemas.version(topic, version)
        return self.schemas.newest(topic) if found is None else found


def _made(schema: TopicSchema | None) -> Decoder | None:
    if schema is None or schema.type in _RAW:
        return None
    try:
        return decoder(schema)
    except SchemaUnusable:
        return None
