"""Iceberg itself reads what a table pipeline has written, writes to the same table, and a source follows its commits.

It needs Maven Central, once, for a jar of 48 MB: opt in with MAGNETAR_ICEBERG=1.  Hadoop's are those of PySpark.
"""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from magnetar.pipelines.targets.errors import TableError
from magnetar.pipelines.targets.iceberg.history import NOTHING, IcebergHistory
from magnetar.pipelines.targets.layout import Layout
from tests.java_classes import classes
from tests.peers import INSTALL_S, PEERS_HOME, one_at_a_time
from tests.unit.pipelines.targets.iceberg_kit import QUERY, ROW, TYPES, numbers, read
from tests.unit.pipelines.targets.test_targets import DAY_US, Table

# The classes of Iceberg, and those for Parquet and Avro; of those for Spark nothing is used here.
ARTIFACT = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
PROGRAM = Path(__file__).with_name("IcebergTable.java")
RUN_SECONDS_MAX = 300

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(INSTALL_S + RUN_SECONDS_MAX),
    pytest.mark.skipif(
        not os.environ.get("MAGNETAR_ICEBERG")
        or shutil.which("mvn") is None
        or shutil.which("javac") is None,
        reason="opt in with MAGNETAR_ICEBERG=1; needs Maven and a JDK",
    ),
]


@pytest.fixture(scope="module")
def class_path() -> str:
    folder = PEERS_HOME / "iceberg"
    _, name, version = ARTIFACT.split(":")
    jar = folder / f"{name}-{version}.jar"
    with one_at_a_time():
        if not jar.exists():
            copy = [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={ARTIFACT}",
                f"-DoutputDirectory={folder}",
            ]
            subprocess.run(copy, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = f"{jar}:{Path(spec.origin).parent / 'jars'}/*"
    return f"{jars}:{classes(PROGRAM, '-cp', jars)}"


def iceberg(class_path: str, folder: Path, *commands: str) -> list[dict[str, str]]:
    """The rows that Iceberg prints, by the names of their columns."""
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", class_path, "IcebergTable", folder, *commands],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.removeprefix("ROW ") for line in done.stdout.splitlines() if line.startswith("ROW ")]
    return [dict(text.split("=", 1) for text in line.split("|")) for line in lines]


def test_iceberg_reads_what_a_pipeline_writes_and_both_go_on(class_path: str, tmp_path: Path) -> None:
    table = Table("iceberg", tmp_path / "table", Layout(partition_by="day"))
    table.target.commit(table.written(0, 0, 4, step_us=DAY_US))
    values = pa.RecordBatch.from_pylist(
        [{**ROW, "a": n} for n in (4, 5)], pa.schema([("a", pa.int32()), *TYPES])
    )
    table.target.commit(table.written(1, 4, 6, values=values, step_us=DAY_US))
    found = sorted(iceberg(class_path, table.root, "rows"), key=lambda row: int(row["__offset"]))
    assert [(row["a"], row["record_date"]) for row in found] == [
        (str(n), f"1970-01-{1 + n:02d}") for n in range(6)
    ]
    assert {name: found[5][name] for name in ("n", "half", "text", "day", "price", "who", "days")} == {
        "n": str(1 << 60),
        "half": "0.5",
        "text": "ä",
        "day": "2026-11-27",
        "price": "1.50",
        "who": "Record(x, 1970-01-02)",
        "days": "[1970-01-03, null]",
    }
    assert found[0]["text"] == "null"
    iceberg(class_path, table.root, "properties", "expire")
    assert table.target.committed(QUERY, 1), "no expired snapshot makes a batch new"
    table.target.commit(table.written(2, 6, 8, values=values, step_us=DAY_US))
    assert len(iceberg(class_path, table.root, "rows")) == 8
    assert table.offsets() == [*range(8)]


def test_a_source_follows_a_table_of_iceberg_itself(class_path: str, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    iceberg(class_path, folder, "create", "append=0:6", "append=6:3", "replace", "append=9:3")
    history = IcebergHistory(str(folder))
    assert history.newest() == 4
    rows = sorted(read(folder, NOTHING, 4), key=lambda row: row["n"])
    assert [row["n"] for row in rows] == [*range(12)]
    assert [str(row["day"]) for row in rows[:3]] == ["2026-11-27", "2026-11-28", "None"]
    assert rows[0]["tags"] == ["x", None]
    assert [row["n"] for row in read(folder, 1, 4)] == [6, 7, 8, 9, 10, 11]
    assert read(folder, 2, 3) == []
    iceberg(class_path, folder, "rename", "append=12:1")
    assert sorted(row["number"] for row in read(folder, NOTHING, 5)) == [*range(13)]
    iceberg(class_path, folder, "delete")
    with pytest.raises(TableError, match=r"version 6 of the table may take rows away \(delete\)"):
        numbers(folder, 5, 6)
