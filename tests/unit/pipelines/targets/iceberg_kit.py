"""Small Iceberg tables, written by our target, changed as other writers may change them, and read as a source does."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from magnetar.pipelines.targets.evolution import conformed
from magnetar.pipelines.targets.folder import open_folder
from magnetar.pipelines.targets.iceberg import metadata
from magnetar.pipelines.targets.iceberg.history import NOTHING, IcebergHistory
from magnetar.pipelines.targets.iceberg.target import IcebergTarget
from magnetar.pipelines.targets.layout import Layout
from magnetar.pipelines.targets.parts import Naming, PartWriter
from magnetar.pipelines.targets.target import Batch

QUERY = "0f2e3d4c-aaaa-bbbb-cccc-000000000000"
PLAIN = Layout(("offset",), "__", "none")

Change = Callable[[dict[str, Any]], None]

ROW: Mapping[str, Any] = {
    "yes": True,
    "n": 1 << 60,
    "half": 0.5,
    "text": "ä",
    "day": date(2026, 11, 27),
    "at": datetime(2026, 11, 27, 4, 0, 0, 7, tzinfo=UTC),
    "price": Decimal("1.50"),
    "raw": b"\xff",
    "who": {"name": "x", "born": date(1970, 1, 2)},
    "days": [date(1970, 1, 3), None],
    "times": [("k", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))],
}
TYPES = pa.schema(
    [
        ("yes", pa.bool_()),
        ("n", pa.int64()),
        ("half", pa.float32()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("who", pa.struct([("name", pa.string()), ("born", pa.date32())])),
        ("days", pa.list_(pa.date32())),
        ("times", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
    ]
)


def written(
    target: IcebergTarget, batch: int, values: pa.RecordBatch | None = None, query: str = QUERY
) -> Batch:
    """The files of a batch with one row: its number is in the column `a`."""
    values = values or pa.RecordBatch.from_pydict({"a": pa.array([batch], pa.int32())})
    count = values.num_rows
    offsets, times = pa.array(range(count), pa.int64()), pa.array([0] * count, pa.timestamp("us", "UTC"))
    source = pa.RecordBatch.from_pydict({"offset": offsets})
    rows = target.layout.rows(source, values)
    naming = Naming(query, "t", 0, batch, batch + 1, None)
    writer = PartWriter(target.folder, target.layout, naming, schema=target.file_schema(rows.schema))
    writer.write(rows, offsets, times)
    return Batch(query, batch, writer.close(), target.layout.schema(values.schema, whose="the topic"))


def commit(target: IcebergTarget, *batches: int) -> None:
    for batch in batches:
        assert target.commit(written(target, batch))


def read(folder: Path, after: int, to: int) -> list[dict[str, Any]]:
    """As a source's tasks do it."""
    history = IcebergHistory(str(folder))
    columns = history.columns()
    assert columns is not None
    return [
        row
        for file in history.gained(after, to)
        for batch in history.rows(file, columns)
        for row in conformed(batch, columns).to_pylist()
    ]


def numbers(folder: Path, after: int = NOTHING, to: int | None = None) -> list[int]:
    to = IcebergHistory(str(folder)).newest() if to is None else to
    return sorted(row["a"] for row in read(folder, after, to))


def document(folder: Path) -> dict[str, Any]:
    table = metadata.newest(open_folder(str(folder)))
    assert table is not None
    found: dict[str, Any] = json.loads(json.dumps(table.document))
    return found


def edit(folder: Path, change: Change) -> None:
    """The next version of the table, as another writer may make it."""
    table = metadata.newest(open_folder(str(folder)))
    assert table is not None
    found = json.loads(json.dumps(table.document))
    change(found)
    (folder / f"metadata/v{table.version + 1}.metadata.json").write_text(json.dumps(found))
