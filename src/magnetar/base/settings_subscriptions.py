"""Settings of subscriptions, by the keys of Pulsar's broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

_CONSUMER: Final = "maxUnackedMessagesPerConsumer"
_SUBSCRIPTION: Final = "maxUnackedMessagesPerSubscription"
_CONSUMER_MAX: Final = 50_000
_SUBSCRIPTION_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class UnackedLimits:
    """How many messages of a subscription that several consumers share may be unacknowledged; 0: no limit.

    consumer      at one of its consumers
    subscription  at all of them together
    """

    consumer: int = _CONSUMER_MAX
    subscription: int = _SUBSCRIPTION_MAX


SUBSCRIPTION_KEYS: Final = (
    ServerKey(
        _CONSUMER,
        ConfigType.INT,
        str(_CONSUMER_MAX),
        "How many messages a consumer of a Shared or Key_Shared subscription may leave unacknowledged before it gets no"
        " more, where no policy says so; 0: no limit.",
        minimum=0,
    ),
    ServerKey(
        _SUBSCRIPTION,
        ConfigType.INT,
        str(_SUBSCRIPTION_MAX),
        "How many messages all consumers of a Shared or Key_Shared subscription may leave unacknowledged together"
        " before nothing new goes out, where no policy says so; 0: no limit.",
        minimum=0,
    ),
)


def unacked_limits(integer: Callable[[str], int]) -> UnackedLimits:
    """What the keys come to, by `integer`."""
    return UnackedLimits(integer(_CONSUMER), integer(_SUBSCRIPTION))
