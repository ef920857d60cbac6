"""Folders of files for any reader, of Parquet, JSON or CSV: each record once, each file complete.

    record_date=2026-11-21/flights-0-0..100-0..200-1f2e3d4c-0.parquet   data: the only files for readers
    _magnetar/<query>/staged/<batch>/...staged                          written, but not decided
    _magnetar/<query>/<batch>.json                                      the manifest: the files and their final names
    _magnetar/schema/<n>.arrow                                          the columns so far

1. Tasks write files below `staged`; names differ for each attempt.
2. The commit writes the manifest, unless the batch has one.  That is the decision: if Spark runs the batch again after
   a crash, the second attempt continues with the existing manifest, and drops its own files.
3. The commit moves each file to its final name, which only the manifest has.  Moving again does nothing.
4. The commit removes all other files in `staged` of this batch and earlier ones.

A reader of the folder that skips names beginning with `_`, as Spark, Arrow and others do, sees complete files, and no
record twice.  The files of a batch appear one after the other: until the commit returns, a reader may see some of
them.  A reader that needs a whole batch at once, or repeatable reads, should use Delta.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from magnetar.pipelines.targets.errors import TableDamaged
from magnetar.pipelines.targets.evolution import merged
from magnetar.pipelines.targets.folder import Folder
from magnetar.pipelines.targets.target import SWEEP_AGE_S, Batch

OURS: Final = "_magnetar/"
_SCHEMAS: Final = f"{OURS}schema/"
_VERSION: Final = 1
_KEPT: Final = 2  # manifests of a query: Spark only runs the last batch again


@dataclass(frozen=True, slots=True)
class FilesTarget:
    folder: Folder

    def schema(self) -> pa.Schema | None:
        last = self._last_schema()
        return None if last is None else last[1]

    def staging(self, query: str, batch: int) -> str | None:
        return f"{_staged(query)}{batch:020d}/"

    def file_schema(self, rows: pa.Schema) -> pa.Schema:
        return rows

    def committed(self, query: str, batch: int) -> bool:
        return any(number >= batch for number in self._manifests(query))

    def commit(self, batch: Batch) -> bool:
        name = _manifest(batch.query, batch.number)
        text = self.folder.read(name)
        is_new = text is None
        if text is None:
            self._merge(batch.schema)
            text = json.dumps(_document(batch)).encode()
            if not self.folder.put_new(name, text):  # another driver has written it first
                is_new = False
                text = self.folder.read(name) or b""
        for source, final in self._files(name, text):
            if not self.folder.move(source, final) and not self.folder.exists(final):
                raise TableDamaged(
                    f"{self.folder.url}: {source} is gone, which {name} says is part of the table"
                )
        self._tidy(batch.query, batch.number)
        return is_new

    def sweep(self, older_than_s: float = SWEEP_AGE_S) -> int:
        """Does nothing, because every commit removes the files of earlier attempts."""
        return 0

    def _merge(self, schema: pa.Schema) -> None:
        while True:
            last = self._last_schema()
            number, known = last if last is not None else (-1, pa.schema([]))
            wanted = merged(known, schema, whose="this batch")
            if last is not None and wanted.equals(known):
                return
            if self.folder.put_new(f"{_SCHEMAS}{number + 1:08d}.arrow", wanted.serialize().to_pybytes()):
                return

    def _last_schema(self) -> tuple[int, pa.Schema] | None:
        name = max(
            (found.name for found in self.folder.list(_SCHEMAS) if found.name.endswith(".arrow")),
            default=None,
        )
        data = None if name is None else self.folder.read(name)
        if name is None or data is None:
            return None
        number = int(name.removeprefix(_SCHEMAS).removesuffix(".arrow"))
        return number, pa.ipc.read_schema(pa.py_buffer(data))

    def _files(self, name: str, text: bytes) -> list[tuple[str, str]]:
        try:
            document: Any = json.loads(text)
            if document["version"] != _VERSION:
                raise TableDamaged(f"{self.folder.url}: {name} is of a newer version of magnetar")
            return [(one["from"], one["to"]) for one in document["files"]]
        except (ValueError, KeyError, TypeError):
            raise TableDamaged(f"{self.folder.url}: {name} is not a manifest") from None

    def _manifests(self, query: str) -> list[int]:
        root = f"{OURS}{query}/"
        names = (found.name.removeprefix(root) for found in self.folder.list(root))
        return sorted(
            int(name.removesuffix(".json")) for name in names if "/" not in name and name.endswith(".json")
        )

    def _tidy(self, query: str, batch: int) -> None:
        root = _staged(query)
        done = {
            directory
            for found in self.folder.list(root)
            if int(directory := found.name.removeprefix(root).partition("/")[0]) <= batch
        }
        for directory in done | {f"{batch:020d}"}:
            self.folder.remove_directory(f"{root}{directory}/")
        older = [number for number in self._manifests(query) if number <= batch - _KEPT]
        self.folder.remove(_manifest(query, number) for number in older)


def _staged(query: str) -> str:
    return f"{OURS}{query}/staged/"


def _manifest(query: str, batch: int) -> str:
    return f"{OURS}{query}/{batch:020d}.json"


def _document(batch: Batch) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "batch": batch.number,
        "files": [
            {
                "from": part.name,
                "to": part.final,
                "rows": part.rows,
                "bytes": part.size,
                "topic": part.topic,
                "partition": part.partition,
                "offsets": [part.first_offset, part.last_offset],
            }
            for part in batch.parts
        ],
    }
