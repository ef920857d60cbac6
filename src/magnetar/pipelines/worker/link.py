"""The worker's calls to its server: the lease, the orders, the reports.

Two threads make them, one waits for orders and one reports, so that neither delays the other; the server counts both
as signs of life.  They put what they learn into a queue; other code decides.

A lease is lost when the server says so, and also when the worker has not reached the server for two thirds of the
lease.  By its end the worker must have stopped everything, because another worker may begin then.
"""

import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from magnetar.base.error_codes import WORKER_FENCED
from magnetar.base.errors import ConfigError
from magnetar.base.logging import get_logger
from magnetar.base.worker_token import read_token
from magnetar.client.errors import ClientError, Refused
from magnetar.client.login import Login, Server
from magnetar.client.pipelines import Lease, Pipeline, PipelinesClient

log = get_logger(__name__)

ANSWER_S: Final = 8.0
WAIT_MS: Final = 4000  # for orders
REPORT_EVERY_S: Final = 2.0
_REPORTED_AT_ONCE: Final = 50  # because the server limits the size of a request
_PAUSE_S: Final = 0.5
_LEASE_EVERY_S: Final = 1.0
_SILENCE_SHARE: Final = 2 / 3

Reports = Mapping[str, Mapping[str, Any]]


class Link:
    """See the module's text.  `events` gets a list of pipelines whenever the orders change; the server recognises
    this worker by the content of `token_file`.
    """

    def __init__(
        self, server: Server, folder: Path, token_file: Path, events: "queue.SimpleQueue[Any]"
    ) -> None:
        """Raises ConfigError: the server's context cannot be used."""
        self.url = server.url
        self.worker = uuid.uuid4().hex
        self.about: dict[str, Any] = {}  # what the worker does, for users; replaced as a whole
        login = Login(ca=server.login().ca)  # the worker sends its own token
        self._client = PipelinesClient(server.url, read_s=ANSWER_S, retry_s=0.0, login=login)
        self._host = socket.gethostname()
        self._place = f"{self._host}:{folder.resolve()}"
        self._token_file = token_file
        self._events = events
        self._lease: Lease | None = None
        self._heard_at = 0.0
        self._fenced = False
        self._stop = threading.Event()
        self._report_now = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def lease(self) -> Lease:
        assert self._lease is not None, "the lease was not asked for"
        return self._lease

    def acquire(self, stop: threading.Event) -> bool:
        """Wait until the server has accepted this worker; false if `stop` was set before that."""
        said = ""
        while not stop.is_set():
            try:
                # Read each time, because the server, or a copy of the file, may come later.
                self._client.identify(read_token(self._token_file))
                lease = self._client.take_lease(self.worker, self._host, os.getpid(), self._place)
                trouble = "another worker runs the pipelines: waiting until it ends"
            except (ClientError, ConfigError) as error:
                lease, trouble = None, f"{error}: trying again"
            if lease is not None:
                self._lease, self._heard_at = lease, time.monotonic()
                log.info("the server has accepted this worker", epoch=lease.epoch, server=self.url)
                return True
            if trouble != said:
                log.warning(trouble)
                said = trouble
            stop.wait(_LEASE_EVERY_S)
        return False

    def start(self, snapshot: Callable[[], Reports]) -> None:
        """Begin to wait for orders, and to report what `snapshot` returns."""
        self._threads += [
            threading.Thread(target=self._wait_for_orders, name="orders", daemon=True),
            threading.Thread(target=self._keep_reporting, args=(snapshot,), name="reports", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def tokens(self, names: Sequence[str]) -> tuple[Mapping[str, str], float]:
        """Tokens with which queries of these pipelines act for their owners, and for how many seconds.  Raises
        ClientError.
        """
        return self._client.tokens(self.worker, self.lease.epoch, names)

    def report_soon(self) -> None:
        """Send a report soon, because a change has come for which users wait."""
        self._report_now.set()

    def trouble(self) -> str:
        """Why the lease counts as lost; empty while the worker holds it."""
        if self._fenced:
            return "another worker has taken over"
        silent_s = time.monotonic() - self._heard_at
        if silent_s > self.lease.lease_s * _SILENCE_SHARE:
            return f"the server at {self.url} has not answered for {silent_s:.0f} s"
        return ""

    def close(self, reports: Reports | None = None, trouble: str = "") -> None:
        """Send the last report, give the lease back, and end the threads."""
        self._stop.set()
        self._report_now.set()
        lease = self._lease
        if lease is not None and not self.trouble():
            try:
                self._client.report(self.worker, lease.epoch, reports or {}, self.about, trouble)
                self._client.end(self.worker, lease.epoch)
            except ClientError as error:
                log.warning("this worker could not tell the server that it ends", error=error)
        for thread in self._threads:
            thread.join(ANSWER_S)
        self._client.close()

    # inside

    def _wait_for_orders(self) -> None:
        version = ""
        while not self._stop.is_set():
            found: list[Pipeline] | None = None
            asked_at = time.monotonic()
            try:
                version, found = self._client.orders(self.worker, self.lease.epoch, version, WAIT_MS)
            except ClientError as error:
                self._heard(error)
                self._stop.wait(_PAUSE_S)
                continue
            self._heard_at = max(self._heard_at, asked_at)
            if found is not None:
                self._events.put(found)

    def _keep_reporting(self, snapshot: Callable[[], Reports]) -> None:
        while not self._stop.is_set():
            self._report_now.wait(REPORT_EVERY_S)
            self._report_now.clear()
            if self._stop.is_set():
                return
            asked_at = time.monotonic()
            rows = list(snapshot().items())
            try:
                for first in range(0, max(len(rows), 1), _REPORTED_AT_ONCE):
                    part = dict(rows[first : first + _REPORTED_AT_ONCE])
                    self._client.report(self.worker, self.lease.epoch, part, self.about)
            except ClientError as error:
                self._heard(error)
                self._stop.wait(_PAUSE_S)
                continue
            self._heard_at = max(self._heard_at, asked_at)

    def _heard(self, error: ClientError) -> None:
        """A call failed: the worker is fenced, the server refused for another reason, or the call did not reach it."""
        if isinstance(error, Refused) and error.code == WORKER_FENCED:
            self._fenced = True
            self._stop.set()
        elif isinstance(error, Refused):
            log.error("the server refuses a request of this worker", error=error)
