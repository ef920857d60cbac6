"""A task: it reads slices of topics, and writes files of a table and dead letters, without Spark."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from magnetar.pipelines.kinds.dead_letters import Origin, letters
from magnetar.pipelines.kinds.table.config import TableConfig
from magnetar.pipelines.kinds.table.errors import Undecodable
from magnetar.pipelines.kinds.table.schemas import TopicColumns
from magnetar.pipelines.kinds.topic_schemas import Schemas
from magnetar.pipelines.targets.evolution import conformed, merged, without
from magnetar.pipelines.targets.parts import Naming, Part, PartWriter
from magnetar.wire.columns.schema_versions import NO_VERSION

VERSION: Final = "__schemaVersion"


class Readable(Protocol):
    """A slice of one partition (`connector.read.slices.Slice`)."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def from_offset(self) -> int: ...

    @property
    def to_offset(self) -> int: ...

    def record_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]: ...


@dataclass
class TableTask:
    """One task of a batch.  `run` does the work; the other fields have the results afterwards.

    parts    files, which count when the batch is committed
    schema   of their rows, the columns of partitioning last; None if there are none
    rows     the number of rows in them
    dropped  the number of unreadable records that were dropped
    """

    config: TableConfig
    schemas: Schemas
    query: str
    batch: int
    parts: list[Part] = field(default_factory=list)
    schema: pa.Schema | None = None
    rows: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        self._layout = self.config.layout
        self._target = self.config.target()
        self._columns: dict[str, TopicColumns] = {}
        self._file_schemas: dict[str, pa.Schema] = {}
        self._known: pa.Schema | None = None

    def run(self, slices: Iterable[Readable]) -> Iterator[pa.RecordBatch]:
        """Write the rows of these slices; yields dead letters as it finds them.  The caller must take them all.

        Raises:
            SchemaConflict: columns do not fit the table's.
            Undecodable: a record cannot be read, and the configuration ends the pipeline in that case.
            SourceError: records cannot be read from the server.
        """
        for part in slices:
            if part.from_offset < part.to_offset:
                yield from self._slice(part)

    def abandon(self) -> None:
        """Remove the files, because the task has failed."""
        self._target.folder.remove(part.name for part in self.parts)
        self.parts = []

    def _slice(self, part: Readable) -> Iterator[pa.RecordBatch]:
        columns = self._columns_of(part.topic)
        schema = self._layout.schema(columns.fields, whose=f"topic {part.topic}")
        naming = Naming(
            self.query,
            part.topic,
            part.partition,
            part.from_offset,
            part.to_offset,
            self._target.staging(self.query, self.batch),
            self.config.file_format,
        )
        writer = PartWriter(
            self._target.folder,
            self._layout,
            naming,
            self.config.file_bytes,
            self._in_files(part.topic, schema),
        )
        try:
            for source in part.record_batches(self._wanted(columns)):
                values, bad = self._values(columns, source)
                if bad:
                    yield from self._bad(part, source, bad)
                    kept = pa.array(np.setdiff1d(np.arange(source.num_rows), list(bad)))
                    source, values = source.take(kept), values.take(kept)
                rows = self._layout.rows(source, values)
                writer.write(rows, source.column("offset"), source.column("timestamp"))
                self.rows += rows.num_rows
            parts = writer.close()
        except BaseException:
            writer.abandon()
            self.abandon()
            raise
        if parts:
            self.parts += parts
            self.schema = (
                schema if self.schema is None else merged(self.schema, schema, whose=f"topic {part.topic}")
            )

    def _in_files(self, topic: str, schema: pa.Schema) -> pa.Schema:
        """The columns of a topic's rows as its files have them.  The table is asked once in a task."""
        found = self._file_schemas.get(topic)
        if found is None:
            in_files = without(schema, [one.name for one in self._layout.partitioning])
            found = self._file_schemas[topic] = self._target.file_schema(in_files)
        return found

    def _wanted(self, columns: TopicColumns) -> list[str]:
        more = ["headers"] if self.config.has_dead_letters else []
        if columns.has_versions:
            more.append(VERSION)
        return list(self._layout.wanted(more))

    def _columns_of(self, topic: str) -> TopicColumns:
        found = self._columns.get(topic)
        if found is None:
            if self._known is None:
                table = self._target.schema() or pa.schema([])
                own = [*self._layout.metadata.names, *(one.name for one in self._layout.partitioning)]
                self._known = without(table, own)
            found = self._columns[topic] = TopicColumns(topic, self.schemas, self._known, self.config.is_raw)
        return found

    def _values(self, columns: TopicColumns, source: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The columns of the values, and the rows that cannot be read, with reasons.  Each value is decoded with its
        own schema version.
        """
        if not columns.has_versions:
            return _decoded(columns, NO_VERSION, source)
        versions = source.column(VERSION).to_numpy()
        found = np.unique(versions)
        if len(found) <= 1:
            return _decoded(columns, int(found[0]) if len(found) else NO_VERSION, source)
        bad: dict[int, str] = {}
        parts, order = [], []
        for version in found:
            rows = np.flatnonzero(versions == version)
            part, wrong = _decoded(columns, int(version), source.take(pa.array(rows)))
            bad.update((int(rows[row]), reason) for row, reason in wrong.items())
            parts.append(part)
            order.append(rows)
        places = np.argsort(np.concatenate(order))
        return pa.concat_batches(parts).take(pa.array(places)), bad

    def _bad(
        self, part: Readable, source: pa.RecordBatch, bad: Mapping[int, str]
    ) -> Iterator[pa.RecordBatch]:
        if self.config.fails:
            row = min(bad)
            raise Undecodable(
                f"topic {part.topic} partition {part.partition} offset {source.column('offset')[row]} cannot be read:"
                f" {bad[row]}; the pipeline ends here because dead_letter is fail"
            )
        if self.config.has_dead_letters:
            to = self.config.dead_letter_topic(part.topic)
            yield letters(source, bad, Origin(self.config.name, part.topic, part.partition, to))
        else:
            self.dropped += len(bad)


def _decoded(
    columns: TopicColumns, version: int, source: pa.RecordBatch
) -> tuple[pa.RecordBatch, dict[int, str]]:
    decoded = columns.decoder(version).decode(source.column("value"), source.column("key"))
    return conformed(decoded.columns, columns.fields), decoded.undecodable
