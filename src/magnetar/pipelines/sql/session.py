"""The Spark session of `magnetar sql`, which the terminal's Ctrl-C does not reach.

A terminal sends Ctrl-C to every process of its foreground group.  Spark's Python workers would end, and print their
tracebacks on the screen.  So the JVM gets a process group of its own, and only this process cancels queries.  The JVM
ends together with this process, because its standard input closes then.  Its output goes to a file; if it does not
start, the end of that is shown.
"""

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

from magnetar.base.errors import MagnetarError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

_LOG_BYTES: Final = 2_000


class SparkFailed(MagnetarError):
    """Spark did not start; the text has the end of its JVM's output."""


@contextlib.contextmanager
def open_session(master: str | None, console: "Console") -> Iterator["SparkSession"]:
    """A Spark session while the block runs.

    Raises:
        ConfigError: Spark or Java is missing, and could not be installed.
        SparkFailed: the JVM did not start.
    """
    with tempfile.TemporaryFile() as log:
        with console.status("starting Spark"):
            spark = _start(master, log)
        try:
            yield spark
        finally:
            spark.stop()


def _start(master: str | None, log: BinaryIO) -> "SparkSession":
    from magnetar.pipelines.spark import session

    builder = session.builder("magnetar sql", master=master)
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    try:
        if SparkContext._gateway is None:
            conf = SparkConf(loadDefaults=False).setAll(list(builder._options.items()))
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"start_new_session": True, "stdout": log, "stderr": log}
            )
            SparkContext._ensure_initialized(gateway=gateway)
        spark = builder.getOrCreate()
    except PySparkException as error:
        log.seek(max(0, log.seek(0, 2) - _LOG_BYTES))
        said = log.read().decode(errors="replace").strip()
        raise SparkFailed(f"Spark does not start: {error}\n{said}") from None
    # Spark's own handler would cancel every job, and raise at any place in the main thread; see `running.py`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark
