"""The process of `magnetar worker`: from its lock to its lease to Spark to the pipelines, and back.

It can be killed at any time.  What matters is in the checkpoints, at the server and in the topics.  Some things cannot
be repaired here: the JVM is gone, a query does not stop, the lease is lost.  Then the process lets go of everything and
restarts itself (`exec`), under the same process id.  If that happens several times in a row, it waits longer each time.

No process outlives it.  The JVM ends when this process does, because its input is a pipe from here.  Spark's Python
processes end when the JVM does, for the same reason.  With `with_parent`, this process ends when its own input does: it
belongs to a server, which may be killed, too.
"""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.base.lockfile import DirectoryLock
from magnetar.base.logging import get_logger
from magnetar.base.private import new_private_folder
from magnetar.base.table_roots import TableRoots
from magnetar.client.login import Server
from magnetar.pipelines.spark import session, setup
from magnetar.pipelines.spark.databases import Databases
from magnetar.pipelines.worker.link import Link
from magnetar.pipelines.worker.owners import Owners
from magnetar.pipelines.worker.queries import Queries, SparkGone
from magnetar.pipelines.worker.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

APP_NAME: Final = "magnetar worker"
SCRATCH: Final = ".spark"  # no pipeline's name begins with a dot
EXIT_FAILED: Final = 1
STOP_SPARK_S_MAX: Final = 15.0

_AGAIN: Final = "MAGNETAR_WORKER_AGAIN"  # how often this process has restarted itself, and when it last did
_SCRATCH_BYTES_MAX: Final = 58  # a socket's path has 104 bytes at most, and its name 43
_AGAIN_S_MAX: Final = 60.0
_CALM_S: Final = 300.0
_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`folder` is where pipelines keep their checkpoints, and `databases` are those that they may use.  The server
    recognises its worker by the content of `token_file`.  `master` and `memory` are Spark's.
    """

    server: Server
    folder: Path
    token_file: Path
    master: str
    memory: str
    databases: Databases
    with_parent: bool = False


def run(options: WorkerOptions) -> int:
    """Run the pipelines until SIGTERM or SIGINT; returns the exit code.  Does not return if it restarts itself."""
    stop = threading.Event()
    _listen_to_signals(stop)
    if options.with_parent:
        threading.Thread(target=_end_with_input, args=(stop,), name="parent", daemon=True).start()
    new_private_folder(options.folder)
    lock = _lock(options.folder, stop)
    if lock is None:
        return 0
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(options.server, options.folder, options.token_file, events)
    if not link.acquire(stop):
        return 0
    driver = _Driver(options, link, events, stop)
    trouble, again = driver.run()
    if again and not stop.is_set():
        log.warning("the worker restarts itself", reason=trouble)
        _pause(stop)
    if again and not stop.is_set():
        lock.release()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  ourselves
    lock.release()
    return EXIT_FAILED if trouble and not stop.is_set() else 0


class _Driver:
    """One Spark driver from its start to its end."""

    def __init__(
        self, options: WorkerOptions, link: Link, events: "queue.SimpleQueue[Any]", stop: threading.Event
    ) -> None:
        self._options = options
        self._link = link
        self._events = events
        self._stop = stop
        self._spark: SparkSession | None = None
        self._owners: Owners | None = None
        self._supervisor: Supervisor | None = None

    def run(self) -> tuple[str, bool]:
        """Run pipelines until something ends that; returns what it was, and whether a new driver may help."""
        self._link.start(lambda: self._supervisor.reports() if self._supervisor is not None else {})
        trouble, again = "", False
        try:
            trouble = self._keep_running()
            again = bool(trouble)
        except ConfigError as error:
            trouble = str(error)
            log.error("no pipeline can run", reason=trouble)
            self._link.about = {"state": "cannot start"}
        except (SparkGone, MagnetarError, OSError) as error:
            trouble, again = str(error), True
        except Exception as error:
            log.exception("the worker failed")
            trouble, again = f"{type(error).__name__}: {error}"[:1000], True
        finally:
            self._close(trouble if not again else "")
        return trouble, again

    def _keep_running(self) -> str:
        """Why the lease was lost; empty if the user has asked for a stop."""
        setup.ensure_spark(self._announce)
        self._say("is starting Spark")
        began = time.monotonic()
        self._spark = session.start(
            APP_NAME,
            master=self._options.master,
            memory=self._options.memory,
            settings={**_scratch_settings(self._options.folder), **_jars(self._options.databases)},
        )
        _listen_to_signals(self._stop)  # Spark has set its own handlers
        log.info("Spark runs", version=self._spark.version, s=round(time.monotonic() - began, 1))
        lease = self._link.lease
        roots = TableRoots.of(lease.table_roots)
        folder, server = self._options.folder, self._options.server
        self._owners = Owners(
            server, folder, self._link.tokens, is_local=session.is_local(self._options.master)
        )
        queries = Queries(
            self._spark, folder, self._owners, server.url, lease.bootstrap, roots, self._options.databases
        )
        self._supervisor = Supervisor(queries, self._events, self._link.report_soon)
        self._say("runs", spark=self._spark.version, master=self._options.master)
        return self._supervisor.run(self._stop, self._link.trouble)

    def _close(self, trouble: str) -> None:
        """Let go of everything, in such an order that no other worker can begin before this one has ended.

        Without the lease there is only time to end the JVM.
        """
        reports, in_peace = None, not self._link.trouble()
        if self._supervisor is not None and in_peace:
            self._supervisor.close()
            reports = self._supervisor.reports()
        if self._spark is not None:
            stop_spark(self._spark, in_peace=in_peace)
        if self._owners is not None:
            self._owners.close()
        self._link.close(reports, trouble)

    def _say(self, state: str, **more: str) -> None:
        self._link.about = {"state": state, **more}
        self._link.report_soon()

    def _announce(self, line: str) -> None:
        log.info(line)
        self._link.about = {"state": "is installing Spark", "progress": line.strip()}


def _scratch_settings(folder: Path) -> dict[str, str]:
    """Spark's settings for its temporary files: they are in a folder that this process empties, because a killed JVM
    cannot.  There are no settings if the path is too long for the sockets in the folder.
    """
    scratch = folder / SCRATCH
    if len(os.fsencode(scratch)) > _SCRATCH_BYTES_MAX:
        return {}
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    java_options = f'{session.SETTINGS[session.JAVA_OPTIONS]} "-Djava.io.tmpdir={scratch}"'
    return {"spark.local.dir": str(scratch), session.JAVA_OPTIONS: java_options}


def _jars(databases: Databases) -> dict[str, str]:
    """Spark's setting for the drivers of databases."""
    jars = databases.jars()
    return {"spark.jars": ",".join(jars)} if jars else {}


