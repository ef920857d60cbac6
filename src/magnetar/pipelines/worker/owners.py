"""How a pipeline's query logs in as its owner: by a context of its own, whose token the worker replaces in time.

Spark's plans, logs and checkpoints contain the name of the context's file, and nothing of its contents.  If processes
of this machine run the query, the worker keeps the files in memory (/dev/shm).  If a cluster runs it, the worker keeps
them in the folder of checkpoints, which the cluster's machines share.  Only this account can read them, and the worker
deletes them when it ends.  If the worker was killed, the next worker deletes them; their tokens have expired by then.

Beside the token is a file for what else only a pipeline's own processes may read; its kind writes it.

The id of a pipeline names its files, so a later pipeline of the same name never shares connections that Spark made with
them.
"""

import hashlib
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from magnetar.base.contexts import Context, Contexts, find_context, write_contexts
from magnetar.base.logging import get_logger
from magnetar.base.private import write_secret
from magnetar.client.errors import ClientError
from magnetar.client.login import Server
from magnetar.client.pipelines import Pipeline

log = get_logger(__name__)

IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  its own folder in there, which no other account can enter
SHARED: Final = ".owners"  # no pipeline's name begins with a dot
_NAME: Final = "magnetar-worker"
_RENEW_SHARE: Final = 1 / 3  # of a token's validity
_PAUSE_S: Final = 2.0

# Returns tokens for the pipelines with these names, and for how many seconds they are valid.  Raises ClientError.
Ask = Callable[[Sequence[str]], tuple[Mapping[str, str], float]]


class Owners:
    """See the module's text.  `folder` is the folder of checkpoints, and no other worker uses it now; `is_local`: this
    machine runs all queries.
    """

    def __init__(self, server: Server, folder: Path, ask: Ask, *, is_local: bool) -> None:
        """Raises ConfigError, OSError."""
        found = find_context(server.context, os.environ) if server.context else None
        self._url = server.url
        self._ca = "" if found is None else found.ca
        self._ask = ask
        self._held: dict[str, str] = {}  # the names of pipelines whose queries run, by id
        self._uses: Counter[str] = Counter()  # a failed query may be released after the next one has begun
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._folder = _own_folder(folder, is_local=is_local)
        self._thread = threading.Thread(target=self._renew, name="owners", daemon=True)
        self._thread.start()

    def context_of(self, pipeline: Pipeline) -> str:
        """The file of a context with which a pipeline's query can log in to the server, until `let_go`.

        Raises:
            ClientError: the server gives no token.
            OSError
        """
        file, token, _ = self._files(pipeline.id)
        context = Context(self._url, self._ca, str(token))
        with self._lock:
            self._fetch({pipeline.id: pipeline.name})
            write_contexts(file, Contexts({pipeline.name: context}, pipeline.name))
            self._held[pipeline.id] = pipeline.name
            self._uses[pipeline.id] += 1
        return str(file)

    def private_file(self, pipeline: Pipeline) -> Path:
        """Where the pipeline's kind may keep secrets until `let_go`."""
        return self._files(pipeline.id)[2]

    def let_go(self, pipeline_id: str) -> None:
        """End one use by `context_of`: its query does not run any more."""
        with self._lock:
            self._uses[pipeline_id] -= 1
            if not self._uses[pipeline_id]:
                del self._uses[pipeline_id], self._held[pipeline_id]
                for file in self._files(pipeline_id):
                    file.unlink(missing_ok=True)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    # inside

    def _renew(self) -> None:
        pause_s, life_s = _PAUSE_S, 0.0
        while not self._stop.wait(pause_s):
            try:
                with self._lock:
                    life_s = self._fetch(self._held) if self._held else 0.0
            except (ClientError, OSError) as error:
                log.warning(
                    "the worker could not get new tokens of its pipelines' owners: it tries again",
                    error=error,
                )
                life_s = 0.0
            pause_s = max(_PAUSE_S, _RENEW_SHARE * life_s)

    def _fetch(self, wanted: Mapping[str, str]) -> float:
        """Write new tokens; return for how many seconds they are valid.  Raises ClientError, OSError."""
        tokens, life_s = self._ask(sorted(wanted.values()))
        for pipeline_id, name in wanted.items():
            if name in tokens:
                write_secret(self._files(pipeline_id)[1], tokens[name].encode())
        return life_s

    def _files(self, pipeline_id: str) -> tuple[Path, Path, Path]:
        """The file of a context, the file of its token, and the private one of the kind."""
        file, token, private = (
            self._folder / f"{pipeline_id}.{name}" for name in ("toml", "token", "private")
        )
        return file, token, private


def _own_folder(folder: Path, *, is_local: bool) -> Path:
    """Make a new folder for this account alone, and remove the folders of earlier workers that used `folder`."""
    shared = folder / SHARED
    _remove_all([shared])
    if is_local and IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK):
        place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
        prefix = f"{_NAME}-{os.geteuid()}-{place}-"
        _remove_all(one for one in IN_MEMORY.glob(f"{prefix}*") if one.lstat().st_uid == os.geteuid())
        return Path(tempfile.mkdtemp(prefix=prefix, dir=IN_MEMORY))
    shared.mkdir(mode=0o700)
    return shared


def _remove_all(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
