"""`listeners`, `advertised.listeners` and `listener.security.protocol.map`, as Kafka and KoP write them.

    listeners                       NAME://host:port, ...  host empty: every address; [::1] for IPv6; port 0: a free one
    advertised.listeners            NAME://host:port, ...  where clients of that listener are to connect
    listener.security.protocol.map  NAME:PROTOCOL, ...     only needed for names that are not a protocol's

Names are compared without regard to case, as Kafka does.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX: Final = 65_535
PULSAR_PORT: Final = 6650
LISTENERS_MAX: Final = 64
LOCALHOST: Final = "localhost"

ANY_HOST: Final = ("", "0.0.0.0", "::")  # noqa: S104  what a listener on every address is configured as
_ADDRESS: Final = r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]*)\]|(?P<host>[^\s:/\[\],]*)):(?P<port>[0-9]{1,5})"
_ENDPOINT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)://" + _ADDRESS, re.ASCII)
_BARE_ADDRESS: Final = re.compile(_ADDRESS, re.ASCII)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on.  `host` is empty for every address and has no brackets; `port` 0 is a free
    one.
    """

    name: str
    host: str
    port: int
    protocol: str

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Listener name -> security protocol, Kafka's own names included."""
    protocols = {name: name for name in PROTOCOLS}
    given: dict[str, str] = {}
    for item in split_items(text):
        name, colon, protocol = item.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {item!r} must be <listener name>:<{'|'.join(PROTOCOLS)}>"
            )
        if given.setdefault(name, protocol) != protocol:
            raise ConfigError(f"listener.security.protocol.map gives listener {name} two protocols")
    return protocols | given


def parse_listeners(
    text: str, protocols: Mapping[str, str], not_ours: Sequence[str] = (), host_default: str = ""
) -> tuple[Listener, ...]:
    """The value of `listeners`, without those named in `not_ours` (a KRaft file's controller listeners).

    A listener without a host takes `host_default`; 0.0.0.0 and :: are every address whatever that is.

    Raises:
        ConfigError: malformed, a name or an address twice, a protocol that is unknown.
    """
    others = {name.strip().upper() for name in not_ours}
    found: list[Listener] = []
    for item in split_items(text):
        name, host, port = _endpoint("listeners", item)
        if name in others:
            continue
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"listener {name} has no security protocol: add {name}:PLAINTEXT to"
                " listener.security.protocol.map"
            )
        bare = host_default if not host else "" if host in ANY_HOST else host
        found.append(Listener(name, bare, port, protocol))
    if not found:
        raise ConfigError("listeners names no address to listen on, such as PLAINTEXT://:9092")
    if len(found) > LISTENERS_MAX:
        raise ConfigError(f"listeners names {len(found)} addresses: {LISTENERS_MAX} are allowed")
    check_addresses(found)
    _check_names("listeners", [listener.name for listener in found])
    return tuple(found)


def parse_advertised(text: str, listeners: Sequence[Listener]) -> dict[str, tuple[str, int]]:
    """Listener name -> (host, port) of `advertised.listeners`; port 0 stands for the port listened on."""
    names = {listener.name for listener in listeners}
    found: list[tuple[str, tuple[str, int]]] = []
    for item in split_items(text):
        name, host, port = _endpoint("advertised.listeners", item)
        if name not in names:
            raise ConfigError(f"advertised.listeners: there is no listener {name}: add it to listeners")
        if host in ANY_HOST:
            raise ConfigError(
                f"advertised.listeners: {item!r} has no host that a client could connect to: name this"
                " machine"
            )
        found.append((name, (host, port)))
    _check_names("advertised.listeners", [name for name, _ in found])
    return dict(found)


def parse_pulsar_url(text: str) -> tuple[str, int]:
    """(host, port) of `pulsar://host:port`; the port is 6650 when there is none.

    Raises:
        ConfigError: half a sentence.
    """
    scheme, separator, address = text.partition("://")
    if scheme == "pulsar" and separator:
        found = parse_address(address if re.search(r":[0-9]+$", address) else f"{address}:{PULSAR_PORT}")
        if found is not None and found[0] not in ANY_HOST and found[1]:
            return found
    raise ConfigError("must be pulsar://host:port")


def is_loopback(address: str) -> bool:
    """Whether a numeric address, scope and all, can only be reached from this machine."""
    try:
        return numeric(address).is_loopback
    except ValueError:
        return False


def numeric(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """A numeric address; an IPv4 one that is written as an IPv6 one (`::ffff:10.0.0.7`) is the IPv4 one.

    Raises:
        ValueError: it is none.
    """
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def check_addresses(listeners: Sequence[Listener]) -> None:
    """ConfigError when two of `listeners` claim the same address."""
    taken: dict[int, list[Listener]] = {}
    for listener in listeners:
        for other in taken.get(listener.port, ()) if listener.port else ():
            if listener.host == other.host or not listener.host or not other.host:
                raise ConfigError(
                    f"listeners {other.url} and {listener.url} claim the same address: change one port"
                )
        taken.setdefault(listener.port, []).append(listener)


def split_items(text: str) -> list[str]:
    """The items of a list as users write it, without empty ones."""
    return [item.strip() for item in text.split(",") if item.strip()]


def parse_address(text: str) -> tuple[str, int] | None:
    """(host, port) of `host:port`, the host without brackets; None if it has another form."""
    match = _BARE_ADDRESS.fullmatch(text)
    return None if match is None else _host_and_port(match)


def _host_and_port(match: re.Match[str]) -> tuple[str, int] | None:
    port = int(match["port"])
    host = match["ipv6"] if match["ipv6"] is not None else match["host"]
    return (host, port) if port <= PORT_MAX else None


def _endpoint(key: str, item: str) -> tuple[str, str, int]:
    match = _ENDPOINT.fullmatch(item)
    found = None if match is None else _host_and_port(match)
    if match is None or found is None:
        raise ConfigError(
            f"{key}: {item[:200]!r} must be NAME://host:port with a port from 0 to {PORT_MAX}, such as"
            " PLAINTEXT://:9092 or PLAINTEXT://[::1]:9092"
        )
    return (match["name"].upper(), *found)


def _check_names(key: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key} names {name} twice: give each listener a name of its own")
