"""What a Delta table on this machine has gained from one version to another, by its log.

The log has a file of JSON for each version.  It names the files that were added and removed, and says whether that has
changed the rows (`dataChange`; it has not if small files were only put together).  Now and then a checkpoint has all
files of a version, and older files of the log may go.  See "Delta Transaction Log Protocol" of Delta Lake.

Only what the first version of the protocol's readers must know is read here: no deletion vectors, no mapped columns.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.pipelines.targets.delta import columns_of
from magnetar.pipelines.targets.errors import TableDamaged, TableError

NOTHING: Final = -1  # the version before the first one
_ROWS_AT_ONCE: Final = 10_000
_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_READER_VERSION: Final = 1
_WITH_FEATURES: Final = 3
_FEATURES: Final = frozenset(("timestampNtz",))


class DataFile(NamedTuple):
    """A file of a table: `name` below its folder, and the values of the columns that partition the table."""

    name: str
    values: Mapping[str, str | None]


class DeltaLog:
    """The log of the table in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._log = Path(folder) / _LOG

    def columns(self) -> pa.Schema | None:
        """The columns that the table has now; None if there is no table.

        Raises:
            TableError: its files cannot be read here.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            table = DeltaTable(self._folder)
            protocol = table.protocol()
            self._check_protocol(protocol.min_reader_version, protocol.reader_features)
            return columns_of(table)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise TableError(f"{self._folder}: {error}") from error

    def newest(self) -> int:
        """The newest version; NOTHING if there is no table."""
        return max(self._versions(_COMMIT), default=NOTHING)

    def gained(self, after: int, to: int) -> list[DataFile]:
        """The files with the rows that version `to` has, and version `after` had not; all of its files for NOTHING.

        Raises:
            TableDamaged: the log has not all versions between them any more.
            TableError: one of them takes rows away, or cannot be read here.
        """
        if after == NOTHING:
            return list(self._all_files(to).values())
        found = []
        for version in range(after + 1, to + 1):
            for kind, action in self._actions(version):
                if not action.get("dataChange", True):
                    continue
                if kind == "remove":
                    raise TableError(
                        f"{self._folder}: version {version} of the table takes rows away, and a source can only"
                        " follow a table to which rows are added"
                    )
                found.append(self._file(action))
        return found

    def rows(self, file: DataFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with those columns of `wanted` that it has.

        Raises:
            TableDamaged: the file is gone.
        """
        try:
            with pq.ParquetFile(Path(self._folder) / file.name) as opened:
                for rows in opened.iter_batches(_ROWS_AT_ONCE):
                    yield _with_values(rows, file, wanted)
        except FileNotFoundError:
            raise TableDamaged(f"{self._folder}: the table's file {file.name} is gone") from None

    # --- inside

    def _versions(self, form: re.Pattern[str]) -> list[int]:
        if not self._log.is_dir():
            return []
        names = (form.fullmatch(one.name) for one in self._log.iterdir())
        return [int(found[1]) for found in names if found is not None]

    def _all_files(self, version: int) -> dict[str, DataFile]:
        """The files of a version, by their names."""
        begin = max((one for one in self._versions(_CHECKPOINT) if one <= version), default=NOTHING)
        files = {} if begin == NOTHING else self._of_checkpoint(begin)
        for number in range(begin + 1, version + 1):
            for kind, action in self._actions(number):
                if kind == "add":
                    file = self._file(action)
                    files[file.name] = file
                else:
                    files.pop(unquote(action["path"]), None)
        return files

    def _of_checkpoint(self, version: int) -> dict[str, DataFile]:
        with pq.ParquetFile(self._log / f"{version:020d}.checkpoint.parquet") as opened:
            rows = opened.read(["add.path", "add.partitionValues"]).column("add").to_pylist()
        files = [
            self._file({**row, "partitionValues": dict(row["partitionValues"] or ())})
            for row in rows
            if row is not None and row["path"] is not None
        ]
        return {file.name: file for file in files}

    def _actions(self, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What a version adds and removes."""
        try:
            lines = (self._log / f"{version:020d}.json").read_text().splitlines()
        except FileNotFoundError:
            raise TableDamaged(
                f"{self._folder}: the log of the table does not have version {version} any more, so what it has"
                " gained cannot be found"
            ) from None
        for line in lines:
            for kind, action in json.loads(line).items():
                if kind == "protocol":
                    self._check_protocol(action["minReaderVersion"], action.get("readerFeatures"))
                elif kind in ("add", "remove"):
                    yield kind, action

    def _check_protocol(self, reader_version: int, features: list[str] | None) -> None:
        left = {*(features or ())} - _FEATURES
        if reader_version == _READER_VERSION or (reader_version == _WITH_FEATURES and not left):
            return
        what = ", ".join(sorted(left)) or f"version {reader_version} of Delta's readers"
        raise TableError(f"{self._folder}: the table needs {what}, which a source does not have")

    def _file(self, action: Mapping[str, Any]) -> DataFile:
        name = unquote(action["path"])
        if ":" in name or name.startswith("/") or ".." in name.split("/"):
            raise TableError(f"{self._folder}: the table names a file outside of its folder, {name[:200]!r}")
        return DataFile(name, dict(action.get("partitionValues") or {}))


def _with_values(rows: pa.RecordBatch, file: DataFile, wanted: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns that partition the table, which its files do not have."""
    for name, text in file.values.items():
        if name in wanted.names and name not in rows.schema.names:
            value = _value(text, wanted.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """What the log means by a text.  See "Partition Value Serialization" of the protocol."""
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):  # in UTC, with its zone or without
        return pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(text).cast(kind)
