"""The port for committing a batch's files, which tables of Delta and Iceberg and folders of files implement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from magnetar.pipelines.targets.folder import Folder
from magnetar.pipelines.targets.parts import Part

SWEEP_AGE_S: Final = 3_600.0
"""Files that no commit names are removed at this age, in seconds; until then a task may still write them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a streaming query; `schema` has the columns of its rows, those of partitioning last."""

    query: str
    number: int
    parts: Sequence[Part]
    schema: pa.Schema


class Target(Protocol):
    """A table to which batches are committed, each once, however often that is tried.  `folder` has its files."""

    @property
    def folder(self) -> Folder: ...

    def schema(self) -> pa.Schema | None:
        """The table's columns; None if there is no table."""

    def staging(self, query: str, batch: int) -> str | None:
        """The directory for writing this batch's files; None: they are written to their final place."""

    def file_schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns with which a task writes files of rows with the columns `rows`.  A task asks before it writes.

        Raises:
            SchemaConflict: they do not fit the table's.
        """

    def commit(self, batch: Batch) -> bool:
        """Make the batch part of the table; false if it already was, with these or other files.

        Raises:
            SchemaConflict: its columns do not fit the table's.
            TableDamaged: some of its files are gone.
        """

    def committed(self, query: str, batch: int) -> bool:
        """Whether this batch, or a later one, is part of the table."""

    def sweep(self, older_than_s: float = SWEEP_AGE_S) -> int:
        """Remove files of failed attempts; returns how many."""
