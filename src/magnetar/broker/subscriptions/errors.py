"""Errors about a subscription, in addition to those of `dispatch.errors`."""

from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy


class SubscriptionBusy(ConsumerBusy):
    """Other consumers, of either protocol, use the subscription in a way that excludes this one."""

    code: ClassVar[str] = "SUBSCRIPTION_BUSY"


class SubscriptionNotFound(BrokerError):
    """The subscription does not exist, and may not be created."""

    code: ClassVar[str] = "SUBSCRIPTION_NOT_FOUND"


class SubscriptionNotAllowed(BrokerError):
    """The subscription cannot be created, or used, in the way that the client asks."""

    code: ClassVar[str] = "SUBSCRIPTION_NOT_ALLOWED"


class SubscriptionClosed(BrokerError):
    """The subscription was dropped or its topic unloaded meanwhile: try again."""

    code: ClassVar[str] = "SUBSCRIPTION_CLOSED"


class NothingExpired(BrokerError):
    """No message of the subscription is old enough to expire."""

    code: ClassVar[str] = "NOTHING_EXPIRED"


class MessageGone(BrokerError):
    """A message is not there, or not any more, that has to be found."""

    code: ClassVar[str] = "MESSAGE_GONE"
