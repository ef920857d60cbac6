"""The process that forks the Python workers of tasks: `spark.python.daemon.module`, which Spark runs by `python -m`.

It is Spark's own daemon with three changes, two of which make the first read of a session some seconds faster:

* Spark puts its `pyspark.zip` first on the path of these processes.  The zip has no compiled code, so each process
compiles all of pyspark again.  If the same pyspark is installed as a package, its zip is left out.
* What a worker imports is imported once here, before the fork, and so is the compiled codec if it was compiled before.
  Spark imports after the fork because pandas and pyarrow start threads; those are idle (allocators', BLAS's) and make
  themselves anew in the child.  If that should ever be wrong on some machine, `MAGNETAR_PRELOAD=0` in the executors'
  environment turns it off.
* A worker whose task was cancelled ends without a traceback on the terminal: that Spark does not read its answer is no
  news.

The processes that plan reads and commit writes are forked by Spark's own daemon, which cannot be replaced.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

PRELOAD_VARIABLE: Final = "MAGNETAR_PRELOAD"

# The modules that every worker needs for rows, then those of our source and sink.
_ALWAYS: Final = ("numpy", "pyarrow", "pandas")
_OURS: Final = (
    "magnetar.pipelines.connector.columns",
    "magnetar.pipelines.connector.read.datasource",
    "magnetar.pipelines.connector.read.reader",
    "magnetar.pipelines.connector.read.stream",
    "magnetar.pipelines.connector.write.batch",
    "magnetar.pipelines.connector.write.stream",
    "magnetar.pipelines.kinds.replicator.sink",
    "magnetar.pipelines.kinds.table.sink",
    "magnetar.pipelines.values.decoding",
)


def main() -> None:
    sys.path[:] = without_zip(sys.path)
    if os.environ.get(PRELOAD_VARIABLE, "1") != "0":
        preload(sys.argv[1:2])
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)
    daemon.manager()


def quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """`worker`, but it returns 1 instead of raising if the other end of its connection is gone."""

    def serve(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except ConnectionError:
            return 1

    return serve


def without_zip(path: list[str]) -> list[str]:
    """`path` without Spark's zip of pyspark, if the package to which the zip belongs is on `path`, too.

    A zip of another installation stays: the workers must run the version that the JVM runs.
    """
    zips = [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]
    rest = [entry for entry in path if entry not in zips]
    installed = PathFinder.find_spec("pyspark", rest) if zips else None
    if installed is None or installed.origin is None:
        return path
    package = Path(installed.origin).resolve().parent
    if all(package in Path(entry).resolve().parents for entry in zips):
        return rest
    return path


def preload(worker_modules: list[str]) -> None:
    """Import modules that the workers need; a missing one is left out, because the workers report it themselves."""
    for name in (*_ALWAYS, *worker_modules, *_OURS):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        from magnetar.wire.columns import engine

        engine.load_kept()
    # These objects live until the end: each worker's collector need not look at them, which would copy their pages.
    gc.freeze()


if __name__ == "__main__":
    main()
