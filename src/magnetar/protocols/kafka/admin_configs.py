"""What the configuration APIs share: kinds of resources, and the result for each resource of a request."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from functools import partial
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
Row_co = TypeVar("Row_co", covariant=True)


class MakeRow(Protocol[Row_co]):
    """Makes the answer for a resource, as both APIs that change configurations have it."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> Row_co: ...


async def change_each(
    resources: Sequence[AnyResource],
    change: Callable[[AnyResource], Awaitable[None]],
    make: MakeRow[Row_co],
) -> list[Row_co]:
    """Change all resources at once; returns the answer for each.  One named twice is refused."""
    counts = Counter((one.resource_type, one.resource_name) for one in resources)

    async def outcome(one: AnyResource) -> Row_co:
        row = partial(make, resource_type=one.resource_type, resource_name=one.resource_name)
        try:
            if counts[one.resource_type, one.resource_name] > 1:
                raise InvalidConfigRequest("Each resource must appear at most once.")
            await change(one)
        except UnknownTopic:
            message = f"The topic '{one.resource_name}' does not exist."
            return row(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message)
        except BrokerError as error:
            return row(error_code=error_code(error), error_message=str(error))
        return row(error_code=ErrorCode.NONE, error_message=None)

    return await asyncio.gather(*map(outcome, resources))
