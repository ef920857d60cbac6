"""The place of the provider of each type of targets: ours are in a table, others have an entry point.

A place is a text, so that the first use of a provider imports it, and no other provider.
"""

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from magnetar.base.config import closest
from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.provider import ReplicatorProvider

GROUP: Final = "magnetar.replicators"
PROVIDERS: Final[Mapping[str, str]] = {
    "DynamoDB": "magnetar.replicators.dynamodb.provider:DynamoDbProvider",
    "Kafka": "magnetar.replicators.kafka.provider:KafkaProvider",
    "Kinesis": "magnetar.replicators.kinesis.provider:KinesisProvider",
    "Pulsar": "magnetar.replicators.pulsar.provider:PulsarProvider",
}


def known_types() -> list[str]:
    """The types of targets for which there is a provider, in order."""
    return sorted({*PROVIDERS, *(point.name for point in entry_points(group=GROUP))})


def find_provider(type_name: str) -> ReplicatorProvider:
    """The provider of a type of targets.

    Raises:
        ReplicatorConfigError: there is none of that type, or it cannot be imported.
    """
    place = PROVIDERS.get(type_name)
    if place is None:
        found = entry_points(group=GROUP, name=type_name)
        place = next((point.value for point in found), None)
    if place is None:
        types = known_types()
        meant = closest(type_name, types)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(types)}"
        raise ReplicatorConfigError(f"there is no replicator of the type {type_name[:100]!r}: {hint}")
    module, _, attribute = place.partition(":")
    try:
        provider: ReplicatorProvider = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise ReplicatorConfigError(
            f"the provider of the type {type_name} cannot be loaded: {error}"
        ) from error
    return provider
