"""What the configuration APIs share: kinds of resources, and the result for each resource of a request."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode


class ResourceType(IntEnum):
    """Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """A resource in a configuration request."""

    resource_type: int
    resource_name: str


AnyResource = TypeVar("AnyResource", bound=Resource)


async def change_each(
    resources: Sequence[AnyResource], change: Callable[[AnyResource], Awaitable[None]]
) -> list[tuple[AnyResource, int, str | None]]:
    """Change all resources at once; returns each with the error code and message.  One named twice is refused."""
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
