"""What a client asks of a subscription, and what of it is stored."""

from collections.abc import Mapping
from typing import Final

from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.ledger.cursor import PROPERTY_BYTES_MAX, PROPERTY_COUNT_MAX, Cursor

PROPERTY_PREFIX: Final = "pulsar.subscription."  # of subscription properties, among those of the cursor
PROPERTIES_MAX: Final = PROPERTY_COUNT_MAX - 8  # a cursor has some of its own
NAME_BYTES_MAX: Final = (
    0x7FFF  # it is the name of a Kafka group, too: what a Kafka string of the older versions holds
)


def check_name(name: str) -> None:
    """Raises SubscriptionNotAllowed if no subscription can have this name."""
    if len(name.encode()) > NAME_BYTES_MAX:
        raise SubscriptionNotAllowed(f"A subscription's name has at most {NAME_BYTES_MAX} bytes")


def kept_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Subscription properties as a cursor stores them; raises SubscriptionNotAllowed if it cannot."""
    kept = {PROPERTY_PREFIX + name: value for name, value in properties.items()}
    sizes = [len(text.encode()) for pair in kept.items() for text in pair]
    if len(kept) > PROPERTIES_MAX or max(sizes, default=0) > PROPERTY_BYTES_MAX:
        raise SubscriptionNotAllowed(
            f"A subscription has at most {PROPERTIES_MAX} properties, with names and values of at most"
            f" {PROPERTY_BYTES_MAX - len(PROPERTY_PREFIX)} bytes"
        )
    return kept


def properties_of(cursor: Cursor) -> dict[str, str]:
    """The subscription properties that are stored with a cursor."""
    size = len(PROPERTY_PREFIX)
    return {k[size:]: v for k, v in cursor.properties.items() if k.startswith(PROPERTY_PREFIX)}
