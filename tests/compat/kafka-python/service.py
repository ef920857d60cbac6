"""Stands in for the suite's module that starts brokers (`suite_kafka_python.py` copies it there).

Most tests run against a broker that is there.  Those of SASL and SSL have a file of settings filled in and start one by
it: here that is a Magnetar with those settings.  The users of SCRAM, which Kafka's storage tool would have written
before the first start, are made over a listener of this module's own.
"""

import os
import re
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from magnetar.testing.server import MagnetarProcess, free_ports

TIMEOUT_S = 20.0
USER = re.compile(r"SCRAM-SHA-(?P<bits>256|512)=\[name=(?P<name>[^,]*),password=(?P<password>[^]]*)\]")
MECHANISMS = {"256": ScramMechanism.SCRAM_SHA_256, "512": ScramMechanism.SCRAM_SHA_512}


class ExternalService:
    """One that is there."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """Nothing is to be done."""

    close = stop = dump_logs = open

    def wait_for(self, pattern: str, timeout: float = 30) -> bool:
        """Whether it has said so: it has."""
        return True


class SpawnedService:
    """`arguments` end in the file of settings."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        file = Path(arguments[-1])
        pairs = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
        settings = {key: value for key, _, value in pairs if value and not key.startswith("#")}
        (self._port,) = free_ports(1)
        settings["listeners"] += f",SETUP://127.0.0.1:{self._port}"
        settings["listener.security.protocol.map"] = "SETUP:PLAINTEXT"
        self._users = USER.findall(Path(f"{file}.format").read_text())
        self._server = MagnetarProcess(settings=settings, log_file=Path(os.environ["KAFKA_SERVER_LOG"]))

    def start(self) -> None:
        """Have it running, with its users."""
        self._server.start()
        if self._users:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self._port}"})
            made = admin.alter_user_scram_credentials(
                [
                    UserScramCredentialUpsertion(
                        name, ScramCredentialInfo(MECHANISMS[bits], 4096), password.encode()
                    )
                    for bits, name, password in self._users
                ]
            )
            for one in made.values():
                one.result(TIMEOUT_S)

    def stop(self) -> None:
        """End it."""
        self._server.close()

    def dump_logs(self) -> None:
        """They are in a file."""

    def wait_for(self, pattern: str, timeout: float = 30) -> bool:
        """Whether it has said so: it is running."""
        return self._server.running
