"""The descriptor path: slices of topics that Python workers read themselves.

With `.option("descriptors", "true")` the source returns one row for each slice instead of its records.  A task that
gets such a row reads the slice itself, as columns, and no record passes through the JVM:

    from magnetar.pipelines.connector.read.slices import Slice

    def write(rows):                                   # mapInArrow, foreachPartition, a sink's write()
        for row in rows:
            part = Slice.parse(row.plan)
            for batch in part.record_batches(["key", "value", "offset"]):   # pyarrow
                ...
            for columns in part.columns(Wanted(value=True)):                # numpy, see magnetar.wire.columns
                ...

A slice belongs to one partition.  It has exactly the records from `from_offset` (inclusive) to `to_offset`
(exclusive) that the query wants, in order, and reading it again gives the same records.  Slices of one partition in
one task come in order.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from magnetar.pipelines.connector.options import SchemaError
from magnetar.pipelines.connector.read.errors import SourceError
from magnetar.pipelines.connector.read.options import ReadMode
from magnetar.pipelines.connector.read.pieces import Scan, read_piece
from magnetar.pipelines.connector.read.plan import Piece
from magnetar.wire.columns import Columns, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice, with all that a reader needs.  It can be pickled; rows carry the result of `to_bytes`."""

    scan: Scan
    piece: Piece

    @property
    def topic(self) -> str:
        """The topic's name, as in the column `topic`."""
        return self.piece.topic

    @property
    def partition(self) -> int:
        return self.piece.partition

    @property
    def from_offset(self) -> int:
        return self.piece.from_offset

    @property
    def to_offset(self) -> int:
        """The first offset after it."""
        return self.piece.to_offset

    @property
    def size(self) -> int:
        """About how many bytes a reader reads."""
        return self.piece.size

    def columns(self, wanted: Wanted | None = None) -> Iterator[Columns]:
        """Its records as numpy columns, some thousands at a time.

        Raises:
            SourceError: the slice cannot be read; DataLost if records are gone.
        """
        return read_piece(self.scan, self.piece, wanted or Wanted())

    def record_batches(self, columns: "Sequence[str] | pa.Schema") -> "Iterator[pa.RecordBatch]":
        """Its records as Arrow batches with these columns, in this order: names of docs/reference/spark.md.

        Raises:
            SchemaError: there is no such column.
            SourceError: as `columns`.
        """
        import pyarrow as pa

        from magnetar.pipelines.connector.columns import to_arrow, wanted_of

        schema = columns if isinstance(columns, pa.Schema) else arrow_schema(columns)
        wanted = wanted_of(schema)
        topic = self.piece.topic
        partition = self.piece.partition if self.piece.partitioned else -1
        for part in self.columns(wanted):
            yield to_arrow(part, schema, topic, partition)

    # -- as bytes

    def to_bytes(self) -> bytes:
        scan = {**asdict(self.scan), "mode": self.scan.mode.value}
        text = json.dumps(
            {"version": VERSION, "scan": scan, "piece": asdict(self.piece)}, separators=(",", ":")
        )
        return text.encode()

    @classmethod
    def parse(cls, plan: bytes) -> "Slice":
        """The inverse of `to_bytes`.

        Raises:
            SourceError: the bytes are no slice, or of another version.
        """
        try:
            value: Any = json.loads(plan)
            if value["version"] != VERSION:
                raise SourceError(
                    f"a plan of version {value['version']} cannot be read by this version of magnetar"
                )
            scan = Scan(**value["scan"])
            piece = Piece(**value["piece"])
            return cls(
                replace(scan, mode=ReadMode(scan.mode)),
                replace(piece, aborted=tuple((each[0], each[1], each[2]) for each in piece.aborted), cuts=()),
            )
        except (ValueError, KeyError, TypeError, IndexError):
            raise SourceError(
                "a plan that cannot be read; take it from the column plan of option descriptors as it is"
            ) from None


def arrow_schema(columns: Sequence[str]) -> "pa.Schema":
    """The Arrow schema of these columns, in this order.

    Raises:
        SchemaError: there is no such column.
    """
    import pyarrow as pa

    from magnetar.pipelines.connector.columns import KAFKA_TYPES, OTHER_TYPES

    types = KAFKA_TYPES | OTHER_TYPES
    for name in columns:
        if name not in types:
            raise SchemaError(f"there is no column {name}; the columns are {', '.join(types)}")
    return pa.schema([(name, types[name]) for name in columns])


def slices_of(rows: "Iterable[pa.RecordBatch]") -> Iterator[Slice]:
    """The slices that rows of the source describe."""
    for batch in rows:
        for plan in batch.column("plan").to_pylist():
            yield Slice.parse(plan)
