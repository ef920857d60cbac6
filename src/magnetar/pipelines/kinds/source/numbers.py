"""The greatest number in a column of a database's table, which a thread leaves in a file for the plan of batches."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import MagnetarError
from magnetar.pipelines.kinds.database_tables import connected, greatest
from magnetar.pipelines.kinds.kind import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING: Final = -1  # as of all tables: the version before the first one
_KEYS: Final = ("number", "trouble")


class Watcher(threading.Thread):
    """Keeps the greatest number in a file, until the query ends.  It never falls: rows may be removed.

    `column` is quoted as the database wants it.
    """

    def __init__(
        self,
        spark: "SparkSession",
        options: Mapping[str, str],
        table: str,
        column: str,
        file: Path,
        every_s: float,
    ) -> None:
        super().__init__(name="numbers", daemon=True)
        self._spark = spark
        self._options = options
        self._table = table
        self._column = column
        self._file = file
        self._every_s = every_s
        self._stop_now = threading.Event()

    def look(self) -> None:
        """Ask once.  Raises NotYet, TableError."""
        with connected(self._spark, self._options) as connection:
            found = greatest(connection, self._table, self._column)
        number = NOTHING if found is None else found
        _write(self._file, max(number, read_number(self._file)[0]), "")

    def run(self) -> None:
        while not self._stop_now.wait(self._every_s):
            try:
                self.look()
            except MagnetarError as error:
                _write(self._file, read_number(self._file)[0], str(error))

    def end(self) -> None:
        self._stop_now.set()


class WatchedQuery:
    """A query with its watcher, as the worker wants it."""

    def __init__(self, query: Query, watcher: Watcher) -> None:
        self._query = query
        self._watcher = watcher

    @property
    def isActive(self) -> bool:
        if self._query.isActive:
            return True
        self._watcher.end()
        return False

    def exception(self) -> Exception | None:
        return self._query.exception()

    def stop(self) -> None:
        self._watcher.end()
        self._query.stop()


def read_number(file: Path) -> tuple[int, str]:
    """The number, and why it is not known better."""
    try:
        found: Any = json.loads(file.read_text())
    except FileNotFoundError:
        return NOTHING, ""
    number, trouble = (found[key] for key in _KEYS)
    return int(number), str(trouble)


def _write(file: Path, number: int, trouble: str) -> None:
    written = file.with_suffix(".new")
    written.write_text(json.dumps(dict(zip(_KEYS, (number, trouble), strict=True))))
    written.replace(file)
