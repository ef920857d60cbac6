"""What clients of a server with `secure` need: its names in its certificate, and files of settings for the clients'
tools.

The files name the server by an address for clients on this machine.  Kafka's tools (`--command-config`), Pulsar's
(`PULSAR_CLIENT_CONF`) and `magnetar` (`--context`) read them without changes.
"""

import asyncio
import fcntl
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.contexts import Context, Contexts, contexts_text
from magnetar.base.listeners import LOCALHOST
from magnetar.base.settings import ServerSettings
from magnetar.base.settings_network import NetworkSettings, client_host
from magnetar.base.settings_secure import (
    ADMINISTRATOR,
    CA_FILE,
    FOLDER,
    TOKEN_FILE,
    WORKER_FILE,
)
from magnetar.broker.cluster.model import Endpoint, Nodes

RENEW_INTERVAL_S: Final = 3600.0

KAFKA_FILE: Final = "client.properties"
PULSAR_FILE: Final = "client.conf"
CONTEXT_FILE: Final = "context.toml"
CONTEXT: Final = "secure"  # the name of the context in that file

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TOKENS: Final = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_IPV4_OF: Final = 0x8915  # SIOCGIFADDR of Linux
_IPV6_TABLE: Final = Path("/proc/net/if_inet6")
_LINK_SCOPE: Final = "20"


class Security:
    """Keeps the security folder of a server up to date with its settings, its ports and the time."""

    def __init__(self, settings: ServerSettings, clock: Clock) -> None:
        """Create the files that the settings of `secure` name, if they are missing.  Raises ConfigError, OSError."""
        # These imports take a tenth of a second, and only servers with `secure` need them.
        from magnetar.server.security_folder import SecurityFolder

        self._network = settings.network
        self._made = SecurityFolder(settings.data_dir / FOLDER, server_names(settings.network), clock)
        self._made.prepare()

    def tell_clients(self, nodes: Nodes, pulsar: Endpoint | None, https_port: int) -> list[str]:
        """Write the files for clients, once the ports are known.  Returns lines that say where they are.  Raises
        OSError.
        """
        assert pulsar is not None, "the settings of `secure` have a port for it"
        folder = self._made.folder
        kafka = [node.advertised[self._network.listeners[0].name] for node in nodes.all]
        https = Endpoint(client_host(self._network.http_host), https_port)
        self._made.write(client_files(folder, self._made.token(), kafka, pulsar, https))
        return [
            f"login  Kafka's clients   {folder / KAFKA_FILE}",
            f"login  Pulsar's clients  {folder / PULSAR_FILE}",
            f"login  magnetar          --context {folder / CONTEXT_FILE}",
            f"login  all of them trust {folder / CA_FILE}",
        ]

    async def renew(self) -> None:
        """Replace the certificate if it will soon expire.  Raises ConfigError, OSError."""
        await asyncio.to_thread(self._made.renew)


def server_names(network: NetworkSettings) -> list[str]:
    """The names and addresses by which clients reach the server, for its certificate."""
    told = [host for host, _ in network.advertised.values()]
    told += network.pulsar.listeners.hosts
    told += [one for one in network.http_allowed_hosts if one != "*"]
    hosts = [network.http_host, *(one.host for one in network.listeners)]
    names = [LOCALHOST, "127.0.0.1", "::1", *told, network.pulsar.advertised_host, *hosts]
    if "" in hosts:
        names += [socket.gethostname(), *own_addresses()]
    return [one for one in dict.fromkeys(name.lower().rstrip(".") for name in names) if one]


def own_addresses() -> Iterator[str]:
    """The addresses of this machine's interfaces, without IPv6 addresses that are valid only on one link."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # the interface has no IPv4 address
                answer = fcntl.ioctl(asking, _IPV4_OF, struct.pack("256s", name.encode()[:15]))
                yield socket.inet_ntoa(answer[20:24])
    with suppress(OSError):
        for line in _IPV6_TABLE.read_text().splitlines():
            digits, _, _, scope, *_ = line.split()
            if scope != _LINK_SCOPE:
                yield str(IPv6Address(bytes.fromhex(digits)))


def client_files(
    folder: Path, token: str, kafka: Sequence[Endpoint], pulsar: Endpoint, https: Endpoint
) -> dict[str, str]:
    """The texts of the files, by name.  `token` is the administrator's; an empty host in an endpoint means this
    machine.
    """
    url = https.url("https", LOCALHOST)
    login = f'{_PLAIN} required username="{ADMINISTRATOR}" password="token:{token}";'
    ca, token_file = folder / CA_FILE, folder / TOKEN_FILE
    brokers = ",".join(one.url("", LOCALHOST).removeprefix("://") for one in kafka)
    return {
        KAFKA_FILE: _properties(
            "Kafka's clients: kafka-topics --bootstrap-server ... --command-config <this file>",
            {
                "bootstrap.servers": brokers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": login,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(ca),
            },
        ),
        PULSAR_FILE: _properties(
            "Pulsar's clients: PULSAR_CLIENT_CONF=<this file> pulsar-admin ...",
            {
                "webServiceUrl": f"{url}/",
                "brokerServiceUrl": f"{pulsar.url('pulsar+ssl', LOCALHOST)}/",
                "authPlugin": _TOKENS,
                "authParams": token_file.as_uri(),
                "tlsTrustCertsFilePath": str(ca),
                "tlsAllowInsecureConnection": "false",
                "tlsEnableHostnameVerification": "true",
            },
        ),
        CONTEXT_FILE: contexts_text(
            Contexts({CONTEXT: Context(url, str(ca), str(token_file), kafka=brokers)}, CONTEXT)
        ),
        WORKER_FILE: contexts_text(Contexts({"worker": Context(url, str(ca))}, "worker")),
    }


def _properties(what: str, values: dict[str, str]) -> str:
    """The text of a Java properties file: it has \\uXXXX, in UTF-16, for each character that is not ASCII."""
    lines = [f"# {what}", *(f"{key}={_escaped(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\")
    return "".join(one if one.isascii() else _utf16(one) for one in text)


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2], 'big'):04x}" for at in range(0, len(units), 2))
