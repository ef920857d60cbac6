"""What becomes of the files of a batch: the port that Delta tables and folders of Parquet files implement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from magnetar.pipelines.targets.folder import Folder
from magnetar.pipelines.targets.parts import Part

SWEEP_AGE_S: Final = 3_600.0
"""Files that no commit names are removed when they are this old: until then a task may still be at work on them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a streaming query; `schema` has the columns of its rows, those of partitioning last."""

    query: str
    number: int
    parts: Sequence[Part]
    schema: pa.Schema


class Target(Protocol):
    """A table that batches are committed to, each once however often it is tried.  `folder` is where it lies."""

    @property
    def folder(self) -> Folder: ...

    def schema(self) -> pa.Schema | None:
        """The table's columns; None while there is no table."""

    def staging(self, query: str, batch: int) -> str | None:
        """The directory where files of this batch are written; None: where they stay."""

    def commit(self, batch: Batch) -> bool:
        """Make the batch part of the table; False when it already was (with whatever files, these or others').

        Raises:
            SchemaConflict: its columns do not fit the table's.
            TableDamaged: files of it are gone.
        """

    def committed(self, query: str, batch: int) -> bool:
        """Whether this batch, or a later one, is part of the table."""

    def sweep(self, older_than_s: float = SWEEP_AGE_S) -> int:
        """Remove files of attempts that came to nothing; how many."""
