"""The Spark session behind `magnetar sql`, out of reach of the terminal's Ctrl-C.

A terminal sends Ctrl-C to every process of its foreground group, and Spark's Python workers listen to it: they would
die beside the query that is cancelled, with their tracebacks on the screen.  So the JVM gets a process group of its own
and hears of a cancelled query from us only.  It ends when this process does, because its standard input closes then.
What it prints goes to a file, of which the end is shown if it does not start.
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
    """Spark did not start; the text has the end of what its JVM said."""


@contextlib.contextmanager
def open_session(master: str | None, console: "Console") -> Iterator["SparkSession"]:
    """A session for the length of the block.

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
    # Spark's own handler cancels every job and raises wherever the main thread is; see `running`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark
