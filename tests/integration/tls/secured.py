"""A server with TLS at both doors, as a user configures one, and clients' settings for it."""

import os
import socket
import ssl
from pathlib import Path

from magnetar.testing.certificates import Authority, Issued
from magnetar.testing.server import MagnetarProcess, free_ports

HOSTS = ["localhost", "127.0.0.1"]


class Secured:
    """Kafka at `plain`, at `ssl`, and at `mutual`, which wants certificates of clients; Pulsar at `pulsar`."""

    server: MagnetarProcess

    def __init__(self, authority: Authority, **settings: str) -> None:
        self.authority = authority
        self.plain, self.ssl, self.mutual, self.pulsar = free_ports(4)
        self.issued = authority.issue("server", hosts=HOSTS)
        listeners = {"PLAINTEXT": self.plain, "SSL": self.ssl, "MUTUAL": self.mutual}
        self.settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": "MUTUAL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.issued.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "message.max.bytes": str(8 << 20),
            "group.initial.rebalance.delay.ms": "0",
            "brokerServicePortTls": str(self.pulsar),
            "tlsCertificateFilePath": str(self.issued.certificate),
            "tlsKeyFilePath": str(self.issued.key),
            "tlsTrustCertsFilePath": str(authority.certificate),
            **settings,
        }

    @property
    def pulsar_url(self) -> str:
        return f"pulsar+ssl://localhost:{self.pulsar}"

    def confluent(self, port: int, issued: Issued | None = None, **more: str) -> dict[str, str]:
        """What librdkafka is told."""
        own = {}
        if issued is not None:
            own = {"ssl.key.location": str(issued.key), "ssl.certificate.location": str(issued.certificate)}
        return {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.certificate),
            **own,
            **more,
        }

    def context(self, issued: Issued | None = None) -> ssl.SSLContext:
        """What Python's clients are told."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if issued is not None:
            context.load_cert_chain(issued.both)
        return context

    def connect(self, port: int, issued: Issued | None = None) -> ssl.SSLSocket:
        """A client of a test's own."""
        bare = socket.create_connection(("127.0.0.1", port), timeout=20)
        return self.context(issued).wrap_socket(bare, server_hostname="localhost")


def open_sockets(server: MagnetarProcess) -> int:
    """Of its open files those alone: it may still be making files for its journal."""
    return sum(_is_socket(one) for one in Path(f"/proc/{server.pid}/fd").iterdir())


def _is_socket(descriptor: Path) -> bool:
    try:
        return os.readlink(descriptor).startswith("socket:")
    except FileNotFoundError:
        return False  # closed meanwhile
