"""One Spark session and one server for all tests that need them.

Both take seconds to start, so they are shared: a test makes topics of its own (`topic` gives a name), and leaves the
session's settings as they were.  Mark a module with

    pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

so that all of them run in one process, one after the other, and have time on a machine that does other things too.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_SEGMENTS = {"num.partitions": "1", "log.segment.bytes": str(1 << 20)}

_names = count()


@pytest.fixture(scope="session")
def server() -> Iterator[MagnetarProcess]:
    """A server with small segments, so that a few megabytes of records lie in several of them."""
    with MagnetarProcess(settings=SMALL_SEGMENTS) as process:
        yield process


@pytest.fixture(scope="module")
def own_server() -> Iterator[MagnetarProcess]:
    """The same for one module alone, whose tests may kill it, and which need no Spark."""
    with MagnetarProcess(settings=SMALL_SEGMENTS) as process:
        yield process


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """`local[2]`, two partitions after a shuffle, our own settings."""
    from magnetar.pipelines.spark import session

    started = session.start("tests", master="local[2]", shuffle_partitions=2)
    try:
        yield started
    finally:
        gateway = started.sparkContext._gateway
        started.stop()
        _end_jvm(gateway)


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    """Make the shared session the active one again: what a worker starts leaves a session of its own active."""
    if "spark" in request.fixturenames:
        from magnetar.pipelines.spark import session

        session.activate(request.getfixturevalue("spark"))


def _end_jvm(gateway: Any) -> None:
    """The JVM outlives its session until the process that started it ends: a test run would keep several."""
    process = gateway.proc
    gateway.shutdown()
    with suppress(ProcessLookupError, PermissionError):
        process.stdin.close()
        process.wait(timeout=30)
        return
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def topic() -> Callable[[], str]:
    """Names that no other test uses."""
    return lambda: f"topic-{os.getpid()}-{next(_names)}"


@pytest.fixture(scope="session")
def writers(server: MagnetarProcess) -> Iterator[Writers]:
    """Clients of both protocols."""
    with Writers(server) as made:
        yield made


@pytest.fixture(scope="module")
def own_writers(own_server: MagnetarProcess) -> Iterator[Writers]:
    with Writers(own_server) as made:
        yield made


@pytest.fixture
def read(spark: "SparkSession", server: MagnetarProcess) -> "Callable[..., DataFrame]":
    """`read("topic", columns=..., **options)`: a batch read; dots in option names are written as two underscores."""

    def _read(topic: str, columns: str | None = None, **options: object) -> "DataFrame":
        reader = spark.read.format("magnetar").option("admin.url", server.http_url).option("subscribe", topic)
        if columns is not None:
            reader = reader.schema(columns)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader.load()

    return _read


@pytest.fixture
def run_stream(spark: "SparkSession", server: MagnetarProcess, tmp_path: Path) -> "Callable[..., list[Any]]":
    """`run_stream(topics, checkpoint="name", **options)`: the rows of one run that reads all there is now."""

    def _run(
        topics: str, *, checkpoint: str = "checkpoint", columns: Sequence[str] = ("*",), **options: object
    ) -> "list[Any]":
        rows: list[Any] = []

        def keep(batch: "DataFrame", batch_id: int) -> None:
            rows.extend(batch.select(*columns).collect())

        settings: Mapping[str, object] = {
            "admin__url": server.http_url,
            "subscribe": topics,
            "startingOffsets": "earliest",
            **options,
        }
        reader = spark.readStream.format("magnetar")
        for name, value in settings.items():
            if value is not None:
                reader = reader.option(name.replace("__", "."), str(value))
        query = (
            reader.load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(100)
        finally:
            query.stop()
        return rows

    return _run
