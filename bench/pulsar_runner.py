"""Pulsar's own runner of Python functions: the program that `pulsar-admin functions localrun` starts for an instance.

It comes with Pulsar's distribution, which the peers' script has.  It runs here with the packages of this environment,
so both runners have the same `pulsar-client`.  It is a client, and works at any server.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import process, servers
from bench.machine import PULSAR_VERSION
from bench.process import RunFailed
from bench.pulsar_client import Addresses
from magnetar.testing.server import free_ports

INSTALL_SECONDS_MAX = 900.0
STOP_SECONDS_MAX = 30.0
QUEUED_MAX = 1024  # as the functions worker has it


class PulsarRunner:
    """`script` is the peers' `pulsar`."""

    def __init__(self, script: Path) -> None:
        self._script = script

    @contextlib.contextmanager
    def running(
        self, where: Addresses, code: Path, class_name: str, source: str, target: str, folder: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A function of `code` that reads `source` from its beginning and writes `target`, for the time of the block.

        RunFailed when the distribution has no such runner.
        """
        process.run([self._script, "install"], seconds_max=INSTALL_SECONDS_MAX)
        distribution = servers.peers_home() / f"apache-pulsar-{PULSAR_VERSION}"
        program = distribution / "instances" / "python-instance" / "python_instance_main.py"
        if not program.exists():
            raise RunFailed(f"Apache Pulsar {PULSAR_VERSION} has no runner of Python functions here")
        folder.mkdir(parents=True, exist_ok=True)
        port, metrics_port = free_ports(2)
        options: dict[str, object] = {
            "py": code,
            "function_details": json.dumps(details(class_name, source, target)),
            "instance_id": 0,
            "function_id": "bench",
            "function_version": "bench",
            "pulsar_serviceurl": where.pulsar,
            "port": port,
            "metrics_port": metrics_port,
            "max_buffered_tuples": QUEUED_MAX,
            "logging_directory": folder,
            "logging_file": "function",
            "logging_config_file": distribution / "conf" / "functions-logging" / "logging_config.ini",
            "expected_healthcheck_interval": -1,  # there is no worker that asks for its health
            "cluster_name": "standalone",
        }
        command = [sys.executable, str(program)]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        with (
            (folder / "runner.log").open("ab") as log,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            ) as running,
        ):
            try:
                yield running
            finally:
                process.end(running, grace_seconds=STOP_SECONDS_MAX)


def details(class_name: str, source: str, target: str) -> dict[str, object]:
    """What the runner is told of a function (`Function.proto`, FunctionDetails), uncompressed as Magnetar's outputs."""
    return {
        "tenant": "public",
        "namespace": "default",
        "name": target,
        "className": class_name,
        "runtime": "PYTHON",
        "processingGuarantees": "ATLEAST_ONCE",
        "autoAck": True,
        "parallelism": 1,
        "source": {
            "inputSpecs": {f"persistent://public/default/{source}": {}},
            "subscriptionType": "SHARED",
            "subscriptionPosition": "EARLIEST",
        },
        "sink": {
            "topic": f"persistent://public/default/{target}",
            "producerSpec": {"compressionType": "NONE"},
        },
        "componentType": "FUNCTION",
    }
