"""Settings of subscriptions, by the keys of Pulsar's broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

_CONSUMER: Final = "maxUnackedMessagesPerConsumer"
_SUBSCRIPTION: Final = "maxUnackedMessagesPerSubscription"
_FAILOVER_DELAY: Final = "activeConsumerFailoverDelayTimeMillis"
_CONSUMER_MAX: Final = 50_000
_SUBSCRIPTION_MAX: Final = 200_000
FAILOVER_DELAY_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class UnackedLimits:
    """How many messages of a subscription that several consumers share may be unacknowledged; 0: no limit.

    consumer      at one of its consumers
    subscription  at all of them together
    """

    consumer: int = _CONSUMER_MAX
    subscription: int = _SUBSCRIPTION_MAX


class SubscriptionSettings(NamedTuple):
    """What holds for subscriptions where no policy says so; the delay is in milliseconds."""

    unacked_limits: UnackedLimits
    failover_delay_ms: int


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
    ServerKey(
        _FAILOVER_DELAY,
        ConfigType.INT,
        str(FAILOVER_DELAY_MS),
        "How many milliseconds nothing goes out when another consumer of a Failover subscription becomes the active"
        " one, so that it does not get what the former one is about to acknowledge; 0: it begins at once.",
        minimum=0,
    ),
)


def subscription_settings(integer: Callable[[str], int]) -> SubscriptionSettings:
    """What the keys come to, by `integer`."""
    limits = UnackedLimits(integer(_CONSUMER), integer(_SUBSCRIPTION))
    return SubscriptionSettings(limits, integer(_FAILOVER_DELAY))
