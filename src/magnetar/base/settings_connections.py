"""The server's keys for how many clients may connect, and how fast: Kafka's keys, and Pulsar's for Pulsar's ports.

Clients can change Kafka's keys while the server runs, for all listeners or for one (`listener.name.<listener>.<key>`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.config import INT_MAX, ConfigType, Value
from magnetar.base.listeners import numeric
from magnetar.base.server_key import ServerKey

CONNECTIONS_MAX: Final = "max.connections"
PER_ADDRESS_MAX: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
PER_PRINCIPAL_MAX: Final = "max.connections.per.principal"
PRINCIPAL_OVERRIDES: Final = "max.connections.per.principal.overrides"
RATE: Final = "max.connection.creation.rate"

OWN_NAMES: Final = frozenset({CONNECTIONS_MAX, RATE})  # those that one listener can have for itself
DYNAMIC_NAMES: Final = frozenset(
    {CONNECTIONS_MAX, PER_ADDRESS_MAX, OVERRIDES, PER_PRINCIPAL_MAX, PRINCIPAL_OVERRIDES, RATE}
)
_USER: Final = "User:"  # of a principal's name, as in super.users
_UNLIMITED: Final = str(INT_MAX)


def canonical_address(text: str) -> str | None:
    """An IP address as sockets write it; None for any other text, such as a name.

    An IPv4 address that is written as an IPv6 one (`::ffff:10.0.0.7`) is the IPv4 address, as in Kafka: no client comes
    from the other.
    """
    try:
        return str(numeric(text.strip().removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def _count(text: str) -> int | None:
    return min(int(text), INT_MAX) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _per_address(text: str) -> dict[str, int]:
    """Raises ValueError: half a sentence."""
    found = {}
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, digits = item.rpartition(":")
        address, count = canonical_address(host), _count(digits)
        if address is None or count is None:
            raise ValueError(f"must be <IP address>:<count>, separated by commas, and {item[:100]!r} is not")
        found[address] = count
    return found


def _per_principal(text: str) -> dict[str, int]:
    """Raises ValueError: half a sentence."""
    found = {}
    for item in filter(None, map(str.strip, text.split(";"))):  # a certificate's name may have commas
        principal, _, digits = item.rpartition(":")
        count = _count(digits)
        if not principal.startswith(_USER) or principal == _USER or count is None:
            raise ValueError(
                f"must be User:<name>:<count>, separated by semicolons, and {item[:100]!r} is not"
            )
        found[principal] = count
    return found


def _checking(parse: Callable[[str], object]) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        try:
            parse(str(value))
        except ValueError as error:
            return str(error)
        return None

    return check


CONNECTION_KEYS: Final = (
    ServerKey(
        CONNECTIONS_MAX,
        ConfigType.INT,
        _UNLIMITED,
        "How many connections of Kafka's and Pulsar's clients may be open, also by listener"
        " (`listener.name.<listener>.max.connections`).  Never more than the process may open files, less 2,304 (half,"
        " where that is fewer) that are kept for storage and HTTP.  May be changed while the server runs.",
        minimum=0,
    ),
    ServerKey(
        PER_ADDRESS_MAX,
        ConfigType.INT,
        _UNLIMITED,
        "How many connections one client address may have open.  May be changed while the server runs.",
        minimum=0,
    ),
    ServerKey(
        OVERRIDES,
        ConfigType.STRING,
        "",
        "How many connections single addresses may have open: `<IP address>:<count>`, separated by commas.  May be"
        " changed while the server runs.",
        check=_checking(_per_address),
    ),
    ServerKey(
        PER_PRINCIPAL_MAX,
        ConfigType.INT,
        _UNLIMITED,
        "How many connections one principal may have open at Kafka's and Pulsar's ports together; clients that do not"
        " log in have none.  May be changed while the server runs.",
        minimum=0,
    ),
    ServerKey(
        PRINCIPAL_OVERRIDES,
        ConfigType.STRING,
        "",
        "How many connections single principals may have open: `User:<name>:<count>`, separated by semicolons.  May be"
        " changed while the server runs.",
        check=_checking(_per_principal),
    ),
    ServerKey(
        RATE,
        ConfigType.INT,
        _UNLIMITED,
        "How many connections a second are accepted, also by listener"
        " (`listener.name.<listener>.max.connection.creation.rate`); others wait (KIP-612); 0: one.  May be"
        " changed while the server runs.",
        minimum=0,
    ),
    ServerKey(
        "brokerMaxConnections",
        ConfigType.INT,
        "0",
        "How many connections Pulsar's ports may have open; 0: no limit of their own.",
        minimum=0,
    ),
    ServerKey(
        "brokerMaxConnectionsPerIp",
        ConfigType.INT,
        "0",
        "How many connections to Pulsar's ports one client address may have open; 0: no limit of their own.",
        minimum=0,
    ),
)


@dataclass(frozen=True, slots=True)
class ListenerRules:
    """The rules of one listener, or of all together.  `rate` is in connections a second, None without a limit."""

    connections_max: int = INT_MAX
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """`listeners` has the listeners with rules of their own, by name in capitals; `per_address` and `per_principal`
    (by `User:<name>`) those with limits of their own.
    """

    all_listeners: ListenerRules = ListenerRules()
    per_address_max: int = INT_MAX
    per_address: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, ListenerRules] = field(default_factory=dict)
    per_principal_max: int = INT_MAX
    per_principal: Mapping[str, int] = field(default_factory=dict)


def shut_out(rules: ConnectionRules, listeners: Collection[str] = ()) -> str | None:
    """Why, with these rules, no client could connect any more to change them: half a sentence, or None.

    `listeners` are those by which changes come, in capitals: one of them may have no clients, but not all.
    """
    if not rules.all_listeners.connections_max:
        return f"{CONNECTIONS_MAX} must be at least 1: no client could connect, also to change it"
    if not rules.per_address_max and not any(rules.per_address.values()):
        return f"{PER_ADDRESS_MAX} may be 0 only where {OVERRIDES} lets some addresses in"
    if not rules.per_principal_max and not any(rules.per_principal.values()):
        return f"{PER_PRINCIPAL_MAX} may be 0 only where {PRINCIPAL_OVERRIDES} lets some principals in"
    if listeners and not any(rules.listeners.get(one, ListenerRules()).connections_max for one in listeners):
        return (
            f"{CONNECTIONS_MAX} must be at least 1 for one of Kafka's listeners: no client could connect, also to"
            " change it"
        )
    return None


def connection_rules(texts: Mapping[str, str], own: Mapping[tuple[str, str], str]) -> ConnectionRules:
    """Make rules of the keys' texts, and of the texts of single listeners by (listener, key); check all of them."""
    return ConnectionRules(
        _listener_rules(texts),
        int(texts.get(PER_ADDRESS_MAX, _UNLIMITED)),
        _per_address(texts.get(OVERRIDES, "")),
        {
            listener: _listener_rules({key: text for (one, key), text in own.items() if one == listener})
            for listener in {listener for listener, _ in own}
        },
        int(texts.get(PER_PRINCIPAL_MAX, _UNLIMITED)),
        _per_principal(texts.get(PRINCIPAL_OVERRIDES, "")),
    )


def _listener_rules(texts: Mapping[str, str]) -> ListenerRules:
    rate = int(texts.get(RATE, _UNLIMITED))
    return ListenerRules(int(texts.get(CONNECTIONS_MAX, _UNLIMITED)), None if rate == INT_MAX else rate)
