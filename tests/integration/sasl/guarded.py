"""A server whose clients have to log in, as a user configures one, and clients' settings for it."""

from typing import Any

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, free_ports

USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret"'
    ' user_admin="admin-secret" user_alice="alice-secret";'
)


class Guarded:
    """Kafka at `plain` without a login, at `sasl` and, with TLS, at `sasl_ssl`."""

    server: MagnetarProcess

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.plain, self.sasl, self.sasl_ssl = free_ports(3)
        listeners = {"PLAINTEXT": self.plain, "SASL_PLAINTEXT": self.sasl, "SASL_SSL": self.sasl_ssl}
        self.settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("server", hosts=["localhost", "127.0.0.1"]).both),
            "group.initial.rebalance.delay.ms": "0",
        }

    def confluent(
        self, user: str, password: str, mechanism: str = "PLAIN", *, tls: bool = False
    ) -> dict[str, Any]:
        """What librdkafka is told."""
        return {
            "bootstrap.servers": f"localhost:{self.sasl_ssl if tls else self.sasl}",
            "security.protocol": "sasl_ssl" if tls else "sasl_plaintext",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def python(self, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, Any]:
        """What kafka-python and aiokafka are told."""
        return {
            "bootstrap_servers": f"localhost:{self.sasl}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
