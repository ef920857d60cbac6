"""Delta tables: data files stay where they were written, and a transaction of the log says which of them count.

A batch is one commit.  It carries an application transaction (`txn`: the query's id, the batch's number), which is
looked up first: a batch that the table already has is not committed again.  If two drivers commit the same batch at
the same time, both write the same `txn` and conflict, and the loser finds the batch when it looks again.

A separate commit adds new columns before the commit of the data: a table with an additional column of nulls is
correct at every moment.
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
    """compact_every after how many batches small files are combined; 0 for never"""

    folder: Folder
    layout: Layout
    storage_options: Mapping[str, str]
    file_bytes: int = FILE_BYTES_DEFAULT
    compact_every: int = 0

    def schema(self) -> pa.Schema | None:
        table = self._open()
        return None if table is None else columns_of(table)

    def staging(self, query: str, batch: int) -> str | None:
        return None

    def file_schema(self, rows: pa.Schema) -> pa.Schema:
        return rows

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
            except CommitFailedError as error:  # another writer has committed: look again
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
        if table is None:  # no first commit yet: a later attempt writes everything again
            self.folder.remove(old)
            return len(old)
        kept = set(pa.table(table.get_add_actions()).column("path").to_pylist())
        # Files of old versions stay, because readers of these versions need them.
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
            mode="ignore",  # another driver may create it at the same time
            partition_by=[field.name for field in self.layout.partitioning],
            storage_options=dict(self.storage_options) or None,
        )
        table = self._open()
        if table is None:
            raise TableDamaged(f"{self.folder.url}: the table that was just made is not there")
        return table

    def _with_columns(self, table: "DeltaTable", schema: pa.Schema) -> "DeltaTable":
        known = columns_of(table)
        wanted = merged(known, schema, whose="this batch")
        changed = [
            field
            for field in wanted
            if field.name not in known.names or field.type != known.field(field.name).type
        ]
        if not changed:
            return table
        table.alter.add_columns(_delta(pa.schema(changed)).fields)  # also new fields of structs
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
        """Statistics by which readers skip files, in the form of Delta's protocol ("Per-file Statistics")."""
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
        """Sync the log files of commits from `version` on, because deltalake does not sync them.

        On a local disk they must be durable before Spark's own note of the batch.
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
        except DeltaError as error:  # nothing is lost: later batches try again
            log.warning("the pipeline could not compact %s: %s", self.folder.url, error)


def _is_in(table: "DeltaTable", query: str, batch: int) -> bool:
    last = table.transaction_version(query)
    return last is not None and last >= batch


def _delta(schema: pa.Schema) -> Any:
    from deltalake import Schema

    return Schema.from_arrow(schema)


def columns_of(table: "DeltaTable") -> pa.Schema:
    """The table's columns with Arrow's own names inside lists and maps, which differ between libraries."""
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
