"""The protocols that a server speaks: finds its doors, and binds their listeners (`protocols/door.py`)."""

import contextlib
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.base.plugins import PROTOCOLS, installed
from magnetar.base.settings import ServerSettings
from magnetar.broker.cluster.model import Endpoint, Node
from magnetar.protocols.door import Door, DoorListener
from magnetar.server.listeners import bind

BUILT_IN: Final = ("kafka", "pulsar")


@dataclass(frozen=True, slots=True)
class Bound:
    """A listener of a door, and its sockets."""

    door: Door
    listener: DoorListener
    sockets: Sequence[socket.socket]


def load_doors(settings: ServerSettings) -> list[Door]:
    """The doors of the server: Kafka's, Pulsar's, and those that `messagingProtocols` names.

    Raises:
        ConfigError: no installed package offers a protocol of that name, or its door cannot be loaded.
    """
    found = installed(PROTOCOLS)
    return [
        _load(name, found, settings) for name in dict.fromkeys((*BUILT_IN, *settings.messaging_protocols))
    ]


def _load(name: str, found: Mapping[str, EntryPoint], settings: ServerSettings) -> Door:
    point = found.get(name)
    if point is None:
        raise ConfigError(
            f"no installed package offers the protocol {name!r} (entry point group {PROTOCOLS}): "
            + ("install magnetar again" if name in BUILT_IN else _offered(found))
        )
    try:
        make_door = point.load()
    except Exception as error:
        raise ConfigError(f"the protocol {name!r} ({point.value}) cannot be loaded: {error!r}") from error
    door: Door = make_door(settings)
    return door


def _offered(found: Collection[str]) -> str:
    others = sorted(set(found) - {*BUILT_IN})
    return (
        f"install one, or let messagingProtocols name one of {', '.join(others)}" if others else "install one"
    )


def bind_doors(
    doors: Sequence[Door], nodes: Sequence[Node], stack: contextlib.ExitStack | contextlib.AsyncExitStack
) -> Iterator[Bound]:
    """Bind the listeners of all doors, and set the addresses that the nodes advertise.

    Raises:
        ConfigError: an address does not belong to this machine, or another process listens there.
    """
    for door in doors:
        for listener in door.listeners():
            sockets = bind(listener.host, listener.port)
            for listening in sockets:
                stack.callback(listening.close)
            port = sockets[0].getsockname()[1]
            nodes[listener.node].advertised[listener.name] = door.advertised(listener, port)
            yield Bound(door, listener, sockets)


def looked_up(bound: Sequence[Bound], nodes: Sequence[Node]) -> tuple[Endpoint | None, Endpoint | None]:
    """The addresses in the answers to look-ups of topics: the one without TLS, and the one with TLS."""
    found = {
        one.listener.tls is not None: nodes[one.listener.node].advertised[one.listener.name]
        for one in bound
        if one.listener.is_looked_up
    }
    return found.get(False), found.get(True)
