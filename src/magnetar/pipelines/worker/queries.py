"""The worker's side of Spark: one named streaming query for each pipeline, in a session and a scheduler pool of its
own.

Everything here may block for seconds and runs on the supervisor's helper threads, except `ended`, which the
supervisor calls for each query twice a second.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.base.table_roots import TableRoots
from magnetar.client.pipelines import Pipeline
from magnetar.pipelines.kinds.kind import Context, Query, Spec
from magnetar.pipelines.kinds.registry import find_kind
from magnetar.pipelines.spark.databases import Databases
from magnetar.pipelines.spark.session import activate
from magnetar.pipelines.worker.owners import Owners
from magnetar.pipelines.worker.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

CHECKPOINT: Final = "checkpoint"
OWNER: Final = "pipeline.json"  # names the pipeline to which the folder belongs


class SparkGone(Exception):
    """The JVM has ended, does not answer, or has a query that does not stop: this driver is useless."""


class EndedByItself(MagnetarError):
    """A query ended without an error."""


@dataclass(slots=True)
class Running:
    """A started query and its numbers."""

    query: Query
    session: "SparkSession"
    listener: "StreamingQueryListener"
    progress: Progress
    pipeline_id: str


class Queries:
    """Starts, stops and forgets the queries of one Spark driver.  `folder` has one folder for each pipeline; queries
    log in by `owners`.
    """

    def __init__(
        self,
        spark: "SparkSession",
        folder: Path,
        owners: Owners,
        url: str,
        bootstrap: str,
        table_roots: TableRoots,
        databases: Databases,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._owners = owners
        self._url = url
        self._bootstrap = bootstrap
        self._table_roots = table_roots
        self._databases = databases

    def start(self, pipeline: Pipeline, ended: Callable[[], None]) -> Running:
        """Check and start a pipeline; `ended` is called when its query has terminated, whatever the reason.

        Raises whatever its kind or Spark does; a ConfigError if the declaration has to change first.
        """
        kind = find_kind(pipeline.kind)
        config = kind.validate(pipeline.config)
        folder = own_folder(self._folder, pipeline)
        spec = Spec(pipeline.name, pipeline.id, pipeline.kind, config, pipeline.subscription)
        login = self._owners.context_of(pipeline)
        private = self._owners.private_file(pipeline)
        context = Context(
            self._url, self._bootstrap, folder, self._table_roots, login, private, self._databases
        )
        session = own_session(self._spark)
        progress = Progress(counts_offsets=kind.reads_slices)
        listener = _listener(progress, ended)
        session.streams.addListener(listener)
        activate(session)
        # The query's own thread inherits this, so that each pipeline gets its share of the cores.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
        try:
            query = kind.start(session, spec, str(folder / CHECKPOINT), context)
        except BaseException:
            session.streams.removeListener(listener)
            self._owners.let_go(pipeline.id)
            raise
        return Running(query, session, listener, progress, pipeline.id)

    @staticmethod
    def ended(running: Running) -> BaseException | None:
        """Why the query ended; None while it runs.  Raises SparkGone if the JVM does not answer."""
        from py4j.protocol import Py4JError

        try:
            if running.query.isActive:
                return None
            return running.query.exception() or EndedByItself("the query has ended by itself")
        except (Py4JError, OSError) as error:
            raise SparkGone(f"Spark does not answer: {error}") from error

    def stop(self, running: Running) -> None:
        """Stop the query after what it is writing, and release its session and its login."""
        running.query.stop()
        running.session.streams.removeListener(running.listener)
        self._owners.let_go(running.pipeline_id)

    def is_alive(self) -> bool:
        """Whether the JVM that this process started still runs."""
        process = getattr(self._spark.sparkContext._gateway, "proc", None)
        return process is None or process.poll() is None

    def forget(self, name: str) -> None:
        """Remove what is stored of a deleted pipeline."""
        folder = self._folder / name
        if (folder / OWNER).exists():
            shutil.rmtree(folder)


def own_session(spark: "SparkSession") -> "SparkSession":
    """A session with a data source `magnetar` of its own.

    The source that Spark finds by its name is one object for all sessions of the JVM, with a map that every query
    changes when it starts (Spark 4.3, `PythonUtils.createPythonFunction`).  Two queries that started at the same moment
    have left the map with a wrong count.  From then on Spark could send out no task that writes: "Task not
    serializable".
    """
    from pyspark_magnetar import DefaultSource

    session = spark.newSession()
    session.dataSource.register(DefaultSource)
    return session


def own_folder(parent: Path, pipeline: Pipeline) -> Path:
    """The pipeline's folder, created if it does not exist.  The remains of an earlier pipeline with its name are
    removed.

    Raises:
        ConfigError: there is something else of that name.
        OSError
    """
    folder = parent / pipeline.name
    owner = folder / OWNER
    if folder.exists():
        try:
            found = json.loads(owner.read_text())["id"]
        except FileNotFoundError:
            if any(folder.iterdir()):
                raise ConfigError(f"{folder} is not a pipeline's folder: move it away") from None
            found = None
        except (ValueError, KeyError, TypeError):
            found = None  # a crash interrupted its writing, which comes first in a new folder
        if found == pipeline.id:
            return folder
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    written = folder / f".{OWNER}"
    written.write_text(json.dumps({"id": pipeline.id, "name": pipeline.name}))
    written.replace(owner)
    return folder


def _listener(progress: Progress, ended: Callable[[], None]) -> "StreamingQueryListener":
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            progress.add(json.loads(event.progress.json), time.monotonic())

        def onQueryTerminated(self, event: Any) -> None:
            ended()

    return Listener()
