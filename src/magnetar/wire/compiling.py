"""Modules that numba compiles when they are imported: made once, kept, and loaded while others work on.

Compiling takes ten seconds on a machine that has never done it, loading what was compiled half of one.  A thread has
a child process compile, at low priority, because numba would hold the interpreter for tenths of a second at a time;
then it loads the result.  Meanwhile plain Python does the work.  Where numba is not installed (the extra `fast`), one
line in the log says so when compiled code is first wanted, and plain Python goes on doing the work.

The compiled code is kept in a folder named by its sources, below their package's `__pycache__`.  If that cannot be
written, it is in the user's cache; `NUMBA_CACHE_DIR` overrides both.  Without any of them each process compiles for
itself.
"""

import fcntl
import functools
import hashlib
import importlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final

log = logging.getLogger(__name__)

_BACKGROUND_NICENESS: Final = 5
_COMPILE: Final = """
import importlib, os, sys, threading
os.nice(int(sys.argv[1]))
def end_with_parent():
    sys.stdin.read()  # the other end of the pipe closes, however the parent ends
    os._exit(1)
threading.Thread(target=end_with_parent, daemon=True).start()
for name in sys.argv[2:]:
    importlib.import_module(name)
"""
_NOT_INSTALLED: Final = (
    "numba is not installed: plain Python converts between the protocols and looks into large batches, many times"
    " slower (pip install 'magnetar[fast]')"
)
_import_lock: Final = threading.Lock()  # where numba keeps compiled code is one setting for the whole process


@functools.cache
def _can_compile() -> bool:
    """Whether numba is installed; the first answer that it is not is a line in the log."""
    installed = find_spec("numba") is not None
    if not installed:
        log.warning(_NOT_INSTALLED)
    return installed


class CompiledModules:
    """Some modules of one package, loaded once, on a thread of their own.

    home     a file beside which they are kept
    names    of the modules
    sources  files whose change makes other code of them, from `home`'s folder
    loss     what to log when they cannot be had
    """

    def __init__(self, home: str, names: Sequence[str], sources: Sequence[str], loss: str) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.finished = threading.Event()
        self._home = Path(home)
        self._names = tuple(names)
        self._sources = tuple(sources)
        self._loss = loss
        self._begin = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        return bool(self.modules)

    def start(self, niceness: int = _BACKGROUND_NICENESS) -> None:
        """Begin to load, unless that was done; returns at once."""
        if not self._begin.acquire(blocking=False):
            return
        if _can_compile():
            threading.Thread(
                target=self._load, args=(niceness,), name="magnetar-compile", daemon=True
            ).start()
        else:
            self.finished.set()

    def begin(self) -> None:
        """Load now what was compiled earlier, which takes a third of a second; else begin to compile, and return."""
        if not self._begin.locked() and not self.load_kept():
            self.start()

    def load(self, timeout_s: float | None = None) -> bool:
        """Load and wait for that; whether it could be done.  Not for the event loop."""
        self.start(niceness=0)
        self.finished.wait(timeout_s)
        return self.is_loaded

    def load_kept(self) -> bool:
        """Load what was compiled earlier, on this very thread: for processes that fork.  False when there is none."""
        folder = self.folder()
        if folder is None or not self._marker(folder).exists() or not self._begin.acquire(blocking=False):
            return self.is_loaded
        try:
            if _can_compile():
                self._import(folder)
        except Exception:
            log.exception("%s", self._loss)
        finally:
            self.finished.set()
        return self.is_loaded

    def folder(self) -> str | None:
        """Where compiled code is kept; None when nothing can be written."""
        given = os.environ.get("NUMBA_CACHE_DIR")
        if given:
            return given
        for folder in (self._home.parent / "__pycache__", Path(os.path.expanduser("~/.cache/magnetar"))):
            cache = folder / f"compiled-{self._digest()}"
            try:
                cache.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(cache, os.W_OK):
                return str(cache)
        return None

    def _digest(self) -> str:
        sources = b"".join((self._home.parent / name).read_bytes() for name in self._sources)
        return hashlib.sha256(sources).hexdigest()[:16]

    def _marker(self, folder: str) -> Path:
        """A file that is there when everything in the folder is."""
        return Path(folder) / f"{self._digest()}.complete"

    def _load(self, niceness: int) -> None:
        with ExitStack() as cleanup:
            cleanup.callback(self.finished.set)
            try:
                folder = self.folder() or cleanup.enter_context(TemporaryDirectory(prefix="magnetar-"))
                self._compile(folder, niceness)
                self._import(folder)
            except Exception:
                log.exception("%s", self._loss)

    def _compile(self, folder: str, niceness: int) -> None:
        """Fill the folder, unless it is full; what goes wrong shows, and is said, when the result is loaded.

        One process does it, and others that start at the same time wait.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        marker = self._marker(folder)
        with (Path(folder) / "magnetar.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # given up by the kernel, however this process ends
            if marker.exists():
                return
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", _COMPILE, str(niceness), *self._names]
            with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as child:  # noqa: S603  all ours
                child.wait()
            if child.returncode == 0:
                marker.touch()

    def _import(self, folder: str) -> None:
        import numba

        with _import_lock:
            setattr(numba.config, "CACHE_DIR", folder)  # noqa: B010  its module declares none
            self.modules = {name.rpartition(".")[2]: importlib.import_module(name) for name in self._names}
