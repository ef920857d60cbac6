"""Delta tables: data files lie where they were written, and one transaction of the log says which of them count.

A batch is one commit.  It carries an application transaction (`txn`: the query's id, the batch's number), which is
looked up before: a batch that is there already is left alone.  Two drivers that commit the same batch at the same time
conflict, because both write the same `txn`, and the loser finds the batch there when it looks again.

New columns are added by a commit of their own before the data's: a table with a column of nulls too many is right at
every moment.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from magnetar.pipelines.targets.errors import TableDamaged, TableError
from magnetar.pipelines.targets.evolution import merged
from magnetar.pipelines.targets.folder import Folder
from magnetar.pipelines.targets.layout import Layout
from magnetar.pipelines.targets.parts import FILE_BYTES_DEFAULT, Part
from magnetar.pipelines.targets.target import SWEEP_AGE_S, Batch

if TYPE_CHECKING:
    from deltalake import DeltaTable

log: Final = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 8
_OURS: Final = re.compile(r"-[0-9a-f]{12}\.parquet$")  # `parts.Naming`


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """compact_every  after how many batches small files are put together; 0 for never"""

    folder: Folder
    layout: Layout
    storage_options: Mapping[str, str]
    file_bytes: int = FILE_BYTES_DEFAULT
    compact_every: int = 0

    def schema(self) -> pa.Schema | None:
        table = self._open()
        return None if table is None else _columns(table)

    def staging(self, query: str, batch: int) -> str | None:
        return None

    def committed(self, query: str, batch: int) -> bool:
        table = self._open()
        return table is not None and _is_in(table, query, batch)

    def commit(self, batch: Batch) -> bool:
        from deltalake.exceptions import CommitFailedError, DeltaError

        for attempt in range(ATTEMPTS_MAX):
            table = self._open() or self._create(batch)
            if _is_in(table, batch.query, batch.number):
                return False
            version = table.version()
            try:
                table = self._with_columns(table, batch.schema)
                self._check_files(batch)
                self._append(table, batch)
                break
            except CommitFailedError as error:  # another writer committed: look again
                if attempt + 1 == ATTEMPTS_MAX:
                    raise TableError(
                        f"{self.folder.url}: other writers do not let a commit through: {error}"
                    ) from error
            except DeltaError as error:
                raise TableError(f"{self.folder.url}: {error}") from error
        self._sync_log(version)
        if self.compact_every and batch.number % self.compact_every == self.compact_every - 1:
            self._compact()
        return True

    def sweep(self, older_than_s: float = SWEEP_AGE_S) -> int:
        before = time.time() - older_than_s
        old = {
            found.name
            for found in self.folder.list("")
            if found.modified_s < before and _OURS.search(found.name)
        }
        table = self._open() if old else None
        if table is None:  # a table that failed before its first commit is written again from the start
            self.folder.remove(old)
            return len(old)
        kept = set(pa.table(table.get_add_actions()).column("path").to_pylist())
        # Files of versions that can still be read; a reader of an old version counts on them.
        kept.update(table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False))
        self.folder.remove(old - kept)
        return len(old - kept)

    # -- one commit

    def _open(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(self.folder.url, storage_options=dict(self.storage_options) or None)
        except TableNotFoundError:
            return None
        wanted = [field.name for field in self.layout.partitioning]
        found = table.metadata().partition_columns
        if found != wanted:
            raise TableError(
                f"{self.folder.url} is a Delta table partitioned by {', '.join(found) or 'nothing'}, not by"
                f" {', '.join(wanted) or 'nothing'}: change partition_by, or write to another path"
            )
        return table

    def _create(self, batch: Batch) -> "DeltaTable":
        from deltalake import DeltaTable

        DeltaTable.create(
            self.folder.url,
            _delta(batch.schema),
            mode="ignore",  # another driver may be at it
            partition_by=[field.name for field in self.layout.partitioning],
            storage_options=dict(self.storage_options) or None,
        )
        table = self._open()
        if table is None:
            raise TableDamaged(f"{self.folder.url}: the table that was just made is not there")
        return table

    def _with_columns(self, table: "DeltaTable", schema: pa.Schema) -> "DeltaTable":
        known = _columns(table)
        wanted = merged(known, schema, whose="this batch")
        changed = [
            field
            for field in wanted
            if field.name not in known.names or field.type != known.field(field.name).type
        ]
        if not changed:
            return table
        table.alter.add_columns(_delta(pa.schema(changed)).fields)  # a struct's new fields, too
        again = self._open()
        if again is None:
            raise TableDamaged(f"{self.folder.url}: the table is gone")
        return again

    def _check_files(self, batch: Batch) -> None:
        for part in batch.parts:
            if not self.folder.exists(part.name):
                raise TableDamaged(
                    f"{self.folder.url}: {part.name} is gone before it was committed; is it being swept?"
                )

    def _append(self, table: "DeltaTable", batch: Batch) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(part.name, part.size, part.division.values, now_ms, True, self._stats(part))
            for part in batch.parts
        ]
        table.create_write_transaction(
            list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=[field.name for field in self.layout.partitioning],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(batch.query, batch.number)],
                custom_metadata={"magnetar.query": batch.query, "magnetar.batch": batch.number},
            ),
        )

    def _stats(self, part: Part) -> str:
        """What readers leave files out by, as Delta's protocol has it ("Per-file Statistics")."""
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        for name, first, last in (
            ("partition", part.partition, part.partition),
            ("offset", part.first_offset, part.last_offset),
        ):
            if name in self.layout.metadata_columns:
                low[self.layout.metadata_prefix + name] = first
                high[self.layout.metadata_prefix + name] = last
        return json.dumps(
            {"numRecords": part.rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
        )

    def _sync_log(self, version: int) -> None:
        """Commits from `version` on are files that deltalake does not wait for.

        On a local disk they must outlive Spark's own note of the batch.
        """
        while self.folder.exists(name := f"_delta_log/{version:020d}.json"):
            self.folder.sync([name])
            version += 1

    def _compact(self) -> None:
        from deltalake import WriterProperties
        from deltalake.exceptions import DeltaError

        table = self._open()
        if table is None:
            return
        try:
            table.optimize.compact(
                target_size=self.file_bytes,
                writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
            )
        except DeltaError as error:  # nothing is lost: it is tried again with later batches
            log.warning("%s could not be compacted: %s", self.folder.url, error)


def _is_in(table: "DeltaTable", query: str, batch: int) -> bool:
    last = table.transaction_version(query)
    return last is not None and last >= batch


def _delta(schema: pa.Schema) -> Any:
    from deltalake import Schema

    return Schema.from_arrow(schema)


def _columns(table: "DeltaTable") -> pa.Schema:
    """The table's columns in Arrow's own spelling: names inside of lists and maps differ from library to library."""
    found = pa.schema(table.schema().to_arrow())
    return pa.schema([(field.name, _plain(field.type)) for field in found])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
