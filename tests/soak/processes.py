"""A client in a process of its own, which is killed and begun again, and says line by line what it does."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.crash.server.killing import REPOSITORY
from tests.soak.mixed_history import Broken

STOP_S = 60.0
READY_S = 600.0  # for a start of the server: the machine may be busy


class Process:
    """One client, however many processes it has been; `note` gets each whole line that one of them prints."""

    def __init__(self, kind: str, command: Sequence[str], note: Callable[[str], None], log: Path) -> None:
        self.kind = kind
        self._command = command
        self._note = note
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # a client in Java has a shell, or Python, above it: they die together
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                self._note(line)

    def check(self) -> None:
        """It has not ended by itself.  Raises Broken."""
        code = self._process.poll()
        if code == -signal.SIGABRT:
            # As good as killed: librdkafka ends itself now and then when the coordinator's connection is cut, by
            # "rd_kafka_txn_handle_AddPartitionsToTxn: Assertion `rk->rk_eos.txn_req_cnt > 0' failed".
            self.again()
        elif code is not None:
            raise Broken(f"the client {self.kind} has ended with {code}: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        self._signal_all()
        self._gone()

    def _signal_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # all of them have ended
            os.killpg(self._process.pid, signal.SIGKILL)

    def again(self) -> None:
        self.kill()
        self._start()

    def stop(self) -> None:
        """Let it finish what it does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._signal_all()
        self._gone()

    def _gone(self) -> None:
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
