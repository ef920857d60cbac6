"""`advertisedListeners`, `internalListenerName` and `bindAddresses`, as Pulsar writes them (PIP-61, PIP-95).

    advertisedListeners   NAME:SCHEME://host:port, ...  where clients that ask for the listener NAME connect
    internalListenerName  NAME                          the listener of clients that ask for none; the first by default
    bindAddresses         NAME:SCHEME://host:port, ...  more addresses to listen on; a client that connects there
                                                        and asks for no listener gets NAME's addresses

A scheme is pulsar or pulsar+ssl; an advertised listener may also have http and https, for look-ups over HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.base.listeners import ANY_HOST, LISTENERS_MAX, parse_address, split_items

ADVERTISED_LISTENERS: Final = "advertisedListeners"
INTERNAL_NAME: Final = "internalListenerName"
BIND_ADDRESSES: Final = "bindAddresses"
PULSAR_LISTENER_KEYS: Final = (
    "pulsar.advertised.listeners",
    "pulsar.internal.listener.name",
    "pulsar.bind.addresses",
)
"""The names of these three among the server's keys: Kafka's advertised.listeners is another one."""
PULSAR: Final = "pulsar"
PULSAR_TLS: Final = "pulsar+ssl"
BOUND_SCHEMES: Final = (PULSAR, PULSAR_TLS)
ADVERTISED_SCHEMES: Final = (*BOUND_SCHEMES, "http", "https")

Addresses = Mapping[str, tuple[str, int]]
"""(host, port) by scheme."""


@dataclass(frozen=True, slots=True)
class PulsarBinding:
    """An address to listen on for clients of an advertised listener; `host` is empty for every address."""

    listener: str
    host: str
    port: int
    has_tls: bool

    @property
    def scheme(self) -> str:
        return PULSAR_TLS if self.has_tls else PULSAR

    @property
    def name(self) -> str:
        """A name that no listener of Kafka can have, and no other binding has."""
        return f"{self.scheme}:{self.listener}:{self.port}"


@dataclass(frozen=True, slots=True)
class PulsarListeners:
    """`internal` is empty where no listener is advertised."""

    advertised: Mapping[str, Addresses]
    internal: str
    bindings: Sequence[PulsarBinding]

    @property
    def default(self) -> Addresses:
        """The addresses for clients that ask for no listener; empty where none are configured."""
        return self.advertised.get(self.internal, {})

    @property
    def hosts(self) -> list[str]:
        """The hosts of all advertised addresses."""
        return [host for addresses in self.advertised.values() for host, _ in addresses.values()]


def parse_pulsar_listeners(advertised: str, internal: str, bound: str) -> PulsarListeners:
    """The values of `PULSAR_LISTENER_KEYS`.

    Raises:
        ConfigError: one is malformed, two contradict each other, or a listener is not advertised.
    """
    listeners = _advertised(advertised)
    internal = internal.strip()
    if internal and internal not in listeners:
        raise ConfigError(
            f"{INTERNAL_NAME}: {ADVERTISED_LISTENERS} has no listener {internal[:200]!r}: add it there"
        )
    return PulsarListeners(listeners, internal or next(iter(listeners), ""), _bindings(bound, listeners))


def _advertised(text: str) -> dict[str, dict[str, tuple[str, int]]]:
    key = ADVERTISED_LISTENERS
    found: dict[str, dict[str, tuple[str, int]]] = {}
    taken: dict[tuple[str, int], str] = {}
    for item in split_items(text):
        name, scheme, host, port = _parse(key, item, ADVERTISED_SCHEMES)
        if host in ANY_HOST or not port:
            raise ConfigError(
                f"{key}: {item[:200]!r} has no address that a client could connect to: name host and port"
            )
        if found.setdefault(name, {}).setdefault(scheme, (host, port)) != (host, port):
            raise ConfigError(f"{key} gives listener {name} two addresses for {scheme}: take one out")
        if taken.setdefault((host, port), name) != name:
            raise ConfigError(
                f"{key} gives listeners {taken[host, port]} and {name} the same address: change one"
            )
    if len(found) > LISTENERS_MAX:
        raise ConfigError(f"{key} has {len(found)} listeners: {LISTENERS_MAX} are allowed")
    return found


def _bindings(text: str, listeners: Mapping[str, Addresses]) -> tuple[PulsarBinding, ...]:
    key = BIND_ADDRESSES
    found = []
    for item in split_items(text):
        name, scheme, host, port = _parse(key, item, BOUND_SCHEMES)
        if scheme not in listeners.get(name, {}):
            raise ConfigError(
                f"{key}: {ADVERTISED_LISTENERS} has no {name}:{scheme}://host:port: add it there"
            )
        found.append(PulsarBinding(name, "" if host in ANY_HOST else host, port, scheme == PULSAR_TLS))
    if len(found) > LISTENERS_MAX:
        raise ConfigError(f"{key} has {len(found)} addresses: {LISTENERS_MAX} are allowed")
    if len({one.name for one in found}) < len(found):
        raise ConfigError(f"{key} has a listener twice on one port: take one out")
    return tuple(found)


def _parse(key: str, item: str, schemes: Sequence[str]) -> tuple[str, str, str, int]:
    name, colon, url = item.partition(":")
    scheme, separator, address = url.partition("://")
    found = parse_address(address) if colon and separator and name.strip() and scheme in schemes else None
    if found is None:
        raise ConfigError(
            f"{key}: {item[:200]!r} must be NAME:SCHEME://host:port with a scheme of {', '.join(schemes)}, such as"
            " external:pulsar://pulsar.example.com:6650"
        )
    return (name.strip(), scheme, *found)
