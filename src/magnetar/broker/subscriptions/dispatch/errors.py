"""Why a consumer may not join a subscription."""

from magnetar.base.errors import BrokerError


class ConsumerBusy(BrokerError):
    """The subscription has all the consumers that its type allows."""


class ConsumerAssignError(BrokerError):
    """The key ranges that a consumer declares are malformed, or another consumer has them."""
