"""Topics -> a table of a database: one micro-batch after the other, each of which the table gets once.

Tasks do what they do for a table in files.  They read, decode and write files, in a folder of the pipeline's own, and
leave dead letters in open transactions (`batches.py`).  Then the driver

1. makes the dead letters visible, if the table does not have the batch already
2. has Spark write the rows of these files into a table beside the real one, which is made anew
3. has the database copy them and note the batch, in one transaction (`database_tables.py`)
4. removes both the table beside and the files

A batch that runs again after a death finds the note of step 3, or begins again.
"""

import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.pipelines.kinds.database_tables import DatabaseTable, connected, query_of, quoting, told
from magnetar.pipelines.kinds.kind import Context, Spec
from magnetar.pipelines.kinds.table import batches
from magnetar.pipelines.kinds.table.batches import Written
from magnetar.pipelines.kinds.table.config import TableConfig
from magnetar.pipelines.targets.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

STAGED: Final = "staged"  # in the pipeline's folder
_WRITTEN: Final = "written BINARY"


def batch_writer(
    spark: "SparkSession", spec: Spec, context: Context, config: TableConfig
) -> "Callable[[DataFrame, int], None]":
    """What Spark calls with each batch of slices.  `config` has the folder for files as its path.

    Raises:
        ConfigError: pipelines may not use the database, or it has no transactions.
        NotYet, TableError: it cannot be reached.
    """
    values = spec.config
    options = context.database(values["database"]).options(values["user"], values["password"])
    with connected(spark, options) as connection:
        DatabaseTable(connection, values["table"], spec.id, str).check()

    def write(slices: "DataFrame", number: int) -> None:
        query = query_of(spark, spec.name)
        with connected(spark, options) as connection:
            table = DatabaseTable(connection, values["table"], query, quoting(spark, options["url"]))
            table.prepare()
            if not table.has(number):
                done = _written(slices, config, query, number)
                batches.commit_dead(config, done, number)
                _commit(spark, config, options, table, done, number)
            table.drop_staged()
        shutil.rmtree(config.values["path"], ignore_errors=True)

    return write


def _written(slices: "DataFrame", config: TableConfig, query: str, number: int) -> Sequence[Written]:
    """Run the tasks of a batch."""
    rows = slices.mapInArrow(_task(config.to_json(), query, number), _WRITTEN).collect()
    return [pickle.loads(row.written) for row in rows]  # noqa: S301  of our own tasks


def _task(
    config: str, query: str, number: int
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def run(slices: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow
        from pyspark import TaskContext

        from magnetar.pipelines.connector.read.slices import slices_of

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        done = batches.write(TableConfig.of_json(config), query, number, task, slices_of(slices))
        yield pyarrow.RecordBatch.from_pydict({"written": [pickle.dumps(done)]})

    return run


def _commit(
    spark: "SparkSession",
    config: TableConfig,
    options: Mapping[str, str],
    table: DatabaseTable,
    done: Sequence[Written],
    number: int,
) -> None:
    parts = [part for one in done for part in one.parts]
    if not parts:
        return
    folder = Path(config.values["path"])
    rows = _rows(spark, [str(folder / part.name) for part in parts], batches.columns_of(done))
    with told(options):
        _writer(rows, options, table.staged, "overwrite").save()
        _writer(rows.limit(0), options, table.name, "ignore").save()  # makes the table, if there is none
        own = spark.read.format("jdbc").options(**options, dbtable=table.name).load().schema.names
        table.commit(number, _pairs(table.name, rows.schema.names, own), sum(part.rows for part in parts))


def _rows(spark: "SparkSession", files: Sequence[str], schema: "pa.Schema") -> "DataFrame":
    """The rows of these files, with types that databases have: structs, lists and maps are their JSON."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import ArrayType, ByteType, MapType, ShortType, StructType

    wanted = from_arrow_schema(schema)
    columns = []
    for field in wanted.fields:
        column = functions.col(f"`{field.name}`")
        match field.dataType:
            case StructType() | ArrayType() | MapType():
                column = functions.to_json(column)
            case ByteType() | ShortType():
                column = column.cast("int")
        columns.append(column.alias(field.name))
    return spark.read.schema(wanted).parquet(*files).select(*columns)


def _writer(rows: "DataFrame", options: Mapping[str, str], table: str, mode: str) -> Any:
    return rows.write.format("jdbc").options(**options, dbtable=table).mode(mode)


def _pairs(table: str, columns: Sequence[str], own: Sequence[str]) -> list[tuple[str, str]]:
    """For each column, that of the table; databases change the case of names that are not quoted.

    Raises:
        TableError: the table has no such column.
    """
    by_name = {name.lower(): name for name in own}
    for name in columns:
        if name.lower() not in by_name:
            raise TableError(f'table {table} has no column "{name}": add it, and the pipeline goes on')
    return [(by_name[name.lower()], name) for name in columns]
