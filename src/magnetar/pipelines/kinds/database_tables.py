"""A table of a database as pipelines see it: its columns, its greatest number, and batches that it gets once.

This module speaks JDBC with the JVM of the driver (`java.sql`), by py4j.  Rows do not come this way: Spark writes them
into a table beside the real one.  `commit` has the database copy them in one transaction, together with the number of
the batch, which is in the table `magnetar_batches`.  So a batch that runs again finds itself there.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import ConfigError
from magnetar.base.masking import scrubbed
from magnetar.pipelines.kinds.config_values import text_at
from magnetar.pipelines.kinds.kind import NotYet
from magnetar.pipelines.spark.scala import JavaObject
from magnetar.pipelines.targets.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES: Final = "magnetar_batches"
_STAGED: Final = "magnetar_staged_"
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_NEVER: Final = -1  # the number of the batch before the first one
_LOST_CLASS: Final = re.compile(r"ClassNotFoundException|Did not find registered driver|No suitable driver")


def database_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration that say which table of which database, checked.  Raises ConfigError."""
    check_table(text_at(config, "table"))
    values: dict[str, Any] = {name: text_at(config, name) for name in ("database", "table")}
    for name in ("user", "password"):
        values[name] = None if config.get(name) is None else text_at(config, name)
    if values["password"] is not None and values["user"] is None:
        raise ConfigError("password needs a user")
    return values


def check_table(name: str) -> None:
    """Raises ConfigError: Spark would take anything else than a name for a query."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"table must be a name such as orders or shop.orders, not {name[:100]!r}")


def check_column(name: str) -> None:
    """Raises ConfigError."""
    if _COLUMN.fullmatch(name) is None:
        raise ConfigError(f"column must be a name of letters, digits and underscores, not {name[:100]!r}")


@contextmanager
def connected(spark: "SparkSession", options: Mapping[str, str]) -> Iterator[JavaObject]:
    """A connection to a database with these options of Spark's.  Raises what `told` makes of the database's errors."""
    jvm: Any = spark._jvm
    with told(options):
        jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(options["driver"])
        properties = jvm.java.util.Properties()
        for name in ("user", "password"):
            if name in options:
                properties.setProperty(name, options[name])
        connection = jvm.java.sql.DriverManager.getConnection(options["url"], properties)
        try:
            yield connection
        finally:
            with suppress(Exception):  # what the database says of the end of a connection changes nothing
                connection.close()


@contextmanager
def told(options: Mapping[str, str]) -> Iterator[None]:
    """Raise an exception of Java as the sentence that it has, without the URL and the password of `options`."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        said = error.java_exception
        while said.getCause() is not None:
            said = said.getCause()
        secrets = frozenset(options[name] for name in ("url", "password") if name in options)
        text = scrubbed(" ".join(str(said.toString()).split()), secrets)
        if _LOST_CLASS.search(text):
            raise NotYet(f"the worker has not loaded the driver: restart it ({text[:300]})") from None
        raise TableError(f"the database says: {text[:800]}") from None


def query_of(spark: "SparkSession", name: str) -> str:
    """The id of the running query with this name, which is that of its checkpoint."""
    return next(str(one.id) for one in spark.streams.active if one.name == name)


def quoting(spark: "SparkSession", url: str) -> Callable[[str], str]:
    """How the database has names of columns quoted."""
    jvm: Any = spark._jvm
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
    return lambda name: str(dialect.quoteIdentifier(name))


def is_there(connection: JavaObject, table: str) -> bool:
    """Whether the database has a table of that name, which this user may read."""
    from py4j.protocol import Py4JJavaError

    try:
        with _closing(connection.createStatement()) as statement:
            statement.executeQuery(f"SELECT * FROM {table} WHERE 1 = 0")  # noqa: S608  a checked name
    except Py4JJavaError:
        return False
    return True


