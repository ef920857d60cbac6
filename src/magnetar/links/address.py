"""The address of a source: `kafka://host:9092,other:9092`, or `pulsar://host:6650/tenant/namespace/topic`.

Pulsar's may leave out the topic: then it means topics of the namespace.
"""

import re
from typing import Final, NamedTuple

from magnetar.base.errors import BrokerError, ConfigError
from magnetar.base.names import PARTITION_SEPARATOR, check_named_entity, parse_partition

_KAFKA: Final = "kafka"
_PULSAR: Final = ("pulsar", "pulsar+ssl")
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_CHARS_MAX: Final = 1000


class KafkaAddress(NamedTuple):
    """`servers` is `host:port,...`."""

    servers: str


class PulsarAddress(NamedTuple):
    """`servers` are (host, port); `topic` is the local name, empty for topics of the namespace."""

    servers: tuple[tuple[str, int], ...]
    with_tls: bool
    tenant: str
    namespace: str
    topic: str

    @property
    def origin(self) -> str:
        """The servers and the namespace, in one spelling."""
        servers = ",".join(f"{host}:{port}" for host, port in self.servers)
        return f"{_PULSAR[self.with_tls]}://{servers}/{self.tenant}/{self.namespace}"


def address_of(text: str) -> KafkaAddress | PulsarAddress:
    """What an address means.

    Raises:
        ConfigError: it is no address of a source.
    """
    scheme, _, rest = text.partition("://")
    hosts, _, path = rest.partition("/")
    if "@" in hosts:  # the address is stored and shown
        raise ConfigError("the source's address has a user in it: give the login in a file (--source-config)")
    is_good = len(text) <= _CHARS_MAX and all(_HOST.fullmatch(one) for one in hosts.split(","))
    if is_good and scheme == _KAFKA and not path:
        return KafkaAddress(hosts)
    if is_good and scheme in _PULSAR:
        parts = path.rstrip("/").split("/")
        if 2 <= len(parts) <= 3:
            return _pulsar_address(text, scheme, hosts, *parts)
    raise ConfigError(
        f"{text[:200]!r} is no source: it looks like kafka://host:9092, or pulsar://host:6650/tenant/namespace/topic"
    )


def _pulsar_address(
    text: str, scheme: str, hosts: str, tenant: str, namespace: str, topic: str = ""
) -> PulsarAddress:
    try:
        check_named_entity("tenant", tenant)
        check_named_entity("namespace", namespace)
        if topic and parse_partition(f"persistent://{tenant}/{namespace}/{topic}")[1] >= 0:
            raise ConfigError(
                f"{topic[:200]!r} is a partition: leave out {PARTITION_SEPARATOR}N to copy the topic"
            )
    except BrokerError as error:
        raise ConfigError(f"{text[:200]!r} is no source: {error}") from None
    servers = tuple(
        (host.strip("[]"), int(port)) for host, _, port in (one.rpartition(":") for one in hosts.split(","))
    )
    return PulsarAddress(servers, scheme == _PULSAR[1], tenant, namespace, topic)
