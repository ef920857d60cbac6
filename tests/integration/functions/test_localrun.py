"""`pulsar-admin functions localrun`: Pulsar's own runner of a function, on the user's machine, at a server of ours."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.functions.worker import CODE, Worker, client_of, texts
from tests.integration.java_tools import needs_java
from tests.peers import installed

pytestmark = [*needs_java, pytest.mark.timeout(600)]


@contextmanager
def locally(worker: Worker, folder: Path, *words: str) -> Iterator[None]:
    """A function that `localrun` runs, told by these words, for the time of a block."""
    where = {
        "PULSAR_ADMIN_URL": worker.server.http_url,
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_MEM": "-Xmx128m",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # its python3 needs pulsar-client
    }
    command = [installed("pulsar"), "admin", "functions", "localrun", *words]
    command += ["--broker-service-url", worker.server.pulsar_url]
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            command,
            env={**os.environ, **where},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            print((folder / "said").read_text()[-5000:])  # pytest shows it of a test that fails


def test_pulsars_own_runner_works_at_this_server(worker: Worker, tmp_path: Path) -> None:
    words = ["--py", str(CODE / "exclamation.py"), "--classname", "exclamation.Exclamation"]
    words += ["--tenant", "public", "--namespace", "default", "--name", "local"]
    words += ["--inputs", "local-in", "--output", "local-out", "--subs-position", "Earliest"]
    with client_of(worker.server) as client:
        output = client.subscribe("local-out", "s")
        producer = client.create_producer("local-in")
        producer.send(b"hello")
        with locally(worker, tmp_path, *words):
            assert texts(output, 1) == ["hello!"]
            producer.send(b"again")
            assert texts(output, 1) == ["again!"]
    assert "local" not in worker.names()  # it runs without asking the server
