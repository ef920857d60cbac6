"""What the configuration APIs share: kinds of resources, and who may be named as one."""

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.broker.topic_config import InvalidConfigRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.broker.nodes import Nodes

CLUSTER_DEFAULT: Final = ""  # the name of the BROKER resource that stands for all brokers


class ResourceType(IntEnum):
    """Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """What a configuration request names."""

    resource_type: int
    resource_name: str


def node_id_of(nodes: "Nodes", name: str, kind: str) -> int:
    """The node that a BROKER or BROKER_LOGGER resource names.

    All nodes are this process, so any of them answers for every one, unlike a Kafka broker.

    Raises:
        InvalidConfigRequest: it names none of them.
    """
    if not (name.isascii() and name.isdigit()) or len(name) > 10:
        raise InvalidConfigRequest(f"{kind} id must be an integer, but it is: {name[:200]}")
    if int(name) not in nodes.by_id:
        known = ", ".join(map(str, nodes.by_id))
        raise InvalidConfigRequest(
            f"Unexpected {kind.lower()} id, expected one of {known}, but received {name}"
        )
    return int(name)


def check_broker_changes(names: "Iterable[str]") -> None:
    """Refuse to change a broker's configuration: it is set when the server starts.

    Raises:
        InvalidConfigRequest: there is anything to change.
    """
    wanted = ", ".join(names)
    if wanted:
        raise InvalidConfigRequest(
            f"Cannot update these configs dynamically: [{wanted[:1000]}].  They take effect at start only."
        )
