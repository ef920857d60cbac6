"""Spark as a client of either server: ours with the source `magnetar`, or the peers' with Kafka's own connector.

The peers' script `spark-kafka` keeps a PySpark of its own with the connector's jars.  A job runs in a process group of
its own, which is ended whole when it takes too long: Spark's Python workers would outlive its JVM.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.process import RunFailed
from bench.pulsar_client import Addresses
from bench.servers import KAFKA, MAGNETAR, Server

JOBS = Path(__file__).with_name("jobs") / "spark_jobs.py"
SPARK_KAFKA = "spark-kafka"
RUN_SECONDS_MAX = 600.0
INSTALL_SECONDS_MAX = 900.0
RESULT = "RESULT "


class SparkJobs:
    """`script` is the peers' `spark-kafka`; without it there is nothing to compare with."""

    def __init__(self, script: Path | None) -> None:
        self.script = script

    def run(self, what: str, server: Server, topic: str, *arguments: object) -> list[dict[str, Any]]:
        """The results of one job (spark_jobs.py) on `topic`, in their order."""
        if server.name == MAGNETAR:
            command, http = [sys.executable, str(JOBS)], _http(server)
        elif server.name == KAFKA and self.script is not None:
            _finish([str(self.script), "install"], INSTALL_SECONDS_MAX)
            command, http = [str(self.script), "python", str(JOBS)], ""
        else:
            raise RunFailed(f"the peers' {SPARK_KAFKA} script is not here, and with it Kafka's connector")
        words = [what, server.name, server.bootstrap, http, topic, *map(str, arguments)]
        output = _finish([*command, *words], RUN_SECONDS_MAX)
        lines = [line.removeprefix(RESULT) for line in output.splitlines() if line.startswith(RESULT)]
        if not lines:
            raise RunFailed(f"Spark's {what} ended without a result: {' | '.join(output.splitlines()[-3:])}")
        return [json.loads(line) for line in lines]


def _http(server: Server) -> str:
    found = getattr(server, "pulsar", None)
    assert isinstance(found, Addresses)
    return found.http


def _finish(command: list[str], seconds_max: float) -> str:
    """Its output once it has ended well; RunFailed otherwise."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"Spark was not done within {seconds_max:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        tail = " | ".join(output.strip().splitlines()[-3:])
        raise RunFailed(f"{Path(command[0]).name} ended with {process.returncode}: {tail}")
    return output