def greatest(connection: JavaObject, table: str, column: str) -> int | None:
    """The greatest number in a column; None if it has none."""
    sql = f"SELECT MAX({column}) FROM {table}"  # noqa: S608  both are checked names
    with _closing(connection.createStatement()) as statement:
        found = statement.executeQuery(sql)
        found.next()
        value = found.getBigDecimal(1)
        return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table that gets the batches of one streaming query.  `quote` quotes the names of columns."""

    connection: JavaObject
    name: str
    query: str
    quote: Callable[[str], str]

    @property
    def staged(self) -> str:
        """The table for the rows of a batch, beside this one."""
        return f"{self._beside}{_STAGED}{self.query.replace('-', '')[:16]}"

    def check(self) -> None:
        """Raises ConfigError: the database has no transactions."""
        if not self.connection.getMetaData().supportsTransactions():
            raise ConfigError("the database has no transactions, and a batch could be in the table twice")

    def prepare(self) -> None:
        """Make the table of batches, and the query's row in it, unless they are there."""
        self.connection.setAutoCommit(True)
        if not is_there(self.connection, self._batches):
            self._execute(
                f"CREATE TABLE {self._batches}"
                " (query_id VARCHAR(100) NOT NULL PRIMARY KEY, batch_number BIGINT NOT NULL)"
            )
        if self._last() is None:
            self._execute(
                f"INSERT INTO {self._batches} (query_id, batch_number) VALUES (?, ?)",  # noqa: S608
                self.query,
                _NEVER,
            )

    def has(self, batch: int) -> bool:
        """Whether the table has this batch, or a later one."""
        last = self._last()
        return last is not None and last >= batch

    def commit(self, batch: int, columns: Sequence[tuple[str, str]], rows: int) -> bool:
        """Copy the rows of `staged`, unless the table has the batch; false if it has.

        `columns` are pairs: a column of this table, and of `staged`.

        Raises:
            TableError: `staged` has another number of rows, because a task of Spark's wrote twice.
        """
        into = ", ".join(self.quote(own) for own, _ in columns)
        of = ", ".join(self.quote(other) for _, other in columns)
        self.connection.setAutoCommit(False)
        try:
            is_new = self._execute(
                f"UPDATE {self._batches} SET batch_number = ? WHERE query_id = ? AND batch_number < ?",  # noqa: S608
                batch,
                self.query,
                batch,
            )
            if is_new:
                copied = self._execute(f"INSERT INTO {self.name} ({into}) SELECT {of} FROM {self.staged}")  # noqa: S608
                if copied != rows:
                    raise TableError(
                        f"{self.staged} has {copied} rows of a batch of {rows}: the batch is written again"
                    )
            self.connection.commit()
        except BaseException:
            with suppress(Exception):  # the connection may be gone, and then nothing was committed
                self.connection.rollback()
            raise
        finally:
            with suppress(Exception):
                self.connection.setAutoCommit(True)
        return bool(is_new)

    def drop_staged(self) -> None:
        """Remove `staged`, whose rows are in this table."""
        if is_there(self.connection, self.staged):
            self._execute(f"DROP TABLE {self.staged}")

    # inside

    @property
    def _beside(self) -> str:
        schema, dot, _ = self.name.rpartition(".")
        return f"{schema}{dot}"

    @property
    def _batches(self) -> str:
        return f"{self._beside}{BATCHES}"

    def _last(self) -> int | None:
        sql = f"SELECT batch_number FROM {self._batches} WHERE query_id = ?"  # noqa: S608
        with _closing(self.connection.prepareStatement(sql)) as statement:
            statement.setString(1, self.query)
            found = statement.executeQuery()
            return int(found.getLong(1)) if found.next() else None

    def _execute(self, sql: str, *values: int | str) -> int:
        """Execute a statement; returns how many rows it has changed."""
        with _closing(self.connection.prepareStatement(sql)) as statement:
            for place, value in enumerate(values, 1):
                if isinstance(value, str):
                    statement.setString(place, value)
                else:
                    statement.setLong(place, value)
            return int(statement.executeUpdate())


@contextmanager
def _closing(statement: JavaObject) -> Iterator[JavaObject]:
    try:
        yield statement
    finally:
        with suppress(Exception):
            statement.close()
