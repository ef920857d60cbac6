"""What can be wrong with a subscription, besides what `dispatch.errors` has."""

from magnetar.base.errors import BrokerError
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy


class SubscriptionBusy(ConsumerBusy):
    """Other consumers, of whichever protocol, have the subscription in a way that excludes this one."""


class SubscriptionNotFound(BrokerError):
    """There is no such subscription, and none may be made."""


class SubscriptionNotAllowed(BrokerError):
    """The subscription cannot be had, or used, in the way that is asked."""


class SubscriptionClosed(BrokerError):
    """The subscription was dropped or its topic unloaded meanwhile: ask again."""
