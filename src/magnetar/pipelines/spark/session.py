"""Spark sessions with suitable settings.

    spark = session.start("my job")                      # this machine
    spark = session.start("my job", master="spark://host:7077")

Each setting has its reason beside it; the figures are in `docs/operating/pipelines.md`.  The caller's `settings`, and
those that Spark finds in `SPARK_CONF_DIR`, are applied on top.  Starting a session also sets variables of the
process's environment: JAVA_HOME, the Python of the workers and the address on which Spark listens.
"""

import hashlib
import logging
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import ConfigError
from magnetar.pipelines.spark.java import find_java, user_cache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*]"
DRIVER_MEMORY: Final = "1g"  # eight pipelines fit; see docs/operating/pipelines.md
SHUFFLE_PARTITIONS: Final = 4  # a stateful stream keeps its first number in its checkpoint
TASK_FAILURES_MAX: Final = 4  # Spark's number on a cluster; on one machine Spark would not try again

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_HOME_PARTS: Final = ("bin", "sbin", "jars")
_LOCAL: Final = re.compile(r"local(?:\[(?P<threads>\*|\d+)\])?")
_LOOPBACK: Final = re.compile(r"spark://(127\.[\d.]+|localhost|\[::1\]):\d+")
_STREAMING_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing"

SETTINGS: Final[Mapping[str, str]] = {
    # Spark's default writes a checkpoint file by starting three processes; this way a batch costs 0.14 s, not 0.3 s.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Python workers: forked from a prepared process, and connected without the network.
    "spark.python.daemon.module": "magnetar.pipelines.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    # Filters reach the source if the option filterPushdown asks for them; Spark refuses sources that take filters
    # while this setting is off.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Pipelines share the cores instead of waiting for each other.
    "spark.scheduler.mode": "FAIR",
    # By default Spark opens no port and leaves no file.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # Timestamps are instants; a session's time zone only decides how they are printed.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.stopTimeout": "30s",
    # Spark's own limit for plans in error messages; whole plans are megabytes for wide schemas.
    "spark.sql.maxPlanStringLength": "20000",
    # In quotes, because a path may contain spaces.
    JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"',
}


def builder(
    app_name: str,
    *,
    master: str | None = None,
    memory: str = DRIVER_MEMORY,
    shuffle_partitions: int = SHUFFLE_PARTITIONS,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession.Builder":
    """A builder with all settings, after preparing this process's environment: the caller calls `getOrCreate()`.

    `master` is Spark's master (`local[2]`, `spark://host:7077`), by default all cores of this machine; `memory` is
    the size of the JVM's heap (`1g`).  On one machine a failed task is tried four times in all, as on a cluster,
    unless `master` has another number.

    Raises:
        ConfigError: Spark is not installed, or (JavaNotFound) there is no Java for it.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise ConfigError("Spark is not installed: pip install 'magnetar[spark]'")
    master = _with_retries(master or MASTER)
    _prepare_environment(master)
    from pyspark.sql import SparkSession

    _quieten_python()
    made = SparkSession.builder.appName(app_name).master(master)
    for key, value in SETTINGS.items():
        made = made.config(key, value)
    made = made.config("spark.driver.memory", memory)
    made = made.config("spark.sql.shuffle.partitions", str(shuffle_partitions))
    made = made.config("spark.pyspark.python", os.environ["PYSPARK_PYTHON"])
    for key, value in (settings or {}).items():
        made = made.config(key, value)
    return made


def start(
    app_name: str,
    *,
    master: str | None = None,
    memory: str = DRIVER_MEMORY,
    shuffle_partitions: int = SHUFFLE_PARTITIONS,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start a session with the settings of `builder`; the first one of a process takes about eight seconds."""
    return builder(
        app_name, master=master, memory=memory, shuffle_partitions=shuffle_partitions, settings=settings
    ).getOrCreate()


def is_local(master: str) -> bool:
    """Whether everything runs in this driver, on this machine."""
    return _LOCAL.match(master) is not None


def activate(session: "SparkSession") -> None:
    """Make `session` the active session of this thread.

    Spark looks up a Python data source in the active session, not in the session of the reader or writer.
    """
    type(session)._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def _with_retries(master: str) -> str:
    """`local[2]` becomes `local[2,4]`, so that the death of a Python worker ends one attempt of a task, and not the
    query.
    """
    local = _LOCAL.fullmatch(master)
    return f"local[{local['threads'] or '1'},{TASK_FAILURES_MAX}]" if local is not None else master


def _prepare_environment(master: str) -> None:
    """Set environment variables for the JVM and the workers."""
    import pyspark

    os.environ["JAVA_HOME"] = str(find_java().home)
    # A SPARK_HOME that the user has for other work may have another version, which does not work with this pyspark.
    os.environ["SPARK_HOME"] = str(_spark_home(Path(pyspark.__file__).parent, user_cache()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local") or _LOOPBACK.fullmatch(master):
        # Otherwise Spark would look up this host's name, and listen on an address that other machines can reach.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The JVM starts the workers, which must find this package in the same place as this process.
    ours = str(Path(__file__).parents[3])
    path = os.environ.get("PYTHONPATH", "")
    if ours not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{path}{os.pathsep}{ours}" if path else ours


def _spark_home(package: Path, cache: Path) -> Path:
    """A SPARK_HOME with the installed package except its `python` folder, or `package` if that is not possible.

    That folder has pyspark again, as a zip that the JVM would put first on the path of every Python process that it
    starts.  Python does not keep compiled code of a zip, so each of the seven processes of a stream would take a
    second longer.
    """
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:16]
    home = cache / f"spark-{digest}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in _HOME_PARTS:
            link, target = home / name, package / name
            if not target.exists() or (link.is_symlink() and link.readlink() == target):
                continue
            made = home / f".{name}-{os.getpid()}"
            made.symlink_to(target)
            made.replace(link)
    except OSError:
        return package
    return home


def _quieten_python() -> None:
    """Silence a logger of pyspark that prints the plan and the JVM's stack of each failed query, which is raised
    anyway.
    """
    from pyspark.logger import PySparkLogger

    # With Spark's own class, which takes more arguments than a plain logger; the first call decides the class.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.ERROR)
