"""What can be wrong with a subscription, besides what `dispatch.errors` has."""

from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy


class SubscriptionBusy(ConsumerBusy):
    """Other consumers, of whichever protocol, have the subscription in a way that excludes this one."""

    code: ClassVar[str] = "SUBSCRIPTION_BUSY"


class SubscriptionNotFound(BrokerError):
    """There is no such subscription, and none may be made."""

    code: ClassVar[str] = "SUBSCRIPTION_NOT_FOUND"


class SubscriptionNotAllowed(BrokerError):
    """The subscription cannot be had, or used, in the way that is asked."""

    code: ClassVar[str] = "SUBSCRIPTION_NOT_ALLOWED"


class SubscriptionClosed(BrokerError):
    """The subscription was dropped or its topic unloaded meanwhile: ask again."""

    code: ClassVar[str] = "SUBSCRIPTION_CLOSED"


class NothingExpired(BrokerError):
    """No message of the subscription is old enough to expire."""

    code: ClassVar[str] = "NOTHING_EXPIRED"
