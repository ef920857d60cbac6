"""What the configuration APIs share: kinds of resources, who may be named as one, and what becomes of each."""

import asyncio
from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.policy.topic_config import InvalidConfigRequest
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from magnetar.broker.cluster.nodes import Nodes

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


AnyResource = TypeVar("AnyResource", bound=Resource)


async def change_each(
    resources: "Sequence[AnyResource]", change: "Callable[[AnyResource], Awaitable[None]]"
) -> list[tuple[AnyResource, int, str | None]]:
    """Each resource with the error code and the message of its change, all at once; one named twice is refused."""
    counts = Counter((one.resource_type, one.resource_name) for one in resources)

    async def outcome(one: AnyResource) -> tuple[AnyResource, int, str | None]:
        try:
            if counts[one.resource_type, one.resource_name] > 1:
                raise InvalidConfigRequest("Each resource must appear at most once.")
            await change(one)
        except UnknownTopic:
            message = f"The topic '{one.resource_name}' does not exist."
            return one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message
        except BrokerError as error:
            return one, error_code(error), str(error)
        return one, ErrorCode.NONE, None

    return await asyncio.gather(*map(outcome, resources))


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