def stop_spark(spark: "SparkSession", *, in_peace: bool = True) -> None:
    """Stop the session and its JVM.  A JVM that does not stop is killed; without `in_peace` it is killed at once."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if in_peace:
        stopping = threading.Thread(target=_stop_session, args=(spark,), daemon=True)
        stopping.start()
        stopping.join(STOP_SPARK_S_MAX)
    if process is None:
        return
    if not in_peace:
        process.kill()
    with suppress(OSError):
        process.stdin.close()  # so that the JVM ends as if this process had ended
    try:
        process.wait(STOP_SPARK_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stop_session(spark: "SparkSession") -> None:
    with suppress(Exception):  # the JVM may be gone
        spark.stop()


def _lock(folder: Path, stop: threading.Event) -> DirectoryLock | None:
    """Wait for the folder's lock; None if the user has asked for a stop before.  Two workers cannot share
    checkpoints.
    """
    said = False
    while not stop.is_set():
        try:
            return DirectoryLock(folder / "worker.lock", "pipelines folder")
        except ConfigError as error:
            if not said:
                log.warning(f"another worker uses this folder, and this worker waits: {error}")
                said = True
        stop.wait(_LOOK_EVERY_S)
    return None


def _listen_to_signals(stop: threading.Event) -> None:
    def asked(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)


def _end_with_input(stop: threading.Event, hurry: Callable[[int], None] = os._exit) -> None:
    """Stop quickly when the other end of standard input closes."""
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 1024):
            pass
    log.warning("the server of this worker has ended: the worker ends, too")
    stop.set()
    time.sleep(STOP_SPARK_S_MAX)
    hurry(EXIT_FAILED)


def _pause(stop: threading.Event) -> None:
    """Pause; longer each time that this comes soon after the last."""
    count, _, at = os.environ.get(_AGAIN, "0 0").partition(" ")
    soon = time.time() - float(at or 0) < _CALM_S
    again = int(count) + 1 if soon else 0
    os.environ[_AGAIN] = f"{again} {time.time():.0f}"
    stop.wait(min(2.0**again - 1, _AGAIN_S_MAX))
