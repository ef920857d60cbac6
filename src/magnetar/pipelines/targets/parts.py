"""Writes rows to files: one for each day or hour in a slice, or more if one would become too large.

Each attempt writes files with its own names; `commit` decides which ones count.  Rows come and stay in the order of
their offsets.  `formats.py` says what they are written as.
"""

import re
import uuid
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipelines.targets.folder import Folder
from magnetar.pipelines.targets.formats import PARQUET, open_rows
from magnetar.pipelines.targets.layout import Division, Layout

FILE_BYTES_DEFAULT: Final = 128 << 20
GROUP_BYTES: Final = 32 << 20  # of a row group before compression, which readers read at once
OPEN_MAX: Final = 32  # open files of one slice; above it, the one with the most rows is closed
_WAITING_BYTES_MAX: Final = 256 << 20  # in all open files
_SLUG_CHARS: Final = 60


@dataclass(frozen=True, slots=True)
class Part:
    """One file with rows of one slice.  It can be pickled, because it is sent to `commit`.

    name   its present name
    final  its name for readers of the folder once it counts; in Delta the same
    """

    name: str
    final: str
    division: Division
    size: int
    rows: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    first_time_us: int
    last_time_us: int


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of files of one slice.

    staging  directory of files that do not count yet; None if they are written to their final place (Delta, whose log
             says which files count)
    form     what the files are written as, with which their final names end
    """

    query: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    staging: str | None
    form: str = PARQUET
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def names(self, division: Division, number: int) -> tuple[str, str]:
        """The present and the final name of a file."""
        slug = re.sub(r"[^A-Za-z0-9]+", "-", self.topic).strip("-")[-_SLUG_CHARS:]
        base = (
            f"{slug}-{self.partition}-{self.from_offset:020d}-{self.to_offset:020d}-{self.query[:8]}-{number}"
        )
        if self.staging is None:
            name = f"{division.directory}{base}-{self.attempt}.{self.form}"
            return name, name
        return f"{self.staging}{base}-{self.attempt}.staged", f"{division.directory}{base}.{self.form}"


class PartWriter:
    """Writes the rows of one slice.  After a failure, the caller must call `abandon`, which removes all files."""

    def __init__(
        self,
        folder: Folder,
        layout: Layout,
        naming: Naming,
        file_bytes: int = FILE_BYTES_DEFAULT,
        schema: pa.Schema | None = None,
    ) -> None:
        """`schema`: of the files, if it says more than that of the rows."""
        self._folder = folder
        self._schema = schema
        self._layout = layout
        self._naming = naming
        self._file_bytes = file_bytes
        self._open: dict[Division, _OpenFile] = {}
        self._count = 0
        self._parts: list[Part] = []

    def write(self, rows: pa.RecordBatch, offsets: pa.Array, timestamps: pa.Array) -> None:
        """Write rows, which always have the same schema, with the offset and timestamp of each."""
        if not rows.num_rows:
            return
        for division, numbers in self._layout.divided(timestamps):
            chosen = (rows, offsets, timestamps)
            if numbers is not None:
                picked = pa.array(numbers)
                chosen = (rows.take(picked), offsets.take(picked), timestamps.take(picked))
            self._file(division, rows.schema).add(*chosen)
            if self._open[division].size >= self._file_bytes:
                self._close(division)
        while sum(one.waiting for one in self._open.values()) > _WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda one: one.waiting).write_group()

    def close(self) -> list[Part]:
        """Close all files, and return them."""
        for division in list(self._open):
            self._close(division)
        return self._parts

    def abandon(self) -> None:
        """Remove all written files."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        self._folder.remove(part.name for part in self._parts)

    def _file(self, division: Division, schema: pa.Schema) -> "_OpenFile":
        found = self._open.get(division)
        if found is None:
            if len(self._open) >= OPEN_MAX:
                self._close(max(self._open, key=lambda one: self._open[one].rows))
            name, final = self._naming.names(division, self._count)
            self._count += 1
            found = self._open[division] = _OpenFile(
                self._folder, name, final, division, self._schema or schema, self._naming.form
            )
        return found

    def _close(self, division: Division) -> None:
        self._parts.append(self._open.pop(division).close(self._naming))


class _OpenFile:
    def __init__(
        self, folder: Folder, name: str, final: str, division: Division, schema: pa.Schema, form: str
    ) -> None:
        self._name = name
        self._final = final
        self._division = division
        self._schema = schema
        self._context: AbstractContextManager[Path] = folder.new_file(name)
        self._path = self._context.__enter__()
        try:
            self._writer = open_rows(form, self._path, schema)
        except BaseException as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise
        self._waiting: list[pa.RecordBatch] = []
        self.waiting = 0
        self.rows = 0
        self._offsets: list[int] = []
        self._times: list[int] = []

    @property
    def size(self) -> int:
        """The bytes of the file so far; rows that are not written yet count without compression."""
        return int(self._path.stat().st_size) + self.waiting

    def add(self, rows: pa.RecordBatch, offsets: pa.Array, timestamps: pa.Array) -> None:
        self._waiting.append(rows)
        self.waiting += rows.nbytes
        self.rows += rows.num_rows
        self._offsets = _span(self._offsets, offsets)
        self._times = _span(self._times, timestamps.cast(pa.int64()))
        if self.waiting >= GROUP_BYTES:
            self.write_group()

    def write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting, self.waiting = [], 0

    def close(self, naming: Naming) -> Part:
        try:
            self.write_group()
            self._writer.close()
            size = self._path.stat().st_size
        except BaseException as error:
            self._leave(error)
            raise
        self._context.__exit__(None, None, None)
        return Part(
            name=self._name,
            final=self._final,
            division=self._division,
            size=size,
            rows=self.rows,
            topic=naming.topic,
            partition=naming.partition,
            first_offset=self._offsets[0],
            last_offset=self._offsets[1],
            first_time_us=self._times[0],
            last_time_us=self._times[1],
        )

    def abandon(self) -> None:
        """Close and remove the file."""
        try:
            self._leave(_Abandoned())
        except _Abandoned:
            return

    def _leave(self, error: BaseException) -> None:
        """End the block of the file with an error, which removes the file."""
        with suppress(OSError):  # on a full disk, for what is not written yet
            self._writer.close()
        self._context.__exit__(type(error), error, error.__traceback__)


class _Abandoned(Exception):
    """Raised to leave the block of a file without keeping the file."""


def _span(known: list[int], values: pa.Array) -> list[int]:
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    return [low, high] if not known else [min(known[0], low), max(known[1], high)]
